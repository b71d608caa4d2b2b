"""Rows of gpu.py: latency under load.

`sluice bench` sends through the socket, open loop: Poisson arrivals, 512 to 1,536 tokens in, 64 to 192 out. Every figure
is the median of the seeds' runs. Its own clock starts at the arrival that was drawn, so a generator that sends late is
told as latency.
"""

import json
import os
import random
import statistics
import subprocess
import tempfile
import time

LOAD = ("--random-input-len", "1024", "--random-output-len", "128", "--random-range-ratio", "0.5")
METRICS = ("p50_ttft", "p99_ttft", "p99_itl", "p50_tpot", "p99_tpot")
GATES = {10: (38, 90, 20, 7.1, 9.9), 20: (50, 140, 28, 10.3, 20.6), 28: (100, 240, 45, 22.7, 34.1)}
# vLLM 0.26's own engine, asynchronous, without HTTP, on an H200 (15 s a rate, one after the other, one seed): as GATES.
PEER = {10: (41, 100, 31, 7.1, 9.9), 20: (58, 172, 41, 10.3, 20.6), 28: (113, 269, 56, 22.7, 34.1)}
PEER_SEED, PEER_SECONDS, PEER_WARM = 3, 15, (10, 4)
SATURATED = 31  # requests a second of 1,024 tokens in, 128 out
BESIDE_TTFT_MS, BESIDE_ITL_MS, BESIDE_GAP_MS = 180, 10, 16
TTFT = "ttft_including_client_queue"


def bench(daemon, *args):
    """What `sluice bench` says of a load, all of which has to be answered."""
    handle, path = tempfile.mkstemp()
    os.close(handle)
    try:
        done = subprocess.run(daemon.command("bench", "--ignore-eos", "--json", path, *args), capture_output=True,
                              text=True, timeout=600)
        if done.returncode:
            raise RuntimeError(f"sluice bench ended with {done.returncode}: {done.stderr.strip()[-300:]}")
        with open(path) as file:
            answer = json.load(file)
    finally:
        os.unlink(path)
    if answer["failed"] or answer["unsent"] or not answer["completed"]:
        raise RuntimeError(f"{answer['completed']} completed, {answer['failed']} failed, {answer['unsent']} not sent")
    return answer


def key_of(metric):
    percent, _, name = metric.partition("_")
    name = TTFT if name == "ttft" else name
    return f"median_{name}_ms" if percent == "p50" else f"{percent}_{name}_ms"


def medians(answers):
    return {metric: statistics.median(answer[key_of(metric)] for answer in answers) for metric in METRICS}


def text_of(values):
    ttft50, ttft99, itl99, tpot50, tpot99 = values
    return f"{ttft50:g} / {ttft99:g} ms; {itl99:g} ms; {tpot50:g} / {tpot99:g} ms"


def rate(daemon, row, per_second, seconds, seeds, suffix=""):
    bench(daemon, *LOAD, "--request-rate", str(per_second), "--duration", str(min(seconds, 5)), "--seed", "1000")
    answers = [bench(daemon, *LOAD, "--request-rate", str(per_second), "--duration", str(seconds), "--seed", str(seed))
               for seed in range(1, seeds + 1)]
    values = medians(answers)
    count = sum(answer["completed"] for answer in answers)
    row(f"{per_second} requests/s{suffix}, TTFT p50 / p99; ITL p99; TPOT p50 / p99",
        f"{text_of([round(value, 1) for value in values.values()])} ({count} requests, {len(answers)} x {seconds:g} s)",
        text_of(GATES[per_second]), all(value <= gate for value, gate in zip(values.values(), GATES[per_second])))


