"""Rows of gpu.py: what is not computed twice.

`conversations` are `sluice bench --workload conversations`, 256 sessions of 10 turns with no time to think: with the
prefix cache and without it by turns, in pairs, of which the medians count. `agents` likewise, without a gate.
"""

import statistics

from gpu_latency import bench

OFF = ("--prefix-cache", "no")
PAIRS = 3
CONVERSATIONS = ("--workload", "conversations", "--num-prompts", "256", "--think-time", "0")
AGENTS = ("--workload", "agents", "--num-prompts", "32")


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
    pairs = [(once(start, prompts, load), once(start, prompts, load, *OFF)) for _ in range(PAIRS)]
    rates = [statistics.median(answer["request_throughput"] for answer in side) for side in zip(*pairs)]
    hits = statistics.median(hit_rate(answer) for answer, _ in pairs)
    found = [answer["total_cached_tokens"] for _, answer in pairs]
    times = rates[0] / rates[1]
    row(what, f"{times:.2f} times without the cache ({rates[0]:.1f} and {rates[1]:.1f} requests/s; {hits:.1%} of input tokens "
        "found)", f"{least:g}" if least else "none", times >= least and hits > 0 and not any(found))


ROWS = {
    "cached": cached_prompt,
    "conversations": lambda start, row, prompts: sessions(
        start, row, prompts, "256 conversations of 10 turns", CONVERSATIONS, 3),
    "agents": lambda start, row, prompts: sessions(start, row, prompts, "32 agents of 20 turns", AGENTS, 0),
}
