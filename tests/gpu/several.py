#!/usr/bin/env python3
"""What several GPUs give over one: tests/gpu/several.py BUILD [PART...]

- sums   what a sum over 2 GPUs and over all of them costs, ours and NCCL's (tests/bench/sums.c)
- one    synthetic:llama-3.1-8b on one GPU: one sequence; 512 requests of 128 tokens in and 128 out at once; and, under
         four times as many, the rate between a quarter and three quarters of the tokens: the load is full then
- tp     the same shared by 2, 4 and 8 GPUs, as far as there are so many: one sequence, 512 requests, log-probabilities
- dp     so many replicas, 512 requests for each
- pp     so many stages, 2,048 requests for each: the rate under full load, and from --profile-steps how busy each
         stage is and how long copies from stage to stage ran beside compute. The trace goes to $OUT where that is set
- large  synthetic:llama-3.1-70b shared by 4 GPUs (2, where there are no more): one sequence; on 4, 256 requests, by
         default and with steps that may read whole prompts beside decode rows (--itl-target)
- eight  the same shape in FP8, with KV in FP8, shared by 2 GPUs: one sequence, 256 requests

All of them when none is named; tp:4 is that part over four GPUs alone. Every figure stands beside what one GPU gave in
the same run. Prints what it saw; exit 1 if a request fails or log-probabilities are off, 77 where there are not two
GPUs. Needs nothing but Python's own library, and libnccl.so.2 where the loader finds it.
"""

import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from served import Daemon, await_true, check, distance, end_all, failures, gpus, keep, record, seen

BUILD = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else ".build/cuda")
MODEL = "synthetic:llama-3.1-8b"
WAVE = 512  # requests for each GPU
WAVES = 4
EIGHT_LEAST = 95  # tok/s of one sequence
PROFILED = 1000  # steps of a pipeline
OUT = os.environ.get("OUT") or tempfile.mkdtemp()
alone = {}  # what one GPU gave


def note(text):
    print("        " + text, flush=True)


def tell(what, figure):
    """One for the record, too."""
    note(f"{what}: {figure}")
    seen.append(record.row(what, figure))


def beside(name, what, value):
    if name == "one":
        alone[what] = value
    ratio = f", {value / alone[what]:.3f} times one GPU" if name != "one" and what in alone else ""
    return f"{value:.0f} tok/s{ratio}"


def daemon_on(model, *options):
    daemon = Daemon(BUILD, model, *options, patience_s=90)
    note(f"{model} {' '.join(options)}: ready after {daemon.ready_s:.2f} s")
    return daemon


def over(count, way):
    ways = {"dp": 1, "tp": 1, "pp": 1, way: count}
    return ("--gpus", ",".join(map(str, range(count))), *(f"--{name}={value}" for name, value in ways.items()))


def ended(daemon):
    check(daemon.stop() == 0, "the daemon ends by itself")


# ---- loads -----------------------------------------------------------------------------------------------------


def single(daemon, runs):
    """Tokens per second of one sequence behind its first token, by the daemon's own clock: the median of so many runs,
    behind one that captures the graphs. (A client's wait is too coarse: Python's looks every 50 ms.)"""
    rng = random.Random(11)
    rates = []
    for _ in range(1 + runs):
        line = {"tokens": [rng.randrange(128000) for _ in range(120)], "max_tokens": 136, "ignore_eos": True}
        timings = daemon.run("generate", [line])[0]["timings"]
        rates.append(135e6 / (timings["total_us"] - timings["first_token_us"]))
    return statistics.median(rates[1:])


def burst(daemon, count):
    """Output tokens per second of requests that all come at once, after as many that count nowhere."""
    path = os.path.join(daemon.folder, "bench.json")
    for _ in range(2):
        done = daemon.ask("bench", "--num-prompts", str(count), "--random-input-len", "128", "--random-output-len",
                          "128", "--ignore-eos", "--json", path)
        if done.returncode:
            raise RuntimeError(done.stderr[-500:] + daemon.log()[-1000:])
    with open(path) as file:
        figures = json.load(file)
    check(figures["completed"] == count and figures["total_output_tokens"] == 128 * count, f"{count} requests end")
    return figures["output_throughput"]


def generated(daemon):
    return time.monotonic(), daemon.stats()["counters"]["generated_tokens_total"]


def time_of(seen, tokens):
    """When so many had been made, between two that were seen."""
    for (t0, n0), (t1, n1) in zip(seen, seen[1:]):
        if n0 <= tokens <= n1 and n1 > n0:
            return t0 + (t1 - t0) * (tokens - n0) / (n1 - n0)
    raise RuntimeError("never so many tokens")


