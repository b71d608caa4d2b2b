#!/usr/bin/env python3
"""compute-sanitizer's four tools over the kernel tests and a served batch: tests/gpu/sanitize.py BUILD [WHAT...]

- planted   a daemon with a fault built into its module (tests/gpu/fault/): a write behind a block of KV, a race, a read
            of what nobody wrote, half a warp at a barrier; the tool that is for it has to report it, under its kernel
- served    a daemon with synthetic:tiny: 24 mixed requests, 4 texts scored and 4 embedded; all have to end well, and
            their values have to be those of a daemon that runs under no tool
- kernels   test_kernels_cuda, and bench_kernels check in both 16-bit dtypes (racecheck: in BF16)
- programs  test_programs_cuda: the programs for jobs and their lanes, in shares
- memcheck, initcheck, synccheck, racecheck
            that tool alone, over all or over what is named beside it

All of them when none is named, side by side. Prints a line for each tool and program; where a tool said anything but
that it found nothing, its first reports, too. Exit 1 if there is such a one, 77 where the tools are not there.
What kernels of libraries are left out is by name, and no kernel of ours may have such a name (sanitizer.py).
Needs nothing but Python's own library, and compute-sanitizer (tests/gpu/sanitizer.py).
"""

import contextlib
import math
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
from served import Daemon, NotReady, below, check, distance, end_all, failures, kill, running, sluiced_below

BUILD = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else ".build/cuda")
KERNELS = ("tests/gpu/kernels/test_kernels_cuda", "tests/bench/bench_kernels check",
           "tests/bench/bench_kernels f16 check")
# racecheck's work is the host's, of several cores for minutes: the checks are made in shares, and in one dtype, for
# what they run in the other is the same code, compiled for it.
KERNELS_RACECHECK = (KERNELS[0], *(f"tests/bench/bench_kernels check {i} 4" for i in range(4)))
PROGRAMS, PROGRAM_SHARES = "tests/jobs/test_programs_cuda", {"racecheck": 6}  # of its tests; else 2
# The bytes between outputs are copied to the host with them, and nobody writes or reads those: initcheck looks at
# kernels alone there.
PROGRAM_OPTIONS = {"initcheck": ("--check-api-memory-access", "no")}
LIMIT_S = 330  # of a program under a tool
PLANT_S = 60  # of one that goes wrong
AT_ONCE = 10
# That a stream may have before it. With no limit racecheck, which takes every access to shared memory to the host and
# is slower there than the kernels are, fills the host's memory (50 GiB after 48 s of a served batch).
LAUNCHES = ("--force-synchronization-limit", "32")
PARTS = ("planted", "served", "kernels", "programs")
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


# As the scores of reference checkpoints are held to: on average, at most; and how far two embeddings may be apart.
MEAN_MAX, WORST_MAX, EMBED_MAX = 0.02, 0.15, 0.05


def batches():
    """What is asked, the same under every tool."""
    rng = random.Random(5)
    choices = [{}, {"temperature": 0.8, "top_k": 20}, {"temperature": 1.0, "top_p": 0.9, "min_p": 0.02},
               {"repetition_penalty": 1.2, "presence_penalty": 0.3, "frequency_penalty": 0.1},
               {"logprobs": 5}, {"temperature": 0.7, "n": 3, "seed": 4}]
    mixed = [{"tokens": [rng.randrange(512) for _ in range(rng.choice((1, 7, 33, 64, 190, 300)))],
              "max_tokens": rng.randint(4, 24), "ignore_eos": True, **choices[i % len(choices)]} for i in range(24)]
    texts = [{"tokens": [rng.randrange(512) for _ in range(n)]} for n in (2, 40, 130, 280)]
    return {"generate": [{"logprobs": 1, **line} for line in mixed], "score": texts, "embed": texts}


def served(daemon):
    """The results of all batches."""
    return {command: daemon.run(command, lines, LIMIT_S) for command, lines in batches().items()}


