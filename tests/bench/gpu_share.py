"""Rows of gpu.py: what is shared out where there is not enough of it, and what host memory gives back.

`overload` (copies) and `overload-anew` (no host memory) have four times as many requests waiting as the GPU serves, and
beside them one in twenty of a higher priority, as they come. `host-cache` has prefixes of 8,064 tokens come back from host
memory, `both-ways` has that beside 64 rows that decode and leave their own there, `fair` floods of four users, two of
them with three times the weight, and a fifth who asks now and then.
"""

import collections
import contextlib
import os
import re
import statistics
import subprocess
import tempfile
import time
import urllib.request

from gpu_latency import TTFT, bench

WARM, LOWS, LOW_IN, LOW_OUT = 256, 2500, 256, 128
PREFIX, HERE, TIMES = 8064, "4GiB", 2  # of eight such prefixes four have room on the device
STEPS_LATE, REST_LEAST = 2.5, 0.97
STEADY_OUT = 5000
HOST_TTFT_MS, HOST_RATE, GAPS_MORE = 35, 50e9, 1.10
FAIR_S, FAIR_SHARE, QUIET_EVERY_S = 10, 0.05, 0.25
Flood = collections.namedtuple("Flood", "name weight prompt output")
FLOODS = (Flood("a", 100, 1, 16), Flood("b", 300, 1, 16), Flood("c", 100, 4000, 4), Flood("d", 300, 4000, 4))


@contextlib.contextmanager
def running(start, *options):
    """Its end is the daemon's, whatever happens: others want the GPU."""
    daemon = start(*options)
    try:
        yield daemon
    finally:
        daemon.stop()


def until(what, seconds):
    end = time.monotonic() + seconds
    while not what():
        if time.monotonic() > end:
            raise RuntimeError("waited too long")
        time.sleep(0.05)


def idle(daemon):
    def nothing_runs():
        gauges = daemon.control.stats().gauges
        return gauges["running"] + gauges["waiting"] + gauges["starting"] == 0
    until(nothing_runs, 20)


def stop_clients(daemon, *clients):
    for client in clients:
        client.terminate()
        client.wait()
    idle(daemon)


def per_second(before, after, count):
    return count(after, before) * 1e6 / (after.at_us - before.at_us)


def generated(after, before):
    return after.generated - before.generated


def flooded(daemon, lines, settle=3):
    """A load of which some always wait."""
    client = daemon.client(lines)
    until(lambda: daemon.control.stats().gauges["waiting"] > 0, 20)
    time.sleep(settle)
    return client, daemon.control.stats()


def beside_load(daemon, prompts):
    """Tokens a second without the high priority and with it; its answers alone and there; the figures there."""
    client, before = flooded(daemon, prompts(LOWS, LOW_IN, LOW_OUT, 2))
    time.sleep(6)
    after = daemon.control.stats()
    alone = per_second(before, after, generated)
    ends = per_second(before, after, lambda a, b: a.ended - b.ended)
    stop_clients(daemon, client)

    def high(seconds):  # a twentieth of four times what is served
        return bench(daemon, "--priority-mix", "1:1", "--request-rate", f"{ends / 5:.2f}", "--duration", str(seconds),
                     "--random-input-len", str(LOW_IN), "--random-output-len", str(LOW_OUT))
    unloaded = high(6)
    client, before = flooded(daemon, prompts(LOWS, LOW_IN, LOW_OUT, 3))
    loaded = high(12)
    after = daemon.control.stats()
    if after.gauges["waiting"] == 0:
        raise RuntimeError("the load came to its end before the high priority did")
    stop_clients(daemon, client)
    return alone, per_second(before, after, generated), unloaded, loaded, before, after


def overload(start, row, prompts, what, *options):
    with running(start, "--priority-max", "1", "--kv-max", "8GiB", *options) as daemon:
        daemon.run(prompts(WARM, 128, 8))
        alone, rate, quiet, answer, before, after = beside_load(daemon, prompts)
    step = after.since(before, "step_compute").at(0.5) / 1000
    loaded, unloaded = answer[f"p99_{TTFT}_ms"], quiet[f"p99_{TTFT}_ms"]
    late, rest = (loaded - unloaded) / step, rate / alone
    gave = after.counters["preemptions_priority_total"] - before.counters["preemptions_priority_total"]
    row(f"overload by 4, one in 20 of high priority, {what}: its p99 of the first token beyond the unloaded; all tokens",
        f"{late:.2f} steps ({loaded:.1f} ms, {unloaded:.1f} unloaded, a step {step:.2f} ms; {answer['completed']} of them, "
        f"{gave} gave way); {100 * rest:.1f} % of {alone:,.0f} tok/s", f"{STEPS_LATE} steps; {100 * REST_LEAST:g} %",
        gave > 0 and late <= STEPS_LATE and rest >= REST_LEAST)