def full_load(daemon, count):
    """Output tokens per second of the middle half of so many requests that come at once, and of all of them."""
    rng = random.Random(7)
    lines = [{"tokens": [rng.randrange(128000) for _ in range(128)], "max_tokens": 128, "ignore_eos": True}
             for _ in range(count)]
    daemon.run("generate", lines[:256])
    seen = [generated(daemon)]
    batch = daemon.begin("generate", lines)
    while not batch.ended():
        time.sleep(0.05)
        seen.append(generated(daemon))
    results = batch.results()
    check(len(results) == count and all(len(r["tokens"]) == 128 for r in results), f"{count} requests end")
    first, all_of_them = seen[0][1], 128 * count
    begin, quarter, three, end = (time_of(seen, first + share * all_of_them) for share in (0.01, 0.25, 0.75, 0.99))
    return all_of_them / 2 / (three - quarter), all_of_them * 0.98 / (end - begin)


def tell_single(name, daemon):
    tell(f"{name}: one sequence", beside(name, "single", single(daemon, 5)))


def tell_burst(name, daemon, count):
    tell(f"{name}: {count} of 128 in, 128 out at once", beside(name, "burst", burst(daemon, count)))


def tell_full_load(name, daemon, count):
    middle, whole = full_load(daemon, count)
    tell(f"{name}: {count} of 128 in, 128 out, the middle half of the tokens", beside(name, "full", middle))
    tell(f"{name}: all but the first and last hundredth", beside(name, "whole", whole))


# ---- the trace of a pipeline -----------------------------------------------------------------------------------


def spans(path):
    """By device and lane: begin and end in microseconds, and what the plan held, of every step in the trace."""
    with open(path) as file:
        events = json.load(file)["traceEvents"]
    lanes = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e.get("name") == "thread_name"}
    found = {}
    for e in events:
        if e["ph"] == "X":
            found.setdefault((e["pid"], lanes[e["pid"], e["tid"]]), []).append((e["ts"], e["ts"] + e["dur"], e["args"]))
    return found


def between(steps, first, last):
    return [step for step in steps if first <= step[2]["step"] < last]


def overlap(copy, *lanes):
    """For how long a copy had a step on every one of the lanes beside it."""
    pieces = [(copy[0], copy[1])]
    for lane in lanes:
        near = [step for step in lane if step[0] < copy[1] and step[1] > copy[0]]
        pieces = [(max(begin, step[0]), min(end, step[1])) for begin, end in pieces for step in near
                  if step[0] < end and step[1] > begin]
    return sum(end - begin for begin, end in pieces)


def tell_stage(stage, steps):
    gaps = [max(0, b[0] - a[1]) for a, b in zip(steps, steps[1:])]
    lengths = [end - begin for begin, end, _ in steps]
    busy = sum(lengths) / (steps[-1][1] - steps[0][0])
    note(f"stage {stage}: compute busy {100 * busy:.1f} %; a step {statistics.mean(lengths):.0f} us on average "
         f"({min(lengths):.0f} to {max(lengths):.0f}), of {statistics.mean(s[2]['rows'] for s in steps):.0f} rows and "
         f"{statistics.mean(s[2]['tokens'] for s in steps):.0f} tokens; gaps {statistics.median(gaps):.0f} us in the "
         f"median, {statistics.mean(gaps):.0f} on average, {max(gaps):.0f} at most")


def tell_copies(found, stage, first, last):
    """Which copies ran beside compute of both stages for most of their time. Clocks of two devices are a tenth of a
    millisecond apart in a long trace: what is taken before it has come shows by how much."""
    copies = between(found[stage, "peer"], first, last)
    own, other = found[stage, "compute"], found[stage + 1, "compute"]
    taken = {s["step"]: begin for begin, _, s in other}
    lengths = [end - begin for begin, end, _ in copies]
    both = [overlap(copy, own, other) for copy in copies]
    most = [copy for copy, part, length in zip(copies, both, lengths) if part > length / 2]
    note(f"{len(copies)} copies from stage {stage} to {stage + 1}, {statistics.mean(lengths):.1f} us each: of "
         f"{sum(lengths):.0f} us, {sum(overlap(copy, own) for copy in copies):.0f} beside compute of stage {stage}, "
         f"{sum(overlap(copy, other) for copy in copies):.0f} beside compute of stage {stage + 1}, {sum(both):.0f} beside "
         f"both: {len(most)} copies for most of their time; taken "
         f"{min(taken[s['step']] - end for _, end, s in copies):.0f} us after a copy's end at the soonest")
    return most


def tell_excerpt(copy, *lanes):
    """A copy and what ran beside it, in microseconds from its begin."""
    note(f"    the copy of step {copy[2]['step']}: 0 to {copy[1] - copy[0]:.0f} us" + "".join(
        f"; step {s['step']}: {begin - copy[0]:.0f} to {end - copy[0]:.0f}" for lane in lanes for begin, end, s in lane
        if begin < copy[1] and end > copy[0]))


