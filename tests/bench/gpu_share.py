"""Rows of gpu.py: what is shared out where there is not enough of it, and what host memory gives back.

`overload` (copies) and `overload-anew` (no host memory) have four times as many requests waiting as the GPU serves, and
beside them one in twenty of a higher priority, as they come. `host-cache` has prefixes of 8,064 tokens come back from host
memory, `both-ways` has that beside 64 rows that decode and leave their own there, `host-grows` 64 rows that decode while
host memory is pinned for what they leave, beside the same without host memory, `fair` floods of four users, two of
them with three times the weight, and a fifth who asks now and then, `idle` what is left of memory behind a load.
"""

import collections
import contextlib
import functools
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

from gpu_latency import TTFT, bench

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../client/python"))
from sluice_client import Client  # noqa: E402

WARM, LOWS, LOW_IN, LOW_OUT = 256, 2500, 256, 128
PREFIX, HERE, TIMES = 8064, "4GiB", 2  # of eight such prefixes four have room on the device
STEPS_LATE, REST_LEAST = 2.5, 0.97
STEADY_OUT, STEADY_FROM = 5000, 1800  # tokens of each; from when on it is looked at
HOST_TTFT_MS, HOST_RATE, GAPS_MORE = 35, 50e9, 1.10
GROWS_ROWS, GROWS_OUT, GROWS_S, GROWS_MS = 64, 1000, 10, 1
FAIR_S, FAIR_SHARE, QUIET_EVERY_S = 10, 0.05, 0.25
QUIET_STEPS, QUIET_ALL = 2, 3  # behind its turn: the step that runs then, and its own; and one until then
IDLE_HOST, IDLE_S, IDLE_MIB = 4 << 30, 4, 64
Flood = collections.namedtuple("Flood", "name weight prompt output")
# Rows that decode bound what prompts of one token can use: 17 tokens in 16 steps, of 45 ms where prompts of 4,000 are read
# beside them, are 11,700 a second of 512 rows, a third of the device. So a fifth is theirs, or shares could not be had.
FLOODS = (Flood("a", 25, 1, 16), Flood("b", 75, 1, 16), Flood("c", 100, 4000, 4), Flood("d", 300, 4000, 4))


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


def flooded(daemon, lines, settle=5):
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
    blocks = len(beginnings) * PREFIX // daemon.control.model()["block_tokens"]
    for _ in range(6):  # what leaves while host memory is still being pinned is lost
        for tokens in beginnings:
            ask(daemon, tokens + [1])
            host_blocks_rest(daemon)
        if daemon.control.stats().gauges["host_blocks"] >= blocks:
            break
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


def beside_prefixes(start, prompts, *options):
    """64 rows of which each has so many tokens by then, while prompts come behind beginnings that were read before."""
    beginnings = [prompts(1, PREFIX, 1, 7000 + i)[0]["tokens"] for i in range(14)]
    with running(start, *options) as daemon:
        daemon.run(prompts(64, 128, 8))
        first = daemon.control.stats()
        steady = daemon.client(prompts(64, 128, STEADY_OUT))
        until(lambda: daemon.control.stats().gauges["running"] >= 64, 20)
        for tokens in 2 * beginnings:
            ask(daemon, tokens + [1])
        until(lambda: generated(daemon.control.stats(), first) >= 64 * STEADY_FROM, 40)
        gap, before, after = gaps_beside(daemon, prompts, beginnings, 6, 30000)
        whole = steady.poll() is None and after.gauges["running"] >= 64
        rates = {way: copied(daemon, before, after, way) * 1e6 / (after.at_us - before.at_us) for way in ("out", "in")}
        stop_clients(daemon, steady)
    if not whole:
        raise RuntimeError("fewer than 64 sequences decode")
    return gap, rates


def both_ways(start, row, prompts):
    """Beside the same load of which everything stays on the device: what copies cost, and not long prompts."""
    quiet, none = beside_prefixes(start, prompts, "--kv-max", "64GiB", "--host-cache", "0")
    loaded, rates = beside_prefixes(start, prompts, "--kv-max", "27GiB", "--host-cache", "32GiB")
    row("64 rows beside copies both ways: ITL p99", f"{loaded:.2f} ms, {quiet:.2f} without ({rates['out'] / 1e9:.1f} GB/s "
        f"out, {rates['in'] / 1e9:.1f} in)", f"{100 * (GAPS_MORE - 1):.0f} % more",
        loaded <= GAPS_MORE * quiet and min(rates.values()) > 0 and not any(none.values()))


def memory(daemon):
    return daemon.control.ask(9, {})["memory"]


def decode_steps(daemon, seconds):
    """How long 99 of 100 steps took that had nothing but all rows, and the gaps between them: milliseconds."""
    hists, polls = {"step_compute": [], "step_gap": []}, [daemon.control.stats()]
    while polls[-1].at_us - polls[0].at_us < seconds * 1e6:
        time.sleep(0.01)
        polls.append(daemon.control.stats())
    for a, b in zip(polls, polls[1:]):
        if b.steps > a.steps and b.prompt == a.prompt and generated(b, a) == GROWS_ROWS * (b.steps - a.steps):
            for name, some in hists.items():
                some.append(b.since(a, name))
    sums = [functools.reduce(lambda x, y: x.plus(y), some) for some in hists.values()]
    return sum(hist.at(0.99) for hist in sums) / 1000, sums[0].count