def repeated(results):
    """What to ask for, so that the values of the results are seen once more: the sequences that were generated are
    scored, for which token a draw gives depends on the last digit of every value before it."""
    asked = batches()
    prompts = [line["tokens"] for line in asked["generate"] for _ in range(line.get("n", 1))]
    sequences = [{"tokens": prompt + result["tokens"]} for prompt, result in zip(prompts, results["generate"])]
    return {"score": sequences + asked["score"], "embed": asked["embed"]}


def numbers(values):
    return [value for value in values if isinstance(value, (int, float))]


def compare(results, again):
    """Why the values of the results are not those of a daemon that was asked once more; None where they are."""
    asked = batches()
    wanted = sum(line.get("n", 1) for line in asked["generate"])
    generated, scored = results["generate"], results["score"]
    if (len(generated), len(scored), len(results["embed"])) != (wanted, len(asked["score"]), len(asked["embed"])):
        return f"{len(generated)}, {len(scored)} and {len(results['embed'])} results"
    limits = [line["max_tokens"] for line in asked["generate"] for _ in range(line.get("n", 1))]
    if [len(result["tokens"]) for result in generated] != limits:
        return "an answer is not as long as it was asked to be"
    # The first token of a sequence has no score.
    one = [value for result in generated for value in numbers(result["logprobs"])]
    other = [value for result, limit in zip(again["score"], limits) for value in numbers(result["logprobs"])[-limit:]]
    one += [value for result in scored for value in numbers(result["logprobs"])]
    other += [value for result in again["score"][wanted:] for value in numbers(result["logprobs"])]
    if len(one) != len(other):
        return f"{len(one)} log-probabilities beside {len(other)}"
    mean, most = distance(one, other)
    apart = max(math.dist(a["embedding"], b["embedding"]) for a, b in zip(results["embed"], again["embed"]))
    if mean <= MEAN_MAX and most <= WORST_MAX and apart <= EMBED_MAX:
        return None
    return f"values off by {mean:.4f}, at most {most:.4f}, embeddings by {apart:.4f}"


def serve(tool, undisturbed):
    began, complaint, ended, daemon = time.monotonic(), "", "not ready", None
    try:
        daemon = Daemon(BUILD, "synthetic:tiny", "--step-timeout", "120s", *sanitizer.options(tool), patience_s=LIMIT_S,
                        modules=sanitizer.modules(BUILD, tool), wrap=sanitizer.command(tool, *LAUNCHES))
        results = served(daemon)
        again = {command: undisturbed.run(command, lines, LIMIT_S) for command, lines in repeated(results).items()}
        complaint = compare(results, again) or ""
        ended = f"exit code {daemon.stop(sluiced_below(daemon.process.pid))}"
    except NotReady as error:
        daemon = error.daemon
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        complaint = f"not through: {error}"
        kill(daemon.process)
    values = complaint or "all results, with the values of an undisturbed run"
    tell(tool, "a served batch", ended == "exit code 0" and not complaint, f"{values}, {ended}", daemon.out(),
         daemon.log(), began)


def plant(tool):
    """What is not clean has to be said to be so."""
    began, (kind, kernel, words) = time.monotonic(), sanitizer.PLANTED[tool]
    daemon = None
    try:
        daemon = Daemon(BUILD, "synthetic:tiny", "--step-timeout", "120s", *sanitizer.options(tool), patience_s=PLANT_S,
                        modules=sanitizer.modules(BUILD, tool, True), wrap=sanitizer.command(tool, *LAUNCHES),
                        environment={"SLUICE_TEST_FAULT": f"{kind}:5"})
        daemon.begin("generate", [{"tokens": [1, 2, 3], "max_tokens": 16, "ignore_eos": True}]).client.wait(PLANT_S)
        if daemon.process.poll() is None:
            daemon.stop(sluiced_below(daemon.process.pid))
    except NotReady as error:
        daemon = error.daemon
    except (ProcessLookupError, TypeError, subprocess.TimeoutExpired):
        pass  # a device that failed; what the tool said counts
    if daemon.process.poll() is None:
        kill(daemon.process)
    output, code = daemon.out(), daemon.process.returncode
    well = sanitizer.reported(output, kernel, words) and code != 0
    check(well, f"{tool} {'reports' if well else 'does not report'} the planted {kind} of {kernel}: exit code {code}, "
          f"{sanitizer.summary(output)} ({time.monotonic() - began:.0f} s)"
          + ("" if well else "\n" + "\n".join(sanitizer.head(output, 12)) + "\n" + daemon.log()[-800:]))


