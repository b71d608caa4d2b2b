#!/usr/bin/env python3
"""What a CUDA daemon serves from two GPUs as a pipeline, checked through its socket: tests/gpu/pipeline.py BUILD [PART ...]

- right: a reference checkpoint scored on one GPU and by two stages: the same log-probabilities, but for the choice of
  product; where there are four GPUs, synthetic:llama-3.2-1b by four stages, and by two of two GPUs each;
- saturated: synthetic:llama-3.1-8b, 2,048 requests of 128 tokens in and 128 out at once, on one GPU with 512 sequences
  at a time (more serve it no faster), and by two stages with 1,024: output tokens per second, and their ratio;
- sanitized: synthetic:tiny by two stages under compute-sanitizer, where that is installed.
Prints what it saw; exit 1 if a request fails, or if a pipeline answers something else. Needs nothing but Python's own
library.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

BUILD = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else ".build/cuda")
SLUICE = os.path.join(BUILD, "client/sluice")
FOLDER = tempfile.mkdtemp()
SOCKET = os.path.join(FOLDER, "sluice.sock")
ONE = ("--gpus", "0")
TWO = ("--gpus", "0,1", "--dp", "1", "--tp", "1", "--pp", "2")
GPUS = len(subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout.splitlines())
failures = []


def check(holds, text):
    print(("ok      " if holds else "FAILED  ") + text, flush=True)
    if not holds:
        failures.append(text)


class Daemon:
    def __init__(self, model, *options, under=()):
        begin = time.monotonic()
        self.log = open(os.path.join(FOLDER, "log"), "w+")
        self.process = subprocess.Popen(
            [*under, os.path.join(BUILD, "daemon/sluiced"), "--model", model, "--device", "cuda",
             "--module-dir", os.path.join(BUILD, "gpu"), "--socket", SOCKET,
             "--queue-sequences", "8192", "--log-requests", "no", *options],
            stdout=self.log, stderr=self.log)
        while subprocess.run([SLUICE, "health", "--socket", SOCKET],
                             capture_output=True).returncode != 0:
            if self.process.poll() is not None or time.monotonic() - begin > 60:
                self.process.kill()
                raise RuntimeError("the daemon is not ready: " + self.text()[-1500:])
            time.sleep(0.02)
        print(f"        {model} {' '.join(options)}: ready after {time.monotonic() - begin:.1f} s", flush=True)

    def text(self):
        self.log.seek(0)
        return self.log.read()

    def run(self, command, lines, *options, clients=1):
        """Lines through so many clients at once: each begins with at most 256 under way."""
        running = []
        for i in range(clients):
            path = os.path.join(FOLDER, f"batch{i}.jsonl")
            with open(path, "w") as file:
                file.writelines(json.dumps(line) + "\n" for line in lines[i::clients])
            running.append([SLUICE, command, "--file", path, "--json", "--socket", SOCKET, *options])
        begin = time.monotonic()
        running = [subprocess.Popen(call, stdout=open(f"{call[3]}.out", "w"), stderr=subprocess.PIPE, text=True)
                   for call in running]
        for one in running:
            if one.wait(90):
                raise RuntimeError(one.stderr.read()[-500:] + self.text()[-1500:])
        wall = time.monotonic() - begin
        results = []
        for i in range(clients):
            with open(os.path.join(FOLDER, f"batch{i}.jsonl.out")) as file:
                results += [json.loads(line) for line in file]
        return results, wall

    def load(self, count):
        rng = random.Random(7)
        lines = [{"tokens": [rng.randrange(128000) for _ in range(128)], "max_tokens": 128, "ignore_eos": True}
                 for _ in range(count)]
        self.run("generate", lines[:256], "--no-stream")
        results, wall = self.run("generate", lines, "--no-stream", clients=count // 256)
        check(len(results) == count and all(len(r["tokens"]) == 128 for r in results), f"{count} requests end")
        return count * 128 / wall

    def stop(self):
        """Ends the daemon itself, which a tool around it started."""
        pid = self.process.pid
        while True:
            with open(f"/proc/{pid}/task/{pid}/children") as file:
                children = file.read().split()
            if not children:
                break
            pid = int(children[-1])
        os.kill(pid, signal.SIGTERM)
        return self.process.wait(60)


def answers(model, *options):
    """Log-probabilities of fixed prompts, and tokens of a few texts."""
    rng = random.Random(3)
    daemon = Daemon(model, *options)
    results, _ = daemon.run("score", [{"tokens": [rng.randrange(250) for _ in range(n)]} for n in (5, 40, 90, 120)])
    lines = [{"tokens": [rng.randrange(250) for _ in range(9)], "max_tokens": 60, "ignore_eos": True} for _ in range(8)]
    texts, _ = daemon.run("generate", lines, "--no-stream")
    daemon.stop()
    return ([value for result in results for value in result["logprobs"] if isinstance(value, float)],
            [text["tokens"] for text in texts])


def compare(what, one, other):
    off = [abs(a - b) for a, b in zip(one[0], other[0])]
    check(len(one[0]) == len(other[0]) > 200 and max(off) < 0.1 and sum(off) / len(off) < 0.01,
          f"{what}: {len(off)} log-probabilities, off by {sum(off) / max(len(off), 1):.6f}, "
          f"at most {max(off, default=-1):.6f}; {sum(a == b for a, b in zip(one[1], other[1]))} of 8 texts the same")


def right():
    model = "tests/model/data/llama-default-bf16"
    compare("two stages", answers(model, *ONE), answers(model, *TWO))
    if GPUS < 4:
        return
    model = "synthetic:llama-3.2-1b"
    one = answers(model, *ONE)
    for tp, pp in ((1, 4), (2, 2)):
        compare(f"tp {tp}, pp {pp}", one,
                answers(model, "--gpus", "0,1,2,3", "--dp", "1", "--tp", str(tp), "--pp", str(pp)))


def rate(count, *options):
    daemon = Daemon("synthetic:llama-3.1-8b", *options)
    value = daemon.load(count)
    stats = subprocess.run([SLUICE, "stats", "--json", "--socket", SOCKET], capture_output=True, text=True).stdout
    print(f"        {count} of 128 in, 128 out: {value:.0f} output tok/s", flush=True)
    daemon.stop()
    return value, stats


def beside(path):
    """How much of the time of copies from stage to stage each device was computing, by the trace."""
    with open(path) as file:
        events = json.load(file)
    events = events["traceEvents"] if isinstance(events, dict) else events
    lanes = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e.get("name") == "thread_name"}
    spans = {}
    for e in events:
        if e.get("ph") == "X":
            spans.setdefault((e["pid"], lanes[e["pid"], e["tid"]]), []).append((e["ts"], e["ts"] + e["dur"]))
    copies = spans[0, "peer"]
    total = sum(end - begin for begin, end in copies)
    shares = []
    for device in (0, 1):
        busy = sum(max(0, min(end, last) - max(begin, first))
                   for begin, end in copies for first, last in spans[device, "compute"])
        shares.append(100 * busy / total)
    print(f"        {len(copies)} peer copies of {total / len(copies):.1f} us on average, with compute beside them: "
          f"device 0 for {shares[0]:.0f} % of their time, device 1 for {shares[1]:.0f} %", flush=True)


def saturated():
    trace = os.path.join(os.environ.get("OUT", FOLDER), "pipeline_trace.json")
    one, _ = rate(2048, *ONE, "--sequences-max", "512")
    two, stats = rate(2048, *TWO, "--sequences-max", "1024", "--profile-steps", "250", trace)
    beside(trace)
    print(f"        two stages over one GPU: {two / one:.3f} times", flush=True)
    if os.environ.get("OUT"):
        with open(os.path.join(os.environ["OUT"], "pipeline_stats.json"), "w") as file:
            file.write(stats)


def sanitized():
    tool = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path="/usr/local/cuda/bin")
    if not tool:
        print("        no compute-sanitizer: left out")
        return
    daemon = Daemon("synthetic:tiny", *TWO, under=(tool, "--tool", "memcheck", "--error-exitcode", "9"))
    lines = [{"tokens": [1, 2, 3 + i], "max_tokens": 12, "ignore_eos": True} for i in range(12)]
    daemon.run("generate", lines, "--no-stream")
    status = daemon.stop()
    text = daemon.text()
    check(status == 0 and "ERROR SUMMARY: 0 errors" in text, "memcheck on two stages: " + text.strip()[-60:])


def attempt(what):
    try:
        what()
    except Exception as error:  # the others are worth their time all the same
        check(False, f"{what.__name__}: {error}")


for part in sys.argv[2:] or ("right", "saturated", "sanitized"):
    attempt({"right": right, "saturated": saturated, "sanitized": sanitized}[part])
sys.exit(1 if failures else 0)