def tell_trace(path, stages, scores):
    """What is scored needs no token of a step before, so all stages work at once, and copies run beside them all."""
    found = spans(path)
    for name, first, last in (("scoring", scores // 4, scores * 3 // 4), ("full load", PROFILED // 2, PROFILED)):
        note(f"{name}, steps {first} to {last}:")
        for stage in range(stages):
            tell_stage(stage, between(found[stage, "compute"], first, last))
        for stage in range(stages - 1):
            most = tell_copies(found, stage, first, last)
            if name == "scoring":
                check(most, "copies run beside compute of both")
                for copy in most[:2]:
                    tell_excerpt(copy, found[stage, "compute"], found[stage + 1, "compute"])


# ---- parts -----------------------------------------------------------------------------------------------------


def sums(_):
    done = subprocess.run([os.path.join(BUILD, "tests/bench/bench_sums")], stdout=subprocess.PIPE, text=True, timeout=60)
    print(done.stdout, end="", flush=True)
    seen.extend(record.row_of(line) for line in done.stdout.splitlines() if line.strip())
    check(done.returncode == 0, "sums over GPUs are right")


def scored(name, daemon):
    rng = random.Random(3)
    logprobs = daemon.logprobs([[rng.randrange(128000) for _ in range(n)] for n in (100, 150)])
    if name == "one":
        alone["logprobs"] = logprobs
    elif "logprobs" in alone:
        mean, most = distance(alone["logprobs"], logprobs)
        check(mean <= 0.05 and most <= 0.35, # what roundings of bf16 do
              f"{name}: {len(logprobs)} log-probabilities off by {mean:.5f}, at most {most:.5f}")


def one(_):
    daemon = daemon_on(MODEL, "--gpus", "0")
    tell_single("one", daemon)
    tell_burst("one", daemon, WAVE)
    tell_full_load("one", daemon, WAVES * WAVE)
    scored("one", daemon)
    ended(daemon)


def tp(counts):
    for count in counts:
        daemon = daemon_on(MODEL, *over(count, "tp"))
        tell_single(f"tp {count}", daemon)
        tell_burst(f"tp {count}", daemon, WAVE)
        scored(f"tp {count}", daemon)
        ended(daemon)


def dp(counts):
    for count in counts:
        daemon = daemon_on(MODEL, *over(count, "dp"))
        tell_burst(f"dp {count}", daemon, count * WAVE)
        ended(daemon)


def pp(counts):
    for count in counts:
        trace = os.path.join(OUT, f"pipeline{count}.json")
        daemon = daemon_on(MODEL, *over(count, "pp"), "--profile-steps", str(PROFILED), trace)
        scored(f"pp {count}", daemon)
        rng = random.Random(5)
        daemon.logprobs([[rng.randrange(128000) for _ in range(512)] for _ in range(WAVE // 2)])
        scores = daemon.stats()["counters"]["steps_total"]
        tell_full_load(f"pp {count}", daemon, count * WAVES * WAVE)
        await_true(lambda: "is written" in daemon.log(), 20)
        ended(daemon)
        tell_trace(trace, count, scores)


def large(counts):
    count = max(c for c in counts if c <= 4)
    with tempfile.TemporaryDirectory() as cache:
        options = ("synthetic:llama-3.1-70b", *over(count, "tp"), "--cache-dir", cache)
        daemon = daemon_on(*options)
        tell(f"70b on {count}: one sequence", f"{single(daemon, 3):.1f} tok/s")
        if count > 2:
            tell_large(count, "by default", daemon)
        ended(daemon)
        if count > 2:  # throughput before latency
            daemon = daemon_on(*options, "--itl-target", "1000ms")
            tell_large(count, "with --itl-target 1000ms", daemon)
            ended(daemon)


def eight(_):
    with tempfile.TemporaryDirectory() as cache:
        daemon = daemon_on("synthetic:llama-3.1-70b:fp8", *over(2, "tp"), "--kv-dtype", "fp8", "--cache-dir", cache)
        reached = single(daemon, 3)
        seen.append(record.row("70b in FP8 on 2: one sequence", f"{reached:.1f} tok/s", f"{EIGHT_LEAST} tok/s",
                               reached >= EIGHT_LEAST))
        note(f"70b in FP8 on 2: one sequence: {reached:.1f} tok/s (asked {EIGHT_LEAST})")
        tell_large(2, "in FP8", daemon)
        ended(daemon)


def tell_large(count, how, daemon):
    tell(f"70b on {count}: 256 of 128 in, 128 out at once, {how}", f"{burst(daemon, 256):.0f} tok/s")


def main():
    counts = [count for count in (2, 4, 8) if count <= gpus()]
    if not counts:
        print(f"SKIPPED: there are {gpus()} GPUs")
        return 77
    if shutil.which("nvidia-smi"):
        subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], check=False)
    parts = {part.__name__: part for part in (sums, one, tp, dp, pp, large, eight)}
    for name in sys.argv[2:] or parts:
        part, _, count = name.partition(":")
        try:
            parts[part]([int(count)] if count else counts)
        except Exception as error:  # the others are worth their time all the same
            check(False, f"{name}: {error!r}")
        finally:
            end_all()
            keep(f"several-{part}", BUILD)
    return 1 if failures else 0


sys.exit(main())
