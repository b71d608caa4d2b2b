"""Rows of gpu.py: mixtures of experts with synthetic weights, and a layer's experts alone.

A gate is what issue 26 asks of one H200. The limit of a decode row is the bytes that a step reads at the read rate, of
experts those that some row is expected to take. Routers are of random values, so that rows choose nearly evenly. The
layer's experts are `bench_kernels experts`: routes drawn uniformly, by Zipf's law, and alike for all rows.
"""

import re

MODELS = {
    "qwen3-30b-a3b": {1: 420, 64: 4000, 256: 13000, "burst": 14000},
    "qwen3-30b-a3b:fp8": {1: 600, 64: 7000},
    "gpt-oss-20b": {1: 650, "saturated": 15000},
    "mixtral-8x7b:fp8": {1: 270},
}
ROWS = {"experts-" + name.replace(":", "-"): name for name in MODELS}
LAYER = "experts-layer"
SHAPE = "qwen3-30b-a3b"
DISTINCT, DENSE = 95, 70  # percent: of experts that 64 rows take; of a dense product's rate at 8,192 rows

LINE = re.compile(r"^(?P<shape>\S+) +16 bits +(?P<rows>\d+) rows, (?P<skew>\w+) +(?P<experts>[\d.]+) experts:.* "
                  r"products +(?P<products>[\d.]+), .*= +(?P<read>[\d.]+) % of the read rate, +(?P<rate>\d+) TFLOP/s$",
                  re.M)
DENSE_LINE = re.compile(r"a dense product of \d+ rows: (\d+) TFLOP/s")


def saturated(daemon, run, busy, prompts):
    """1,000 tokens in and 1,000 out of each of 1,024 requests, over all the time that any of them took."""
    count, length = 1024, 1000
    polls = run(prompts(count, length, length))
    rate = count * length / busy(polls) * 1e6
    return rate, f"{rate:,.0f} output tok/s ({count} requests of {length} in, {length} out, with both ends)"


def rows(daemon, row, name, measures):
    """`measures` are gpu.py's: of one sequence, of many, of 2,048 at once, saturated; and a limit by rows."""
    vocabulary = daemon.control.model()["vocabulary"]
    for what, gate in MODELS[name].items():
        limit = ""
        if isinstance(what, int):
            steady = measures["one"](daemon, vocabulary) if what == 1 else measures["many"](daemon, what, vocabulary)
            rate, text, limit = steady.rate, steady.text(), f"{measures['limit'](daemon, what):,.0f}"
        else:
            rate, text = measures[what](daemon)
        title = {"burst": "2,048 of 128 in, 128 out at once", "saturated": "1,000 in, 1,000 out"}.get(
            what, f"decode, batch {what}")
        row(f"{name}: {title}", text, f"{gate:,} tok/s", rate >= gate, limit, "gpu-experts")


def layer_rows(out, count, row):
    """Of what `bench_kernels experts` printed, of `count` experts."""
    dense = int(DENSE_LINE.search(out).group(1))
    lines = {(int(found["rows"]), found["skew"]): found for found in LINE.finditer(out)}
    distinct = 100 * float(lines[64, "uniform"]["experts"]) / count
    row(f"{SHAPE}, a layer of 64 rows, routes uniform", f"{distinct:.1f} % of {count} experts taken", f"{DISTINCT} %",
        distinct >= DISTINCT, "", "gpu-experts")
    share = 100 * int(lines[8192, "uniform"]["rate"]) / dense
    row(f"{SHAPE}, grouped products of 8,192 rows", f"{lines[8192, 'uniform']['rate']} TFLOP/s, {share:.0f} % of a "
        f"dense product's {dense}", f"{DENSE} %", share >= DENSE, "", "gpu-experts")
    for size in (64, 2048):
        text = "; ".join(f"{skew} {lines[size, skew]['products']} us, {lines[size, skew]['experts']} experts, "
                         f"{lines[size, skew]['read']} % of the read rate, {lines[size, skew]['rate']} TFLOP/s"
                         for skew in ("uniform", "zipf", "alike"))
        row(f"{SHAPE}, a layer's products of {size:,} rows by how they are routed", text, "none", True, "",
            "gpu-experts")