def ask(daemon, tokens):
    daemon.client([{"tokens": tokens, "max_tokens": 1, "ignore_eos": True}]).wait()


def host_blocks_rest(daemon):
    """Until nothing more goes to host memory."""
    seen, last = -1, daemon.control.stats().gauges["host_blocks"]
    begin = time.monotonic()
    while seen != last and time.monotonic() - begin < 20:
        time.sleep(0.5)
        seen, last = last, daemon.control.stats().gauges["host_blocks"]


def copied(daemon, before, after, way):
    blocks = after.counters[f"host_blocks_{way}_total"] - before.counters[f"host_blocks_{way}_total"]
    model = daemon.control.model()
    return blocks * model["block_tokens"] * model["kv_token_bytes"]


def fetched(daemon, prompts):
    """How often, and the figures before and after: each time a prefix that others have pushed out."""
    beginnings = [prompts(1, PREFIX, 1, 7000 + i)[0]["tokens"] for i in range(8)]
    for _ in range(2):  # what leaves while host memory is still being pinned is lost
        for tokens in beginnings:
            ask(daemon, tokens + [1])
        host_blocks_rest(daemon)
    before = daemon.control.stats()
    for turn in range(TIMES):
        for i, tokens in enumerate(beginnings):
            ask(daemon, tokens + prompts(1, 128, 1, 8000 + 100 * turn + i)[0]["tokens"])
    return TIMES * len(beginnings), before, daemon.control.stats()


def host_returns(start, row, prompts):
    with running(start, "--kv-max", HERE, "--host-cache", "16GiB") as daemon:
        daemon.run(prompts(64, 128, 8))
        count, before, after = fetched(daemon, prompts)
        size, token = copied(daemon, before, after, "in"), daemon.control.model()["kv_token_bytes"]
    cached = after.counters["prompt_tokens_cached_total"] - before.counters["prompt_tokens_cached_total"]
    first = after.since(before, "time_to_first_token").at(0.5) / 1000
    copies = after.since(before, "host_in")
    rate, back = size * 1e6 / max(copies.total, 1), size / (count * PREFIX * token)
    row("first token of 8,192 tokens, 8,064 of them in host memory; copies",
        f"{first:.1f} ms ({cached // count} cached, {100 * back:.0f} % of them copied, in {copies.count} calls); "
        f"{rate / 1e9:.1f} GB/s", f"{HOST_TTFT_MS} ms; {HOST_RATE / 1e9:g} GB/s",
        first <= HOST_TTFT_MS and rate >= HOST_RATE and back > 0.9 and cached >= 0.95 * count * PREFIX)


def gaps_beside(daemon, prompts, beginnings, seconds, seed):
    """The gaps of those that decode, while short prompts come, each behind one of the beginnings."""
    clients, before, begin = [], daemon.control.stats(), time.monotonic()
    while time.monotonic() - begin < seconds:
        tokens = beginnings[len(clients) % len(beginnings)] + prompts(1, 64, 1, seed + len(clients))[0]["tokens"]
        clients.append(daemon.client([{"tokens": tokens, "max_tokens": 1, "ignore_eos": True}]))
        time.sleep(0.15)
    after = daemon.control.stats()
    for client in clients:
        client.wait()
    return after.since(before, "inter_token_latency").at(0.99) / 1000, before, after


def both_ways(start, row, prompts):
    beginnings = [prompts(1, PREFIX, 1, 7000 + i)[0]["tokens"] for i in range(14)]
    with running(start, "--kv-max", "32GiB", "--host-cache", "32GiB") as daemon:
        daemon.run(prompts(64, 128, 8))
        steady = daemon.client(prompts(64, 128, STEADY_OUT))
        until(lambda: daemon.control.stats().gauges["running"] >= 64, 20)
        time.sleep(0.5)
        quiet, *_ = gaps_beside(daemon, prompts, [[]], 5, 20000)
        for tokens in 2 * beginnings:
            ask(daemon, tokens + [1])
        time.sleep(1)
        loaded, before, after = gaps_beside(daemon, prompts, beginnings, 6, 30000)
        rates = {way: copied(daemon, before, after, way) * 1e6 / (after.at_us - before.at_us) for way in ("out", "in")}
        whole = steady.poll() is None and after.gauges["running"] >= 64
        stop_clients(daemon, steady)
    row("64 rows beside copies both ways: ITL p99", f"{loaded:.2f} ms, {quiet:.2f} without ({rates['out'] / 1e9:.1f} GB/s "
        f"out, {rates['in'] / 1e9:.1f} in)", f"{100 * (GAPS_MORE - 1):.0f} % more",
        whole and loaded <= GAPS_MORE * quiet and min(rates.values()) > 0)