def grows_once(start, prompts, host):
    with running(start, "--kv-max", "12GiB", "--sequences-max", str(GROWS_ROWS), "--host-cache", host) as daemon:
        daemon.run(prompts(GROWS_ROWS, 128, 8))
        client = daemon.client(prompts(5 * GROWS_ROWS, 120, GROWS_OUT, 40000))
        first = daemon.control.stats().generated
        until(lambda: daemon.control.stats().generated - first > 1.5 * GROWS_ROWS * GROWS_OUT, 30)
        before = memory(daemon)["host_cache"]
        ms, count = decode_steps(daemon, GROWS_S)
        after = memory(daemon)["host_cache"]
        stop_clients(daemon, client)
    return ms, count, after - before


def host_grows(start, row, prompts):
    quiet, count, _ = grows_once(start, prompts, "0")
    beside, more, grown = grows_once(start, prompts, "32GiB")
    row("64 rows beside host memory that is pinned, p99 of a step and its gap",
        f"{beside:.2f} ms, {quiet:.2f} without ({more} and {count} steps; {grown / 2**30:.1f} GiB in {GROWS_S} s)",
        f"{GROWS_MS} ms more", grown > 0 and beside - quiet <= GROWS_MS)


def idle_memory(start, row, prompts):
    with running(start, "--kv-max", "16GiB", "--kv-idle-release", "1s", "--cache-idle-release", f"{IDLE_S}s",
                 "--host-cache", str(IDLE_HOST)) as daemon:
        daemon.run(prompts(64, 128, 8))
        rests, host = [], 0
        for seed in (1, 2):
            daemon.run(prompts(160, 1500, 32, seed))
            held = memory(daemon)["kv_held"]
            end = time.monotonic() + IDLE_S + 4
            while time.monotonic() < end:
                host = max(host, memory(daemon)["host_cache"])
                time.sleep(0.1)
            rests.append(memory(daemon))
    apart = abs(rests[0]["device_free"] - rests[1]["device_free"]) / 2**20
    row(f"memory {IDLE_S + 4} s behind a load: KV held; two such rests apart; the most in host memory",
        f"{rests[1]['kv_held']} bytes ({held / 2**30:.1f} GiB under load); {apart:.0f} MiB; {host / 2**30:.2f} GiB",
        f"0; {IDLE_MIB} MiB; {IDLE_HOST >> 30} GiB",
        held > 0 and rests[1]["kv_held"] == 0 and apart <= IDLE_MIB and 0 < host <= IDLE_HOST)


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


def quiet_waits(daemon, seconds):
    """Of one who asks now and then for a single token, by the daemon's clock and in milliseconds: until its turn, which is
    the first plan with it, and from there to the token."""
    until_turn, behind, begin = [], [], time.monotonic()
    with Client(daemon.socket, timeout=30) as client:
        while time.monotonic() - begin < seconds:
            sent = time.monotonic()
            answer = client.generate([1, 2, 3, 4], max_tokens=1, text=False, cache=False)
            until_turn.append(answer.queued_us / 1000)
            behind.append((answer.first_token_us - answer.queued_us) / 1000)
            time.sleep(max(0, QUIET_EVERY_S - (time.monotonic() - sent)))
    return until_turn, behind


def fair(start, row, prompts):
    folder, address, apart = tempfile.mkdtemp(), "127.0.0.1:18431", "127.0.0.1:18432"
    names = [kind.name for kind in FLOODS]
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
        until_turn, behind = quiet_waits(daemon, FAIR_S)
        last, after = figures(apart), daemon.control.stats()
        for client in clients:
            client.kill()
            client.wait()
    got = {kind.name: last[kind.name] - first[kind.name] for kind in FLOODS}
    whole, weight = max(sum(got.values()), 1), sum(kind.weight for kind in FLOODS)
    off = max(abs(got[kind.name] / whole / (kind.weight / weight) - 1) for kind in FLOODS)
    step, most = (after.since(before, "step_compute").at(part) / 1000 for part in (0.5, 0.99))
    wait, own = (statistics.median(some) for some in (until_turn, behind))
    row("users who flood with 1 and 4,000 tokens, weights 1 and 3: farthest from its share; a quiet one's token behind its "
        "turn; from its arrival",
        f"{100 * off:.1f} % ({whole:,} tokens); {own:.1f} ms, at most {max(behind):.1f}; {wait + own:.1f} ms, {wait:.1f} of "
        f"them until its turn, at most {max(until_turn):.1f} ({len(behind)}; a step {step:.1f} ms, 99 of 100 at most "
        f"{most:.1f})",
        f"{100 * FAIR_SHARE:g} %; {QUIET_STEPS} steps; {QUIET_ALL} steps",
        off <= FAIR_SHARE and own <= QUIET_STEPS * most and wait + own <= QUIET_ALL * most)


ROWS = {
    "overload": lambda start, row, prompts: overload(start, row, prompts, "copies", "--host-cache", "24GiB"),
    "overload-anew": lambda start, row, prompts: overload(start, row, prompts, "computed anew", "--host-cache", "0"),
    "host-cache": host_returns,
    "both-ways": both_ways,
    "host-grows": host_grows,
    "fair": fair,
    "idle": idle_memory,
}
