"""Rows of gpu.py: jobs on lanes, alone and beside a model.

`job-lanes` is bench_lanes: three stages at once, copies both ways, and what a steady run counted. `job-shared` has the
same through a daemon, from shared memory and through the socket. `job-chunk` calibrates twice: what the first sweep
chose, beside the best of the second. `job-beside` floods a daemon whose model decodes at batch 64, with the priority and
the budget of copies, and without: at a rate, and as fast as jobs end, of kernels that are short and as long as copies. `job-programs` has all programs' results beside the CPU device's, `job-flood` many jobs
of 32 clients with cancels and deadlines. `job-timeline` asks for the lanes' own figures while jobs run.
"""

import array
import json
import os
import random
import struct
import subprocess
import tempfile
import time

from gpu_share import idle, running, stop_clients, until

PROGRAMS = ("affine", "pipeline", "gemm", "layers", "relevance")
MIB = 1 << 20
BOTH, NEAR, FLOOD_GB_S, GAPS_MORE = 95.0, 0.97, 20, 1.15
# A job of one round is copies, and what it reads and writes of the device's memory, 4 bytes for each byte a second: 80 of
# some 4,600 GB/s at 20. So floods as fast as jobs end are there, too, the last with stages of equal length (job-lanes).
FLOOD_ROUNDS, VISIBLY_MORE = (1, 300, 1200), 1.05  # more than the 3 % that a bucket of the daemon's histogram is wide
JOBS = 10000
ROUNDED = 2 ** -6  # how far a sum in another order may be from one in bf16, beside the greatest of the results
LARGE = ("--tensors-max", "16GiB", "--job-chunk", "16MiB")  # as a calibration on a fast link finds it, or about
DECODING = 3000  # tokens of each of 64 sequences, more than are measured


def module(build, name, device="cuda"):
    return os.path.join(build, f"gpu/programs/{name}-{device}.so")


def flood(daemon, seconds, *options):
    """A client on its way."""
    return subprocess.Popen([os.path.join(daemon.build, "tests/bench/bench_job_flood"), daemon.command()[-1], "--seconds",
                             str(seconds), *options], stdout=subprocess.PIPE, text=True)


def flooded(client):
    out, _ = client.communicate(timeout=120)
    if client.returncode:
        raise RuntimeError(f"the flood ended with {client.returncode}: {out}")
    return json.loads(out)


def counted(daemon):
    """Calls that synchronise, allocations outside pools and pageable copies, of the lanes alone."""
    lanes = daemon.control.ask(9, {})["lanes"]
    return lanes["synchronizes"] + lanes["allocations"] + lanes["pageable_copies"], lanes


# ---- jobs alone

def lanes(build, start, row, prompts):
    run = subprocess.run([os.path.join(build, "tests/bench/bench_lanes"), os.path.join(build, "gpu/programs")],
                         capture_output=True, text=True, timeout=240)
    for line in run.stdout.splitlines():
        good, (what, _, figure) = line.startswith("ok "), line[7:].partition(": ")
        figure, _, asked = figure.partition(", asked ")
        row(f"lanes: {what}", figure, asked, good)
    if run.returncode not in (0, 1) or not run.stdout:
        raise RuntimeError(f"bench_lanes ended with {run.returncode}: {run.stderr[-500:]}")


def shared(build, start, row, prompts):
    options = ("--program", module(build, "affine"), *LARGE, "--results-max", "4GiB")
    with running(lambda *own: start("", *own), *options) as daemon:
        flooded(flood(daemon, 1))
        by_memory = flooded(flood(daemon, 4))
        by_socket = flooded(flood(daemon, 3, "--inline", "--bytes", str(4 * MIB), "--open", "12"))
        bad, figures = counted(daemon)
    row("jobs through a daemon, in and out together: shared memory, socket",
        f"{by_memory['both']:.1f} GB/s, {by_socket['both']:.1f} ({by_memory['jobs']} jobs of 64 MiB, {by_socket['jobs']} "
        "of 4)", f"{BOTH:g} GB/s", by_memory["both"] >= BOTH)
    row("synchronising calls, pageable copies, allocations outside pools of these", f"{bad} in {figures['chunks']} chunks",
        "0", bad == 0)