# ---- users

def figures(address):
    """Tokens by user's name: prompts that were sent to the device, and what was generated."""
    sums = collections.Counter()
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
        for name, count in re.findall(r'^sluice_user_(?:prompt|generation)_tokens_total\{user="key/(\w+)"\} (\d+)',
                                      answer.read().decode(), re.MULTILINE):
            sums[name] += int(count)
    return sums


def flood(daemon, address, key, kind, seconds):
    long = kind.prompt > 1
    vocabulary = daemon.control.model()["vocabulary"] - 256
    return subprocess.Popen(
        [daemon.command()[0], "bench", "--openai", f"http://{address}", "--api-key-file", key, "--ignore-eos", "--no-cache",
         "--vocabulary", str(vocabulary), "--random-input-len", str(kind.prompt), "--random-output-len", str(kind.output),
         "--duration", str(seconds),
         "--max-concurrency", "40" if long else "400", "--request-rate", "60" if long else "3000"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def quiet_waits(address, seconds):
    """Of one who asks now and then for a single token: how long each took, in milliseconds."""
    waits, begin = [], time.monotonic()
    while time.monotonic() - begin < seconds:
        sent = time.monotonic()
        request = urllib.request.Request(
            f"http://{address}/v1/completions", b'{"prompt": [1, 2, 3, 4], "max_tokens": 1, "cache": false}',
            {"Content-Type": "application/json", "Authorization": "Bearer key-of-quiet"})
        urllib.request.urlopen(request, timeout=30).read()
        waits.append((time.monotonic() - sent) * 1000)
        time.sleep(max(0, QUIET_EVERY_S - (time.monotonic() - sent)))
    return waits


def fair(start, row, prompts):
    folder, address, apart = tempfile.mkdtemp(), "127.0.0.1:18431", "127.0.0.1:18432"
    names = [kind.name for kind in FLOODS] + ["quiet"]
    keys = {name: os.path.join(folder, name) for name in [*names, "all"]}
    for name, path in keys.items():
        with open(path, "w") as file:
            file.writelines(f"{one} key-of-{one}\n" for one in (names if name == "all" else [name]))
    weights = ",".join(f"key/{kind.name}:weight={kind.weight}" for kind in FLOODS)
    with running(start, "--http", address, "--metrics", apart, "--api-key-file", keys["all"], "--users", weights) as daemon:
        daemon.run(prompts(WARM, 128, 8))
        clients = [flood(daemon, address, keys[kind.name], kind, FAIR_S + 12) for kind in FLOODS]
        time.sleep(6)
        first, before = figures(apart), daemon.control.stats()
        waits = quiet_waits(address, FAIR_S)
        last, after = figures(apart), daemon.control.stats()
        for client in clients:
            client.kill()
            client.wait()
    got = {kind.name: last[kind.name] - first[kind.name] for kind in FLOODS}
    whole, weight = max(sum(got.values()), 1), sum(kind.weight for kind in FLOODS)
    off = max(abs(got[kind.name] / whole / (kind.weight / weight) - 1) for kind in FLOODS)
    step = after.since(before, "step_compute").at(0.5) / 1000
    row("users who flood with 1 and 4,000 tokens, weights 1 and 3: farthest from its share; a quiet one's token",
        f"{100 * off:.1f} % ({whole:,} tokens); {statistics.median(waits):.1f} ms, at most {max(waits):.1f} ({len(waits)}; a "
        f"step {step:.1f} ms)", f"{100 * FAIR_SHARE:g} %", off <= FAIR_SHARE)


ROWS = {
    "overload": lambda start, row, prompts: overload(start, row, prompts, "copies", "--host-cache", "24GiB"),
    "overload-anew": lambda start, row, prompts: overload(start, row, prompts, "computed anew", "--host-cache", "0"),
    "host-cache": host_returns,
    "both-ways": both_ways,
    "fair": fair,
}
