#!/usr/bin/env python3
"""What is found again, copied back or computed anew is what it was: tests/gpu/reuse.py BUILD [cuda|cpu]

A synthetic model in F16 (F32 on the CPU device) writes behind prompts with beginnings in common. Beside its texts and their
log-probabilities without a prefix cache stand those of

- cached  prompts that were read before; and behind a beginning that another left
- host    the same where the device has room for few of them: blocks come back from host memory
- copied  all at once where there is room for few: sequences give way, their blocks go to host memory and come back
- anew    the same without host memory: what gave way is computed again

Log-probabilities of the tokens until the first that is another one: within what 16 bits allow, on the CPU device to the last
digit, and there every token. cached and host ask for one prompt after the other, so that a second daemon has the same plan:
equal to the last digit on any device. Prints what it saw; exit 1 if any does not hold. Needs nothing but Python's own library.
"""

import os
import random
import sys

from served import Daemon, check, distance, end_all, failures, keep

BUILD = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else ".build/cuda")
DEVICE = sys.argv[2] if len(sys.argv) > 2 else "cuda"
MODEL, DTYPE = ("synthetic:llama-3.2-1b", ("--dtype", "f16")) if DEVICE == "cuda" else ("synthetic:tiny", ())
# How many beginnings, prompts behind each, their tokens: of the beginning, of its own from and to, and written.
BEGINNINGS, EACH, BEGINNING, OWN, OUT = (6, 4, 512, (70, 101), 96) if DEVICE == "cuda" else (3, 4, 96, (20, 41), 96)
ROOM = 0.25  # of what all need
MEAN_MAX, WORST_MAX, SAME = (0.02, 0.15, 0.5) if DEVICE == "cuda" else (0, 0, 1)


def prompts():
    rng = random.Random(11)

    def draw(count):
        return [rng.randrange(500) for _ in range(count)]
    beginnings = [draw(BEGINNING) for _ in range(BEGINNINGS)]
    return [beginning + draw(rng.randrange(*OWN)) for _ in range(EACH) for beginning in beginnings]


PROMPTS = prompts()
LINES = [{"tokens": tokens, "max_tokens": OUT, "ignore_eos": True, "logprobs": 1} for tokens in PROMPTS]
COUNTERS = ("prompt_tokens_cached_total", "host_blocks_in_total", "preemptions_total")


def answers(daemon, by_one, turns):
    """Texts and their log-probabilities, of the last turn."""
    for _ in range(turns):
        results = [daemon.run("generate", [line])[0] for line in LINES] if by_one else daemon.run("generate", LINES)
    return [(result["tokens"], result["logprobs"]) for result in results]


def served(options, by_one=True, turns=1):
    daemon = Daemon(BUILD, MODEL, *DTYPE, *options, device=DEVICE)
    found = answers(daemon, by_one, turns)
    stats = daemon.stats()
    return found, stats, daemon.stop()


def moved(stats):
    return [stats["counters"][name] for name in COUNTERS]


def in_common(one, other):
    return next((i for i, (a, b) in enumerate(zip(one, other)) if a != b), len(one))


def compare(name, plain, found):
    """Until texts part: a token that is as likely as another one may be either."""
    lengths = [in_common(one[0], other[0]) for one, other in zip(plain, found)]
    mean, most = distance(*([value for (_, values), length in zip(some, lengths) for value in values[:length]]
                            for some in (plain, found)))
    share = sum(lengths) / (OUT * len(LINES))
    check(mean <= MEAN_MAX and most <= WORST_MAX and share >= SAME,
          f"{name}: {sum(lengths)} of {OUT * len(LINES)} tokens until texts part, off by {mean:.6f}, at most {most:.6f}")


def main():
    plain, stats, code = served(("--prefix-cache", "no"))
    check(code == 0 and not any(moved(stats)), f"without a cache: {len(plain)} texts, nothing found")
    token_bytes = stats["models"][0]["formats"]["kv_token_bytes"]
    room = int(ROOM * token_bytes * sum(len(tokens) + OUT for tokens in PROMPTS))
    few = ("--kv-max", str(room))
    ways = {  # options; one after the other; turns; which counters must have moved
        "cached": ((), True, 2, (True, False, False)),
        "host": ((*few, "--host-cache", "2GiB"), True, 2, (True, True, False)),
        "copied": ((*few, "--host-cache", "2GiB"), False, 1, (True, True, True)),
        "anew": ((*few, "--host-cache", "0"), False, 1, (True, False, True)),
    }
    for name, (options, by_one, turns, musts) in ways.items():
        found, stats, code = served(options, by_one, turns)
        counters = moved(stats)
        check(code == 0 and all(count > 0 for count, must in zip(counters, musts) if must),
              f"{name}: " + ", ".join(f"{count} {counter}" for count, counter in zip(counters, COUNTERS)))
        compare(name, plain, found)
        if by_one:
            check(found == served(options, by_one, turns)[0], f"{name}: a second daemon gives the same to the last digit")
    return 1 if failures else 0


try:
    status = main()
finally:
    end_all()
if DEVICE == "cuda":
    keep("reuse", BUILD)
sys.exit(status)
