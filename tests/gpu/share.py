#!/usr/bin/env python3
"""What a CUDA daemon serves from several GPUs, checked through its socket: tests/gpu/share.py BUILD [PARTS...]

Parts, all of them if none is named:
  sums      what a sum over 2 and 4 GPUs costs, ours and NCCL's (tests/bench/sums.c)
  right     a reference checkpoint scored on one GPU and shared by 2: the log-probabilities are close
  one       synthetic:llama-3.1-8b on one GPU: tokens per second of one sequence, and of 512 requests of 128
            tokens in and 128 out at once
  tp, dp    the same shared by 2 and 4 GPUs, log-probabilities compared; as replicas, 512 requests for each
  large     synthetic:llama-3.1-70b on 4 GPUs (2, where there are no more): one sequence, 256 requests at once
  starts    a small model shared by 2 GPUs, started and stopped 20 times
Every figure stands beside what one GPU gave in the same run. Prints what it saw; exit 1 if a request fails, or if
sharing changes what is answered. Needs nothing but Python's own library, and libnccl.so.2 where the loader finds it.
"""

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time

BUILD = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else ".build/cuda")
PARTS = sys.argv[2:]
SLUICE = os.path.join(BUILD, "client/sluice")
FOLDER = tempfile.mkdtemp()
SOCKET = os.path.join(FOLDER, "sluice.sock")
SMALL = "tests/model/data/llama-default-bf16"
MEDIUM = "synthetic:llama-3.1-8b"
failures = []
alone = {}  # what one GPU gave


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
            if self.process.poll() is not None or time.monotonic() - begin > 90:
                self.process.kill()
                self.log.seek(0)
                raise RuntimeError("the daemon is not ready: " + self.log.read()[-1500:])
            time.sleep(0.02)
        self.ready = time.monotonic() - begin
        print(f"        {model} {' '.join(options)}: ready after {self.ready:.1f} s", flush=True)

    def client(self, *arguments):
        done = subprocess.run([SLUICE, *arguments, "--socket", SOCKET], capture_output=True, text=True, timeout=90)
        if done.returncode:
            self.log.seek(0)
            raise RuntimeError(done.stderr[-500:] + self.log.read()[-1500:])
        return done.stdout

    def run(self, command, lines, *options):
        path = os.path.join(FOLDER, "batch.jsonl")
        with open(path, "w") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)
        begin = time.monotonic()
        output = self.client(command, "--file", path, "--json", *options)
        return [json.loads(line) for line in output.splitlines()], time.monotonic() - begin

    def rate(self):
        """Tokens per second of one sequence, the prompt and the way left out."""
        rates = []
        for _ in range(3):
            seconds = []
            for tokens in (32, 32, 288):
                _, wall = self.run("generate", [{"tokens": [1, 2, 3], "max_tokens": tokens, "ignore_eos": True}],
                                   "--no-stream")
                seconds.append(wall)
            rates.append(256 / (seconds[2] - seconds[1]))
        return sorted(rates)[1]

    def load(self, count):
        """Output tokens per second of requests that all come at once, after as many that count nowhere."""
        path = os.path.join(FOLDER, "bench.json")
        for _ in range(2):
            self.client("bench", "--num-prompts", str(count), "--random-input-len", "128", "--random-output-len", "128",
                        "--ignore-eos", "--json", path)
        with open(path) as file:
            figures = json.load(file)
        check(figures["completed"] == count and figures["total_output_tokens"] == 128 * count,
              f"{count} requests end")
        return figures["output_throughput"]

    def logprobs(self, vocabulary, lengths):
        rng = random.Random(3)
        results, _ = self.run("score", [{"tokens": [rng.randrange(vocabulary) for _ in range(n)]} for n in lengths])
        return [value for result in results for value in result["logprobs"] if isinstance(value, float)]

    def stop(self):
        self.process.terminate()
        self.process.wait(30)
        check(self.process.returncode == 0, "the daemon ends by itself")


def numbers(count):
    return ",".join(str(i) for i in range(count))


def shared(count):
    return ("--gpus", numbers(count), "--tp", str(count))