def calibrate(build, name, folder):
    page = os.path.join(folder, f"{name}.html")
    begin = time.monotonic()
    run = subprocess.run([os.path.join(build, "daemon/sluiced"), "--device", "cuda", "--module-dir",
                          os.path.join(build, "gpu"), "--program", module(build, name), "--calibrate", "--calibrate-page",
                          page], capture_output=True, text=True, timeout=150)
    if run.returncode:
        raise RuntimeError(f"--calibrate ended with {run.returncode}: {run.stderr[-500:]}")
    with open(page[:-5] + ".json") as file:
        return json.load(file), run.stdout, time.monotonic() - begin


def chunk(build, start, row, prompts):
    folder = os.environ.get("OUT") or tempfile.mkdtemp()
    first, text, took = calibrate(build, "affine", folder)
    print(text, flush=True)
    again, _, _ = calibrate(build, "affine", folder)
    chosen = first["chosen"]
    here = next(point for point in again["points"] if point["chunk_bytes"] == chosen["chunk_bytes"] and
                point["lanes"] == chosen["lanes"])
    share = here["bytes_per_second"] / again["best"]["bytes_per_second"]
    row("affine at the chunks and lanes that a calibration found, of the best of another full sweep",
        f"{100 * share:.1f} % ({chosen['lanes']} lanes of {chosen['chunk_bytes'] / MIB:g} MiB, "
        f"{here['bytes_per_second'] / 1e9:.1f} GB/s; found in {took:.0f} s)", f"{100 * NEAR:g} %", share >= NEAR)
    machine_rows(again["machine"], row)


def machine_rows(machine, row):
    pinned = [machine[f"pinned_{way}"] / machine[f"pageable_{way}"] for way in ("in", "out")]
    row("pinned copies beside pageable ones", f"in {pinned[0]:.1f} times ({machine['pinned_in'] / 1e9:.1f} GB/s), out "
        f"{pinned[1]:.1f} ({machine['pinned_out'] / 1e9:.1f}); both ways at once {machine['pinned_both'] / 1e9:.1f} GB/s "
        f"({machine['copy_engines']} engines)", "2 times", min(pinned) >= 2)
    times = {name: machine["sequential_us"] / machine[f"{name}_us"] for name in ("blocking", "interleaved", "grouped")}
    row("three stages, enqueued batch by batch, stage by stage",
        f"{times['interleaved']:.2f} and {times['grouped']:.2f} times one stream", "5 % apart",
        abs(times["interleaved"] / times["grouped"] - 1) <= 0.05)
    row("the host waits for each stage, events in its place",
        f"{times['blocking']:.2f} and {times['interleaved']:.2f} times one stream", "more",
        times["interleaved"] > times["blocking"])
    gains = ", ".join(f"{one['streams']}: {one['gain']:.1f}" for one in machine["streams"])
    row("kernels in so many streams, times one's rate", f"nearly linear up to {machine['knee']} ({gains})", "128",
        machine["knee"] >= 128)
    row("kernels in the default streams of four threads, in one", f"{machine['threads_gain']:.2f} and "
        f"{machine['default_stream_gain']:.2f} times one's rate", "3.5 times", machine["threads_gain"] >= 3.5)
    keep, direct = machine["allocators"]["pool_keep"], machine["allocators"]["direct"]
    row("a pool that keeps beside cudaMalloc; another thread's kernels meanwhile",
        f"{100 * (1 - keep['us'] / direct['us']):.1f} % less ({keep['us']:.1f} us, {direct['us']:.1f}); "
        f"{keep['others_times']:.2f} times ({direct['others_times']:.2f} beside cudaMalloc)", "80 % less; 1.1 times",
        keep["us"] <= 0.2 * direct["us"] and keep["others_times"] <= 1.1)
    row("what that pool holds once it is trimmed", f"{machine['trimmed_bytes']} of {machine['kept_bytes']} bytes", "0",
        machine["trimmed_bytes"] == 0 < machine["kept_bytes"])


# ---- beside a model

class Gaps:
    """Between tokens of 64 rows that decode, and GB/s of what a flood copied in beside them."""

    def __init__(self, hist, rate):
        self.p99, self.mean, self.rate = hist.at(0.99) / 1000, hist.total / hist.count / 1000, rate

    def beside(self, quiet):
        return f"{100 * (self.p99 / quiet.p99 - 1):+.1f} % (mean {100 * (self.mean / quiet.mean - 1):+.1f} %, " \
               f"{self.rate:.1f} GB/s)"


