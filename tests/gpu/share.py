#!/usr/bin/env python3
"""What a CUDA daemon serves from two GPUs, checked through its socket: tests/gpu/share.py BUILD

- a reference checkpoint scored on one GPU and shared by two: the log-probabilities are close;
- synthetic:llama-3.1-8b on one GPU, as two replicas, and shared by two GPUs: tokens per second of one sequence,
  and of 512 requests of 128 tokens in and 128 out at once;
- synthetic:llama-3.1-70b shared by two GPUs: one sequence.
Prints what it saw; exit 1 if a request fails, or if sharing changes what is answered. Needs nothing but Python's
own library, and libnccl.so.2 where the loader finds it.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
import time

BUILD = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else ".build/cuda")
SLUICE = os.path.join(BUILD, "client/sluice")
FOLDER = tempfile.mkdtemp()
SOCKET = os.path.join(FOLDER, "sluice.sock")
failures = []


def check(holds, text):
    print(("ok      " if holds else "FAILED  ") + text, flush=True)
    if not holds:
        failures.append(text)


class Daemon:
    def __init__(self, model, *options):
        begin = time.monotonic()
        self.log = open(os.path.join(FOLDER, "log"), "w+")
        self.process = subprocess.Popen(
            [os.path.join(BUILD, "daemon/sluiced"), "--model", model, "--device", "cuda",
             "--module-dir", os.path.join(BUILD, "gpu"), "--socket", SOCKET,
             "--queue-sequences", "8192", "--log-requests", "no", *options], stderr=self.log)
        while subprocess.run([SLUICE, "health", "--socket", SOCKET],
                             capture_output=True).returncode != 0:
            if self.process.poll() is not None or time.monotonic() - begin > 60:
                self.process.kill()
                self.log.seek(0)
                raise RuntimeError("the daemon is not ready: " + self.log.read()[-1500:])
            time.sleep(0.02)
        print(f"        {model} {' '.join(options)}: ready after {time.monotonic() - begin:.1f} s", flush=True)

    def run(self, command, lines, *options):
        path = os.path.join(FOLDER, "batch.jsonl")
        with open(path, "w") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)
        begin = time.monotonic()
        done = subprocess.run([SLUICE, command, "--file", path, "--json", "--socket", SOCKET, *options],
                              capture_output=True, text=True, timeout=60)
        if done.returncode:
            self.log.seek(0)
            raise RuntimeError(done.stderr[-500:] + self.log.read()[-1500:])
        return [json.loads(line) for line in done.stdout.splitlines()], time.monotonic() - begin

    def rate(self):
        """Tokens per second of one sequence, the prompt and the way left out."""
        seconds = []
        for tokens in (32, 32, 288):
            _, wall = self.run("generate", [{"tokens": [1, 2, 3], "max_tokens": tokens, "ignore_eos": True}],
                               "--no-stream")
            seconds.append(wall)
        return 256 / (seconds[2] - seconds[1])

    def load(self, count):
        rng = random.Random(7)
        lines = [{"tokens": [rng.randrange(128000) for _ in range(128)], "max_tokens": 128, "ignore_eos": True}
                 for _ in range(count)]
        self.run("generate", lines[:count // 4], "--no-stream")
        results, wall = self.run("generate", lines, "--no-stream")
        check(len(results) == count and all(len(r["tokens"]) == 128 for r in results), f"{count} requests end")
        return count * 128 / wall

    def stop(self):
        self.process.terminate()
        self.process.wait(30)


def logprobs(*options):
    rng = random.Random(3)
    daemon = Daemon("tests/model/data/llama-default-bf16", *options)
    results, _ = daemon.run("score", [{"tokens": [rng.randrange(250) for _ in range(n)]} for n in (5, 40, 90, 120)])
    daemon.stop()
    return [value for result in results for value in result["logprobs"] if isinstance(value, float)]


def right():
    one, two = logprobs("--gpus", "0"), logprobs("--gpus", "0,1", "--tp", "2")
    off = [abs(a - b) for a, b in zip(one, two)]
    check(len(one) == len(two) > 200 and max(off) < 0.1 and sum(off) / len(off) < 0.01,
          f"shared by two: {len(off)} log-probabilities, off by {sum(off) / max(len(off), 1):.5f}, "
          f"at most {max(off, default=-1):.5f}")


def speed(model, count, *options):
    daemon = Daemon(model, *options)
    rate = daemon.rate()
    print(f"        one sequence: {rate:.0f} tok/s", flush=True)
    if count:
        print(f"        {count} of 128 in, 128 out: {daemon.load(count):.0f} output tok/s", flush=True)
    daemon.stop()


def attempt(what, *args):
    try:
        what(*args)
    except Exception as error:  # the others are worth their time all the same
        check(False, f"{what.__name__} {args}: {error}")


attempt(right)
attempt(speed, "synthetic:llama-3.1-8b", 512, "--gpus", "0")
attempt(speed, "synthetic:llama-3.1-8b", 512, "--gpus", "0,1", "--tp", "2")
attempt(speed, "synthetic:llama-3.1-8b", 512, "--gpus", "0,1")
attempt(speed, "synthetic:llama-3.1-70b", 0)
sys.exit(1 if failures else 0)