def right(count):
    close(SMALL, count, 250, (5, 40, 90, 120), 0.1, 0.01)


def close(model, count, vocabulary, lengths, most, mean):
    """Log-probabilities of one GPU beside those of several."""
    got = []
    for options in (("--gpus", "0"), shared(count)):
        daemon = Daemon(model, *options)
        got.append(daemon.logprobs(vocabulary, lengths))
        daemon.stop()
    compare(f"{model} shared by {count}", got[0], got[1], most, mean)


def compare(what, one, other, most, mean):
    off = [abs(a - b) for a, b in zip(one, other)]
    check(len(one) == len(other) > 200 and max(off) < most and sum(off) / len(off) < mean,
          f"{what}: {len(off)} log-probabilities, off by {sum(off) / max(len(off), 1):.5f}, "
          f"at most {max(off, default=-1):.5f}")


def beside(what, value):
    one = alone.get(what)
    return f"{value:.0f} tok/s" + (f", {value / one:.2f} times one GPU" if one else "")


def medium(name, options, count, scored=True, single=True):
    daemon = Daemon(MEDIUM, *options)
    if single:
        rate = daemon.rate()
        print(f"        {name}: one sequence: {beside('rate', rate)}", flush=True)
    load = daemon.load(count)
    print(f"        {name}: {count} of 128 in, 128 out: {beside('load', load)}", flush=True)
    if scored:
        logprobs = daemon.logprobs(128000, (100, 150))
        if name == "one":
            alone.update(rate=rate, load=load, logprobs=logprobs)
        elif "logprobs" in alone:
            compare(f"{MEDIUM}, {name}", alone["logprobs"], logprobs, 0.35, 0.05)
    daemon.stop()


def large(count):
    daemon = Daemon("synthetic:llama-3.1-70b", *shared(count))
    print(f"        70b on {count}: one sequence: {daemon.rate():.0f} tok/s", flush=True)
    if count > 2:
        print(f"        70b on {count}: 256 of 128 in, 128 out: {daemon.load(256):.0f} tok/s", flush=True)
    daemon.stop()


def starts(count):
    seconds = []
    for _ in range(20):
        daemon = Daemon(SMALL, *shared(count))
        seconds.append(daemon.ready)
        daemon.run("generate", [{"tokens": [1, 2, 3], "max_tokens": 4, "ignore_eos": True}], "--no-stream")
        daemon.stop()
    print(f"        20 starts on {count}: ready after {min(seconds):.1f} to {max(seconds):.1f} s", flush=True)


def sums():
    paths = [os.path.join(BUILD, "tests/bench/bench_sums"), os.path.join(BUILD, "tests/bench_sums")]
    bench = next(path for path in paths if os.path.exists(path))
    done = subprocess.run([bench], stdout=subprocess.PIPE, text=True, timeout=60)
    print(done.stdout, end="", flush=True)
    check(done.returncode == 0, "sums over GPUs are right")


def attempt(what, *args):
    try:
        what(*args)
    except Exception as error:  # the others are worth their time all the same
        check(False, f"{what.__name__} {args}: {error}")


def main():
    listed = shutil.which("nvidia-smi") and subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True)
    gpus = listed.stdout.count("UUID") if listed else 0
    counts = [count for count in (2, 4, 8) if count <= gpus]
    wanted = lambda part: not PARTS or part in PARTS
    if not counts:
        print(f"SKIPPED: there are {gpus} GPUs")
        return
    if wanted("sums"):
        attempt(sums)
    if wanted("right"):
        attempt(right, 2)
    if wanted("one"):
        attempt(medium, "one", ("--gpus", "0"), 512)
    for count in counts:
        if wanted("tp"):
            attempt(medium, f"tp {count}", shared(count), 512)
        if wanted("dp"):
            attempt(medium, f"dp {count}", ("--gpus", numbers(count), "--dp", str(count)), 512 * count, False, False)
    if wanted("large"):
        attempt(large, min(counts[-1], 4))
    if wanted("starts"):
        attempt(starts, min(counts[-1], 2))


main()
sys.exit(1 if failures else 0)