def gaps(daemon, prompts, *flooding):
    """Always of the same tokens, for contexts grow."""
    steady, client = daemon.client(prompts(64, 128, DECODING)), None
    until(lambda: daemon.control.stats().gauges["running"] >= 64, 20)
    if flooding:
        client = flood(daemon, 5, *flooding)
    time.sleep(1.5)
    before = daemon.control.stats()
    time.sleep(3)
    after = daemon.control.stats()
    rate = flooded(client)["in"] if client else 0
    if after.gauges["running"] < 64:
        raise RuntimeError("fewer than 64 sequences decode")
    stop_clients(daemon, steady)
    return Gaps(after.since(before, "inter_token_latency"), rate)


def beside_floods(build, start, prompts, *own):
    """Without a flood, beside one at its rate, and beside those as fast as jobs end."""
    options = ("--program", module(build, "affine"), *LARGE[:2], "--job-chunk", "8MiB", *own)  # which others wait for less
    with running(lambda *all_of: start("synthetic:llama-3.1-8b", *all_of), *options) as daemon:
        daemon.run(prompts(64, 128, 8))
        flooded(flood(daemon, 1))
        return (gaps(daemon, prompts), gaps(daemon, prompts, "--rate", str(FLOOD_GB_S)),
                [gaps(daemon, prompts, "--rounds", str(rounds)) for rounds in FLOOD_ROUNDS])


def beside(build, start, row, prompts):
    quiet, loaded, full = beside_floods(build, start, prompts)
    quiet_without, without, full_without = beside_floods(build, start, prompts, "--job-background", "no")
    row(f"64 rows beside affine jobs of {FLOOD_GB_S} GB/s from shared memory: ITL p99",
        f"{loaded.p99:.2f} ms, {quiet.p99:.2f} alone: {loaded.beside(quiet)}; without priority and budget "
        f"{without.p99:.2f} ms: {without.beside(quiet_without)}",
        f"{100 * (GAPS_MORE - 1):.0f} % more at {FLOOD_GB_S} GB/s",
        loaded.p99 <= GAPS_MORE * quiet.p99 and loaded.rate >= 0.95 * FLOOD_GB_S)
    told, visible = [], []
    for rounds, held, free in zip(FLOOD_ROUNDS, full, full_without):
        told.append(f"{rounds}: {held.beside(quiet)}, without {free.beside(quiet_without)}")
        visible.append(free.p99 / quiet_without.p99 >= VISIBLY_MORE * held.p99 / quiet.p99)
    row("64 rows beside affine jobs as fast as they end, by rounds: ITL p99 with priority and budget, and without",
        "; ".join(told), f"{100 * (VISIBLY_MORE - 1):.0f} % more without", any(visible))


# ---- all programs

def save(path, descr, shape, data):
    """A file of NumPy's, version 1."""
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {tuple(shape)}, }}"
    header += " " * (63 - (10 + len(header)) % 64) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + data)


def load(path):
    with open(path, "rb") as file:
        data = file.read()
    return data[10 + struct.unpack("<H", data[8:10])[0]:]


def bf16(values):
    return array.array("H", (struct.unpack("<I", struct.pack("<f", value))[0] >> 16 for value in values)).tobytes()


def of_bf16(data):
    return [struct.unpack("<f", struct.pack("<I", value << 16))[0] for value in array.array("H", data)]


def asked(folder):
    """Of each program: inputs, an output, parameters; the files of inputs lie in the folder."""
    rng = random.Random(3)
    path = lambda name: os.path.join(folder, name + ".npy")
    numbers = lambda count: [rng.uniform(-1, 1) for _ in range(count)]
    save(path("x"), "<f4", (1000003,), array.array("f", numbers(1000003)).tobytes())
    save(path("a"), "<V2", (300, 192), bf16(numbers(300 * 192)))
    save(path("b"), "<V2", (192, 264), bf16(numbers(192 * 264)))
    save(path("rows"), "<V2", (600, 96), bf16(numbers(600 * 96)))
    save(path("weights"), "<V2", (5, 96, 96), bf16(numbers(5 * 96 * 96)))
    save(path("bias"), "<V2", (5, 96), bf16(numbers(5 * 96)))
    save(path("image"), "|u1", (211, 333, 3), rng.randbytes(211 * 333 * 3))
    return {"affine": ({"x": "x"}, "y", {"a": 1.7, "b": -0.3, "rounds": 3}),
            "pipeline": ({"x": "x"}, "y", {"rounds": 17, "a": 0.25, "b": 0.5}),
            "gemm": ({"a": "a", "b": "b"}, "c", {}),
            "layers": ({"x": "rows", "weights": "weights", "bias": "bias"}, "y", {}),
            "relevance": ({"image": "image"}, "budgets", {"query-edge": 1})}