# ---- programs of kernel tests ---------------------------------------------------------------------------------


def run_kernels(tool, name):
    program, *args = name.split()
    apart = {"RIG_APART": "1"} if tool == "memcheck" else {}  # no buffer has another beside it
    run_program(tool, os.path.basename(name), [os.path.join(BUILD, program), *args], (), {"DRAW_STEPS": "1", **apart})


def run_share(tool, share):
    """The tests of a share run in one process, as CUDA asks."""
    run_program(tool, f"{os.path.basename(PROGRAMS)}, share {share}", [os.path.join(BUILD, PROGRAMS)],
                PROGRAM_OPTIONS.get(tool, ()), {"RUNNER_PART": share, "CK_FORK": "no",
                                                "SLUICE_PROGRAMS": os.path.join(BUILD, "gpu/programs")})


def run_program(tool, name, command, options, environment):
    began = time.monotonic()
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen([*sanitizer.command(tool, *LAUNCHES, *options), *command], stdout=output,
                                   stderr=subprocess.STDOUT, env={**os.environ, **environment})
        running.append(process)
        try:
            ended = f"exit code {process.wait(LIMIT_S)}"
        except subprocess.TimeoutExpired:
            ended = f"not through within {LIMIT_S} s"
            kill(process)
        output.seek(0)
        tell(tool, name, ended == "exit code 0", ended, output.read(), "", began)


def attempt(what, tool, *args):
    if stopping.is_set():
        return
    try:
        what(tool, *args)
    except Exception as error:  # the others are worth their time all the same
        check(False, f"{tool}, {what.__name__}: {error!r}")


def show_names():
    """That what is left out is the library's."""
    ours = ["gpu/sluice-cuda.so", *{name.split()[0] for name in KERNELS},
            *(f"tests/gpu/{folder}/sluice-cuda.so" for folder in ("apart", "fault", "written")),
            *(f"gpu/programs/{name}-cuda.so" for name in ("affine", "gemm", "layers", "pipeline", "relevance"))]
    try:
        found = [name for path in ours for name in sanitizer.hidden(os.path.join(BUILD, path))]
    except FileNotFoundError as error:
        check(False, f"names that are left out: the build is not whole: {error}")
        return
    check(not found, f"names that are left out: {len(found)} of ours {', '.join(found[:5])}")


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
        print(f"SKIPPED: {why}")
        return 77
    for name in named:
        if name not in (*sanitizer.TOOLS, *PARTS):
            print(f"{name}: no such part")
            return 2
    show_names()
    tools = [tool for tool in sanitizer.TOOLS if tool in named] or list(sanitizer.TOOLS)
    parts = [part for part in PARTS if part in named] or PARTS
    undisturbed = Daemon(BUILD, "synthetic:tiny") if "served" in parts else None
    jobs = []
    for tool in tools:
        programs = KERNELS_RACECHECK if tool == "racecheck" else KERNELS
        jobs += [(serve, tool, undisturbed)] if "served" in parts else []
        jobs += [(run_kernels, tool, name) for name in programs] if "kernels" in parts else []
        shares = PROGRAM_SHARES.get(tool, 2)
        jobs += [(run_share, tool, f"{i + 1}/{shares}") for i in range(shares)] if "programs" in parts else []
    jobs += [(plant, tool) for tool in tools if "planted" in parts]  # the shortest last
    with ThreadPoolExecutor(AT_ONCE) as together:
        list(together.map(lambda job: attempt(*job), jobs))
    end_all()
    print(f"{len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
