#!/usr/bin/env python3
"""compute-sanitizer's four tools over the kernel tests and a served batch: tests/gpu/sanitize.py BUILD [WHAT...]

- served    a daemon with synthetic:tiny: 24 mixed requests, 4 texts scored and 4 embedded
- kernels   test_kernels_cuda, and bench_kernels check in both 16-bit dtypes (racecheck: in BF16)
- memcheck, initcheck, synccheck, racecheck
            that tool alone, over both or over the one that is named beside it

All of them when none is named, side by side. Prints a line for each tool and program; where a tool said anything but
that it found nothing, its first reports, too. Exit 1 if there is such a one, 2 where the tools are not there.
Needs nothing but Python's own library, and compute-sanitizer (tests/gpu/sanitizer.py).
"""

import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import sanitizer
from served import Daemon, NotReady, below, check, end_all, failures, kill, running, sluiced_below

BUILD = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else ".build/cuda")
KERNELS = ("tests/gpu/kernels/test_kernels_cuda", "tests/bench/bench_kernels check",
           "tests/bench/bench_kernels f16 check")
# racecheck's work is the host's, of several cores for minutes: the checks are made in shares, and in one dtype, for
# what they run in the other is the same code, compiled for it.
KERNELS_RACECHECK = (KERNELS[0], *(f"tests/bench/bench_kernels check {i} 4" for i in range(4)))
LIMIT_S = 240  # of a program under a tool
AT_ONCE = 10
# That a stream may have before it. With no limit racecheck, which takes every access to shared memory to the host and
# is slower there than the kernels are, fills the host's memory (50 GiB after 48 s of a served batch).
LAUNCHES = ("--force-synchronization-limit", "32")
stopping = threading.Event()


def tell(tool, name, well, what, output, rest, began):
    """One line of what a tool said of a program, and more where it was not well."""
    well = well and sanitizer.clean(output)
    text = [f"{tool}, {name}: {what}, {sanitizer.summary(output)} ({time.monotonic() - began:.0f} s)"]
    if not well:
        fd, path = tempfile.mkstemp(prefix=f"{tool}-", suffix=".log")
        with os.fdopen(fd, "w") as file:
            file.write(output + rest)
        text += [*sanitizer.kinds(output), "the first of it; " + path + " has all:", *sanitizer.head(output)]
        text += ["the last of it:", *(output + rest).splitlines()[-8:]]
    check(well, "\n        ".join(text))


# ---- a served batch -------------------------------------------------------------------------------------------


RESULTS = 24 + 4 * 2 + 4 + 4  # four requests ask for three answers


def batches():
    """What is asked, the same under every tool."""
    rng = random.Random(5)
    choices = [{}, {"temperature": 0.8, "top_k": 20}, {"temperature": 1.0, "top_p": 0.9, "min_p": 0.02},
               {"repetition_penalty": 1.2, "presence_penalty": 0.3, "frequency_penalty": 0.1},
               {"logprobs": 5}, {"temperature": 0.7, "n": 3, "seed": 4}]
    mixed = [{"tokens": [rng.randrange(512) for _ in range(rng.choice((1, 7, 33, 64, 190, 300)))],
              "max_tokens": rng.randint(4, 24), "ignore_eos": True, **choices[i % len(choices)]} for i in range(24)]
    texts = [{"tokens": [rng.randrange(512) for _ in range(n)]} for n in (2, 40, 130, 280)]
    return ("generate", mixed), ("score", texts), ("embed", texts)


def serve(tool):
    began, came, complaints = time.monotonic(), 0, ""
    try:
        daemon = Daemon(BUILD, "synthetic:tiny", "--step-timeout", "120s", patience_s=LIMIT_S,
                        modules=sanitizer.modules(BUILD, tool), wrap=sanitizer.command(tool, *LAUNCHES))
        for asked, lines in batches():
            batch = daemon.begin(asked, lines)
            came += len(batch.results(LIMIT_S))
            complaints += batch.errors()
        ended = f"exit code {daemon.stop(sluiced_below(daemon.process.pid))}"
    except NotReady as error:
        daemon, ended = error.daemon, "not ready"
    except subprocess.TimeoutExpired as error:
        ended = f"not through: {error}"
        kill(daemon.process)
    tell(tool, "a served batch", ended == "exit code 0" and came == RESULTS, f"{came} of {RESULTS} results, {ended}",
         daemon.out(), complaints + daemon.log(), began)


# ---- programs of kernel tests ---------------------------------------------------------------------------------


def run_kernels(tool, name):
    began = time.monotonic()
    program, *args = name.split()
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen([*sanitizer.command(tool, *LAUNCHES), os.path.join(BUILD, program), *args],
                                   stdout=output, stderr=subprocess.STDOUT, env={**os.environ, "DRAW_STEPS": "1"})
        running.append(process)
        try:
            ended = f"exit code {process.wait(LIMIT_S)}"
        except subprocess.TimeoutExpired:
            ended = f"not through within {LIMIT_S} s"
            kill(process)
        output.seek(0)
        tell(tool, os.path.basename(name), ended == "exit code 0", ended, output.read(), "", began)


def attempt(what, *args):
    if stopping.is_set():
        return
    try:
        what(*args)
    except Exception as error:  # the others are worth their time all the same
        check(False, f"{' '.join(args)}: {error!r}")


def stopped(*_):
    """Whoever stops this has had enough of what it started, too."""
    stopping.set()
    for _ in range(3):
        for process_id in below(os.getpid()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process_id, signal.SIGKILL)
        time.sleep(0.1)
    os._exit(1)


def main():
    signal.signal(signal.SIGTERM, stopped)
    named = sys.argv[2:]
    why = sanitizer.missing()
    if why:
        print(why)
        return 2
    for name in named:
        if name not in (*sanitizer.TOOLS, "served", "kernels"):
            print(f"{name}: no such part")
            return 2
    tools = [tool for tool in sanitizer.TOOLS if tool in named] or list(sanitizer.TOOLS)
    parts = [part for part in ("served", "kernels") if part in named] or ["served", "kernels"]
    jobs = []
    for tool in tools:
        if "served" in parts:
            jobs.append((serve, tool))
        if "kernels" in parts:
            jobs += [(run_kernels, tool, name) for name in (KERNELS_RACECHECK if tool == "racecheck" else KERNELS)]
    with ThreadPoolExecutor(AT_ONCE) as together:
        list(together.map(lambda job: attempt(*job), jobs))
    end_all()
    print(f"{len(failures)} failures")
    return 1 if failures else 0


sys.exit(main())