def run_program(build, socket, folder, name, what, out):
    inputs, output, parameters = what
    command = [os.path.join(build, "client/sluice"), "job", name, "--socket", socket, "--output", f"{output}={out}"]
    for key, file in inputs.items():
        command += ["--input", f"{key}={os.path.join(folder, file + '.npy')}"]
    for key, value in parameters.items():
        command += ["--parameter", f"{key}={value}"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if run.returncode:
        raise RuntimeError(f"{name}: {run.stderr[-300:]}")
    return load(out)


def differ(name, one, other):
    """None where they are the same: to the bit, of gemm, whose sums have another order, nearly."""
    if name != "gemm":
        return None if one == other else "other bits"
    one, other = of_bf16(one), of_bf16(other)
    most = max(abs(a - b) for a, b in zip(one, other)) / max(map(abs, other))
    return None if len(one) == len(other) and most <= ROUNDED else f"off by {most:.4f} of the greatest"


def programs(build, start, row, prompts):
    folder = tempfile.mkdtemp()
    socket = os.path.join(folder, "cpu.sock")
    options = lambda device: [word for name in PROGRAMS for word in ("--program", module(build, name, device))]
    beside = subprocess.Popen([os.path.join(build, "daemon/sluiced"), "--device", "cpu", "--module-dir",
                               os.path.join(build, "gpu"), "--socket", socket, "--log-requests", "no",
                               *options("cpu")], stderr=subprocess.DEVNULL)
    try:
        what, off = asked(folder), {}
        with running(lambda *own: start("", *own), *options("cuda")) as daemon:
            until(lambda: os.path.exists(socket), 20)
            for name in PROGRAMS:
                results = [run_program(build, at, folder, name, what[name], os.path.join(folder, f"{name}-{i}.npy"))
                           for i, at in enumerate((daemon.command()[-1], socket))]
                off[name] = differ(name, *results)
            idle(daemon)
    finally:
        beside.terminate()
        beside.wait(60)
    wrong = "; ".join(f"{name} {why}" for name, why in off.items() if why)
    row("`sluice job` of each program, beside the CPU device's results", wrong or f"the same: {', '.join(PROGRAMS)}",
        "the same (gemm nearly)", not wrong)


def many(build, start, row, prompts):
    run = subprocess.run([os.path.join(build, "tests/jobs/test_job_service")], capture_output=True, text=True, timeout=280,
                         env={**os.environ, "CK_RUN_SUITE": "flood", "SLUICE_JOBS": str(JOBS),
                              "SLUICE_JOBS_DEVICE": "cuda", "SPAWN_BUILD": build})
    told = [line for line in run.stdout.splitlines() if " jobs of " in line]
    row("jobs of random lengths, right to the byte of each alone, each ended once",
        told[0] if told else run.stdout[-300:], f"{JOBS:,}", run.returncode == 0 and bool(told))


def timeline(build, start, row, prompts):
    folder = os.environ.get("OUT") or tempfile.mkdtemp()
    with running(lambda *own: start("", *own), "--program", module(build, "affine"), *LARGE) as daemon:
        client = flood(daemon, 4, "--rounds", "1000")
        time.sleep(1)
        run = subprocess.run(daemon.command("timeline", "--chunks", "64", "--svg", os.path.join(folder, "lanes.svg"),
                                            "--trace", os.path.join(folder, "lanes.json")),
                             capture_output=True, text=True, timeout=60)
        print(run.stdout + run.stderr, flush=True)
        flooded(client)
    verdict = [line.strip() for line in run.stdout.splitlines() if "overlapped" in line or "serialized" in line]
    row("`sluice timeline` of a real run", verdict[-1] if verdict else run.stderr[-200:], "overlapped",
        bool(verdict) and "overlapped" in verdict[-1])


ROWS = {
    "job-lanes": lanes,
    "job-shared": shared,
    "job-chunk": chunk,
    "job-beside": beside,
    "job-programs": programs,
    "job-flood": many,
    "job-timeline": timeline,
}
