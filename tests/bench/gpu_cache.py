"""Rows of gpu.py: what is not computed twice.

`conversations` are `sluice bench --workload conversations`, sessions of 10 turns with no time to think, with the prefix
cache and without it. A session's prompts have 27,750 tokens together, so that 256 of them are 7.1 million, which an 8B
reads in 170 s on an H200 where nothing is found: that is the row `conversations-256`; `conversations` has a quarter of
them. `conversations-host` has 256 where the device has room for little, `conversations-host-64` a quarter of all, of
which 14 to 40 decode at once, so that each step is short of rows for the weights that it reads; both count a second run,
since host memory is pinned during the first. `agents` has no gate. `nothing-cached` has prompts of
which nothing is found, with the cache and without it by turns.
"""

import statistics

from gpu_latency import bench

OFF = ("--prefix-cache", "no")
CONVERSATIONS = ("--workload", "conversations", "--think-time", "0", "--num-prompts")
AGENTS = ("--workload", "agents", "--num-prompts", "32")
TIMES, KEPT = 3, 0.7  # beside no cache; of what the device alone does, where the most is in host memory
DEVICE_GIB, HOST_GIB = 24, 80  # of 256 sessions
PAIRS, NOTHING = 3, 0.99
LOADS = {"prefill": (384, 512, 1), "decode": (128, 16, 400), "both": (768, 128, 128)}  # requests, tokens in, out


def cached_prompt(start, row, prompts):
    """A prompt of 8,192 tokens of which 8,064 were read before, and one of which nothing was: each the median of 20."""
    daemon = start()
    daemon.run(prompts(64, 128, 8))

    def ask(lines):
        before = daemon.control.stats()
        for line in lines:
            daemon.client([line]).wait()
        after = daemon.control.stats()
        cached = after.counters["prompt_tokens_cached_total"] - before.counters["prompt_tokens_cached_total"]
        return after.since(before, "time_to_first_token").at(0.5) / 1000, cached // len(lines)
    cold, none = ask([line for i in range(20) for line in prompts(1, 8192, 1, 5000 + i)])
    beginning = prompts(1, 8064, 1, 7000)[0]["tokens"]
    ask([{"tokens": beginning + [1], "max_tokens": 1, "ignore_eos": True}])
    warm, most = ask([dict(line, tokens=beginning + line["tokens"])
                      for i in range(20) for line in prompts(1, 128, 1, 8000 + i)])
    daemon.stop()
    row("first token of 8,192 tokens, 8,064 of them cached", f"{warm:.2f} ms ({most} cached; {cold:.1f} ms with {none})",
        "12 ms", warm <= 12 and most == 8064 and none == 0)


def once(start, prompts, load, *options):
    daemon = start(*options)
    try:
        daemon.run(prompts(256, 128, 8))
        return bench(daemon, *load)
    finally:
        daemon.stop()


def hit_rate(answer):
    return answer["total_cached_tokens"] / answer["total_input_tokens"]


def sessions(start, row, prompts, what, load, least):
    with_it, without = once(start, prompts, load), once(start, prompts, load, *OFF)
    rates = [answer["request_throughput"] for answer in (with_it, without)]
    times, hits = rates[0] / rates[1], hit_rate(with_it)
    row(what, f"{times:.2f} times without the cache ({rates[0]:.1f} and {rates[1]:.1f} requests/s; {hits:.1%} of input tokens "
        "found)", f"{least:g}" if least else "none", times >= least and hits > 0 and not without["total_cached_tokens"])


def conversations(count):
    return lambda start, row, prompts: sessions(
        start, row, prompts, f"{count} conversations of 10 turns", (*CONVERSATIONS, str(count)), TIMES)


def in_host_memory(count):
    sizes = [f"{gib * count // 256}GiB" for gib in (DEVICE_GIB, HOST_GIB)]

    def measure(start, row, prompts):
        load = (*CONVERSATIONS, str(count))
        whole = once(start, prompts, load, "--host-cache", "0")
        daemon = start("--kv-max", sizes[0], "--host-cache", sizes[1])
        try:
            for seed in ("1", "2"):
                before = daemon.control.stats()
                answer = bench(daemon, *load, "--seed", seed)
            after = daemon.control.stats()
        finally:
            daemon.stop()
        kept = answer["request_throughput"] / whole["request_throughput"]
        back = after.counters["host_blocks_in_total"] - before.counters["host_blocks_in_total"]
        row(f"{count} conversations of 10 turns, KV of {sizes[0]} and host memory of {sizes[1]} beside all of the device",
            f"{100 * kept:.0f} % ({answer['request_throughput']:.1f} and {whole['request_throughput']:.1f} requests/s; "
            f"{hit_rate(answer):.1%} and {hit_rate(whole):.1%} of input tokens found, {back:,} blocks came back)",
            f"{100 * KEPT:.0f} %", kept >= KEPT and back > 0)
    return measure


def tokens_a_second(daemon, lines):
    """From the last answer of STATS before any step to the first one after the last."""
    polls = daemon.run(lines, 0.005)
    begin = max(i for i, poll in enumerate(polls) if poll.steps == polls[0].steps)
    end = min(i for i, poll in enumerate(polls) if poll.steps == polls[-1].steps)
    tokens = sum(len(line["tokens"]) + line["max_tokens"] for line in lines)
    return tokens * 1e6 / (polls[end].at_us - polls[begin].at_us)


def nothing_cached(start, row, prompts):
    rates = {name: ([], []) for name in LOADS}
    for pair in range(PAIRS):
        for side, options in enumerate(((), OFF)):
            daemon = start(*options)
            try:
                daemon.run(prompts(256, 128, 8))
                for i, (name, load) in enumerate(LOADS.items()):
                    rates[name][side].append(tokens_a_second(daemon, prompts(*load, 100 + 10 * pair + i)))
            finally:
                daemon.stop()
    shares = {name: statistics.median(a / b for a, b in zip(*sides)) for name, sides in rates.items()}
    row("nothing cached: throughput beside the cache switched off, " + " / ".join(LOADS),
        " / ".join(f"{100 * share:.1f} %" for share in shares.values()) + f" ({PAIRS} pairs by turns; off " +
        " / ".join(f"{statistics.median(sides[1]):,.0f}" for sides in rates.values()) + " tok/s)",
        f"{100 * NOTHING:g} %", min(shares.values()) >= NOTHING)


ROWS = {
    "cached": cached_prompt,
    "conversations": conversations(64),
    "conversations-256": conversations(256),
    "conversations-host": in_host_memory(256),
    "conversations-host-64": in_host_memory(64),
    "agents": lambda start, row, prompts: sessions(start, row, prompts, "32 agents of 20 turns", AGENTS, 0),
    "nothing-cached": nothing_cached,
}