def peer_arrivals():
    """What arrived when the peer's figures were taken, by rate: (ms, tokens in, out) of each request. Its generator drew the
    gaps, both lengths and then the prompt's tokens from one source, a warming load first."""
    drawn, loads, tokens = random.Random(PEER_SEED), {}, 0
    for per_second, seconds in (PEER_WARM, *((rate, PEER_SECONDS) for rate in PEER)):
        at, load = 0.0, []
        while True:
            at += drawn.expovariate(per_second)
            for _ in range(tokens):  # of the request before, which began while this one was waited for
                drawn.randrange(1000, 127000)
            tokens = 0
            if at > seconds:
                break
            tokens = drawn.randint(512, 1536)
            load.append((1000 * at, tokens, drawn.randint(64, 192)))
        loads[per_second, seconds] = load
    return {rate: loads[rate, PEER_SECONDS] for rate in PEER}


def beside_peer(daemon, row, per_second):
    load = peer_arrivals()[per_second]
    handle, path = tempfile.mkstemp()
    try:
        with os.fdopen(handle, "w") as file:
            for at, tokens_in, tokens_out in load:
                file.write(json.dumps({"timestamp": at, "input_length": tokens_in, "output_length": tokens_out}) + "\n")
        answer = bench(daemon, "--trace", path)
    finally:
        os.unlink(path)
    values, peer = medians([answer]).values(), PEER[per_second]
    row(f"{per_second} requests/s, what arrived at vLLM, TTFT p50 / p99; ITL p99; TPOT p50 / p99",
        f"{text_of([round(value, 1) for value in values])} ({answer['completed']} requests, {PEER_SECONDS} s)",
        f"vLLM's {text_of(peer)}", all(value <= theirs for value, theirs in zip(values, peer)))


def middle_rate(answer):
    """Requests a second while the load is full: between a fifth and four fifths of the ends."""
    ends = sorted(begin + length for begin, length in zip(answer["start_times"], answer["latencies"]))
    first, last = len(ends) // 5, len(ends) - 1 - len(ends) // 5
    return (last - first) / (ends[last] - ends[first])


def saturated(daemon, row, seconds):
    count = max(1500, round(25 * seconds))  # fewer end almost all at once
    answer = bench(daemon, "--random-input-len", "1024", "--random-output-len", "128", "--request-rate", "inf",
                   "--num-prompts", str(count), "--save-detailed")
    reached = middle_rate(answer)
    row("saturated, 1,024 in, 128 out", f"{reached:.2f} requests/s ({count} at once, the middle three fifths; "
        f"{answer['request_throughput']:.2f} with both ends)", f"{SATURATED} requests/s", reached >= SATURATED, "31.9")


def beside(daemon, row, prompts):
    """64 sequences decode; a prompt of 4,096 tokens arrives every second."""
    count, others = 6, []
    steady = daemon.client(prompts(64, 128, 1500))
    while daemon.control.stats().gauges["running"] < 64:
        if steady.poll() is not None:
            raise RuntimeError("the 64 sequences are gone before all of them ran")
        time.sleep(0.02)
    time.sleep(0.5)
    before = daemon.control.stats()
    for i in range(count):
        others.append(daemon.client(prompts(1, 4096, 1, 50 + i)))
        time.sleep(1)
    after = daemon.control.stats()
    for client in [steady, *others]:
        client.wait()
    gaps, first = after.since(before, "inter_token_latency"), after.since(before, "time_to_first_token")
    p50, p99, longest = (gaps.at(part) / 1000 for part in (0.5, 0.99, 1))
    ttft = first.total / max(first.count, 1) / 1000
    whole = after.gauges["running"] >= 64 and after.ended - before.ended == count
    row("a prompt of 4,096 a second beside 64 rows, its first token; ITL p99; longest gap",
        f"{ttft:.1f} ms (at most {first.at(1) / 1000:.1f}); {p99:.2f} ms (p50 {p50:.2f}); {longest:.1f} ms",
        f"{BESIDE_TTFT_MS} ms; {BESIDE_ITL_MS} ms; {BESIDE_GAP_MS} ms",
        whole and ttft <= BESIDE_TTFT_MS and p99 <= BESIDE_ITL_MS and longest <= BESIDE_GAP_MS)
