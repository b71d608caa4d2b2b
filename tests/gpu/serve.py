#!/usr/bin/env python3
"""What a CUDA daemon serves, checked through its socket: tests/gpu/serve.py BUILD

- the demo model, 64 mixed prompts at once: every answer exact;
- synthetic:llama-3.1-8b, 512 requests of 32 to 223 tokens in and 128 out at once, with --dtype f16 and with
  bf16, its own: each one ends, 8,000 tokens/s at least;
- with f16 each generated token, teacher-forced alone through score, is within 0.1 of the likeliest (with bf16
  that is out of reach: gpu/README.md, Numbers);
- with f16, 8 results of a prompt of 2,000 tokens take at most 1.5 times as long as one, and are as near;
- 1,000 steady decode steps: at least 99 % enqueued before the step before them had ended; no synchronising
  call, no allocation outside the pools, no pageable copy.
Prints what it saw; exit 1 if any of it does not hold. Needs nothing but Python's own library.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
import time

from served import check, end_all, failures, keep, running

BUILD = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else ".build/cuda")
SLUICE = os.path.join(BUILD, "client/sluice")
FOLDER = tempfile.mkdtemp()
SOCKET = os.path.join(FOLDER, "sluice.sock")


def sluice(*args):
    """What the client says; one that ends in error, as where an answer does, has said nothing that counts."""
    result = subprocess.run([SLUICE, *args, "--socket", SOCKET], capture_output=True, text=True)
    if result.returncode:
        sys.exit(f"FAILED  sluice {args[0]}: exit code {result.returncode}, {result.stderr[-500:]}")
    return result.stdout


class Daemon:
    def __init__(self, model, *options):
        self.start = time.monotonic()
        self.process = subprocess.Popen(
            [os.path.join(BUILD, "daemon/sluiced"), "--model", model, "--device", "cuda",
             "--module-dir", os.path.join(BUILD, "gpu"), "--socket", SOCKET,
             "--queue-sequences", "8192", "--queue-tokens", "16777216",
             "--log-requests", "no", *options], stderr=subprocess.PIPE, text=True)
        running.append(self.process)
        while subprocess.run([SLUICE, "health", "--socket", SOCKET],
                             capture_output=True).returncode != 0:
            if self.process.poll() is not None:
                sys.exit("the daemon ended: " + self.process.stderr.read())
            time.sleep(0.02)
        self.ready_s = time.monotonic() - self.start

    def stats(self):
        return json.loads(sluice("stats", "--json"))

    def stop(self):
        self.process.terminate()
        code = self.process.wait(60)
        check(code == 0, f"the daemon ends with exit code {code}")


def batch(command, lines):
    path = os.path.join(FOLDER, "batch.jsonl")
    with open(path, "w") as file:
        for line in lines:
            file.write(json.dumps(line) + "\n")
    begin = time.monotonic()
    out = sluice(command, "--file", path, "--json", *(["--no-stream"] if command == "generate" else []))
    return [json.loads(line) for line in out.splitlines()], time.monotonic() - begin


def demo():
    with open("deploy/demo-model/questions.jsonl") as file:
        questions = [json.loads(line) for line in file]
    with open("deploy/demo-model/answers.txt") as file:
        answers = [line.rstrip("\n").split("\t")[1] for line in file]
    daemon = Daemon("deploy/demo-model")
    results, _ = batch("generate", questions)
    right = sum(r["text"] == a for r, a in zip(results, answers))
    check(right == len(answers), f"demo model: {right} of {len(answers)} answers exact")
    daemon.stop()


def real_size(dtype, *others):
    """512 requests at once, twice; then what else is to be seen of the same daemon."""
    rng = random.Random(11)
    prompts = [[rng.randrange(128000) for _ in range(rng.randint(32, 223))] for _ in range(512)]
    daemon = Daemon("synthetic:llama-3.1-8b", "--dtype", dtype)
    shown = json.loads(sluice("model", "--json"))["dtype"]
    check(daemon.ready_s <= 3.0, f"8B in {shown}: ready after {daemon.ready_s:.2f} s")
    for attempt in ("first round", "second round"):
        results, took_s = batch("generate", [
            {"tokens": p, "max_tokens": 128, "ignore_eos": True} for p in prompts])
        count = sum(r["usage"]["completion_tokens"] for r in results)
        whole = all(r["finish_reason"] == "length" for r in results) and count == 512 * 128
        check(whole, f"8B in {shown}, {attempt}: {len(results)} of 512 requests ended, {count} tokens")
        rate = count / took_s
    check(rate >= 8000 and shown == dtype, f"8B in {shown}: {rate:.0f} output tokens/s")
    for other in others:
        other(daemon, prompts, results)
    daemon.stop()


def distance(daemon, prompts, results):
    scored, _ = batch("score", [{"tokens": p + r["tokens"]} for p, r in zip(prompts, results)])
    worst = 0.0
    for prompt, score in zip(prompts, scored):
        for i in range(len(prompt) - 1, len(prompt) + 127):
            worst = max(worst, score["top_logprobs"][i] - score["logprobs"][i])
    check(len(scored) == 512 and worst <= 0.1,
          f"8B: generated tokens are within {worst:.4f} of the likeliest, teacher-forced")


def one_prompt(daemon, prompts, results):
    """8 results of a prompt of 2,000 tokens against one: by turns, each time another prompt."""
    rng, took = random.Random(12), {1: [], 8: []}
    before = daemon.stats()["counters"]["prompt_tokens_shared_total"]
    for _ in range(7):
        for n in took:
            prompt = [rng.randrange(128000) for _ in range(2000)]
            answers, seconds = batch("generate", [{"tokens": prompt, "max_tokens": 1, "ignore_eos": True, "n": n}])
            check(len(answers) == n, f"8B: {n} results of one prompt")
            took[n].append(seconds)
    shared = daemon.stats()["counters"]["prompt_tokens_shared_total"] - before
    check(shared >= 7 * 7 * 1900, f"8B: {shared} prompt tokens were not read again")
    one, eight = (sorted(took[n])[3] for n in (1, 8))
    check(eight <= 1.5 * one, f"8B: 8 results of one prompt take {eight / one:.2f} times one, {1000 * one:.0f} ms")
    answers, _ = batch("generate", [{"tokens": prompt, "max_tokens": 32, "ignore_eos": True, "n": 8, "temperature": 0}])
    scored, _ = batch("score", [{"tokens": prompt + r["tokens"]} for r in answers])
    worst = max(score["top_logprobs"][i] - score["logprobs"][i]
                for score in scored for i in range(len(prompt) - 1, len(prompt) + 31))
    check(worst <= 0.1, f"8B: tokens of 8 results of one prompt are within {worst:.4f} of the likeliest")


def steady_steps(daemon, prompts, results):
    before = daemon.stats()
    batch("generate", [{"tokens": p[:32], "max_tokens": 1100, "ignore_eos": True}
                       for p in prompts[:32]])
    device = [before["device"], daemon.stats()["device"]]
    steps = device[1]["steps"] - device[0]["steps"]
    ahead = device[1]["steps_ahead"] - device[0]["steps_ahead"]
    check(steps >= 1000 and ahead >= 0.99 * steps, f"8B: {ahead} of {steps} steps were enqueued ahead")
    for name in ("synchronizes", "pageable_copies", "allocations"):
        check(device[1][name] == 0, f"8B: {name} {device[1][name]}")


if __name__ == "__main__":
    try:
        demo()
        real_size("f16", distance, one_prompt)
        real_size("bf16", steady_steps)
    finally:
        end_all()
    keep("serve", BUILD)
    print(f"{len(failures)} failures")
    sys.exit(1 if failures else 0)
