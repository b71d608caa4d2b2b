"""TECHNIQUES.md: each technique of streams, copies and memory, the command that shows it, and its figure in the records.

A figure is that of a record's row (its name, how the row begins), "not measured" where no record has it, or, where
nothing is to be timed, what holds it.
"""

JOBS = "tests/bench/gpu.sh --only "
RIG = "tests/gpu/run.sh .build/cuda operate"
SUMS = "bench_sums, on two GPUs and more"
BETWEEN = "gpu", "gap between steps"
CALIBRATE = "`sluiced --program FILE --calibrate`; `" + JOBS + "job-chunk`"


def test(text):
    return "held by " + text


# What, where it lives, what is claimed for it, what shows it, and rows of records or who holds it.
ROWS = [
    ("non-blocking streams; no legacy stream", "`gpu/base/streams.h`, `gpu/lanes/lane.h`",
     "a stray call on the legacy stream serialises all", "`ctest --preset dev -R runtime`",
     test("`tests/runtime/test_emu.c`: the CPU device aborts on one")),
    ("per-thread default streams", "set-up of ranks; build flags", "threads' default streams overlap", CALIBRATE,
     [("gpu-jobs", "kernels in the default streams")]),
    ("stream priorities, a budget of copies", "lanes beside a model; decode above copies", "lower p99 for decode under a "
     "background load", "`" + JOBS + "job-beside`", [("gpu-jobs", "64 rows beside affine jobs of"),
                                                    ("gpu-jobs", "64 rows beside affine jobs as")]),
    ("pinned staging", "`gpu/lanes/lane.c`, `gpu/engine/rings.h`", "2 times and more in copy rate", CALIBRATE,
     [("gpu-jobs", "pinned copies beside pageable")]),
    ("three-way overlap of copies and kernels", "`gpu/lanes/`", "up to 3 times; batches + stages - 1 units",
     "`bench_lanes`; `" + JOBS + "job-lanes`", [("gpu-jobs", "lanes: stages of equal length"), ("gpu-jobs", "lanes: share of"),
                                                ("gpu-jobs", "lanes: in and out together")]),
    ("size of chunks", "`daemon/jobs/calibration.h`", "copies about as long as kernels; a curve with its best point", CALIBRATE,
     [("gpu-jobs", "affine at the chunks and lanes")]),
    ("interleaved and grouped issue", "`gpu/lanes/machine_copies.c`", "equal on modern devices", CALIBRATE,
     [("gpu-jobs", "three stages, enqueued")]),
    ("number of streams", "`gpu/lanes/machine_streams.c`", "nearly linear up to 128 resident grids", CALIBRATE,
     [("gpu-jobs", "kernels in so many streams")]),
    ("stream-ordered allocation, threshold, trim", "`gpu/memory/pools.h`, `gpu/lanes/lanes.c`",
     "50 to 80 % less overhead, no stall of others, memory given back", CALIBRATE + "; `" + RIG + "`",
     [("gpu-jobs", "a pool that keeps beside cudaMalloc"), ("gpu-jobs", "what that pool holds"),
      ("operate-memory", "burst: back to the idle memory")]),
    ("scratch of variable length", "`gpu/program/scratch_layout.h`", "not a byte more than the batch needs",
     "`" + RIG + "`", [("operate-memory", "1 of 64")]),
    ("KV that grows in the stream of its attention", "`gpu/memory/slabs.h`", "other streams keep running", "`" + RIG + "`",
     [("operate-profile", "growth")]),
    ("layers in stages, handed over by events", "`gpu/comm/pipeline_link.h`; program `layers`",
     "stage k+1 of batch n beside stage k of batch n+1", "`bench_stages`; `tests/gpu/several.py`",
     [("stages", "layers, 6 of 4096"), ("several-pp", "pp 2: 4,096 at once")]),
    ("events: timing only where something is profiled", "`gpu/lanes/lane_times.h`", "only the waiting stream stalls",
     "`ctest --preset dev -R jobs`; " + CALIBRATE, [("gpu-jobs", "the host waits for each stage")]),
    ("host functions", "notify streams", "completion without polling; little cost on a side stream", "`" + RIG + "`; "
     "`bench_notify`", [("operate-notify", "a host function after every step")]),
    ("warp-specialized kernel, two pipelines", "program `pipeline`", "overlap within a kernel", "`bench_programs`",
     [("programs", "pipeline of 1 rounds"), ("programs", "pipeline of 1024 rounds")]),
    ("clusters, distributed shared memory, multicast", "program `gemm`", "redundant loads gone", "`bench_programs`",
     [("programs", "gemm 4096, gains"), ("programs", "gemm 8192, gains")]),
    ("programmatic dependent launch", "all kernels of a step", "epilogue and prologue overlap", "`bench_programs`; "
     "[EXPERIMENTS.md](EXPERIMENTS.md)", [("programs", "gemm 8192, gains"), BETWEEN]),
    ("all of these in one product", "program `gemm`", "near the library's rate", "`bench_programs`",
     [("programs", "gemm 4096"), ("programs", "gemm 8192")]),
    ("CUDA graphs", "`gpu/engine/cuda_graph.h`", "launch overhead gone", "`" + JOBS + "gap`", [BETWEEN]),
    ("peer copies on a stream of their own", "`gpu/comm/pipeline_link.c`", "compute on both GPUs beside the copy",
     "`tests/gpu/several.py`", [("several-pp", "pp 2: 4,096 at once"), ("several-pp", "pp 4")]),
    ("collectives beside compute", "`gpu/comm/comm_cuda.c`", "communication hidden behind compute", SUMS,
     [("several-sums", "a sum over two GPUs"), ("several-tp", "tp 2: one sequence")]),
    ("stages on streams of their own", "program `relevance`", "stages of different images at once", "`bench_stages`",
     [("stages", "relevance, 1920"), ("stages", "relevance, 512")]),
    ("replicas, a thread for each", "`daemon/worker/`", "throughput times the number of GPUs", "`tests/gpu/several.py`",
     [("several-dp", "dp 4")]),
    ("overlap measured by events", "`sluice timeline`", "the gain is printed, not asserted", "`" + JOBS + "job-timeline`",
     [("gpu-jobs", "`sluice timeline`")]),
    ("simulation of a pipeline", "`sluice timeline --simulate 4`", "12 units one after the other, 6 at once, 2.00 times",
     "`sluice timeline --simulate 4`", test("`tests/client/timeline_test.c`")),
    ("no call that synchronises or allocates in steady state", "lanes, steps", "counters stay flat",
     "`" + JOBS + "job-shared`; `bench_lanes`", [("gpu-jobs", "synchronising calls"), ("gpu-jobs", "lanes: calls that")]),
    ("NVTX ranges", "`gpu/base/nvtx.h`", "off unless asked for", "`cmake -DSLUICE_NVTX=ON`",
     test("the build: without the option there is no call")),
]


def figure(found, name, begin):
    """With its name: of the row that is called so, else of the first that begins so."""
    rows = found[name]["rows"] if name in found else []
    called = [row for row in rows if row["what"] == begin]
    hits = called or [row for row in rows if f"{row['what']}: {row['figure']}".startswith(begin)]
    return f"{hits[0]['what']}: {hits[0]['figure']}" if hits else None


def cell(text):
    return text.replace("|", "\\|").replace("\n", " ")


def shown(found, rows):
    if isinstance(rows, str):
        return rows
    figures = [figure(found, *row) for row in rows]
    return "; ".join(one for one in figures if one) or "not measured"


def page(found):
    lines = ["# Techniques", "",
             "Made by `tests/bench/results.py` of the records, as [RESULTS.md](RESULTS.md), where the machines stand; what is claimed is what",
             "the literature promises. `bench_...` are programs of a build of the preset `cuda`, in `tests/bench/`.", "",
             "| technique | where | claim | shown by | figure |", "| --- | --- | --- | --- | --- |"]
    lines += ["| " + " | ".join(map(cell, [what, where, claim, command, shown(found, rows)])) + " |"
              for what, where, claim, command, rows in ROWS]
    return "\n".join(lines) + "\n"
