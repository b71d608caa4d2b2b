#!/usr/bin/env python3
"""The rows of tests/bench/gpu.sh: what one GPU serves, from the daemon's own records.

`sluice` submits through the socket. A second connection asks for STATS with the histograms' buckets a few times a
second; every figure is a difference of two such answers. A row of N sequences counts only stretches in which no prompt
was read and each step gave exactly N tokens. Needs nothing but Python's own library.
"""

import argparse
import glob
import json
import os
import random
import re
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

import gpu_answers
import gpu_cache
import gpu_experts
import gpu_formats
import gpu_jobs
import gpu_latency
import gpu_share
import gpu_sleep
import record

FOLDER = tempfile.mkdtemp() if __name__ == "__main__" else ""
SOCKET = os.path.join(FOLDER, "sluice.sock")
CACHE = os.environ.get("SLUICE_CACHE_DIR") or os.path.join(FOLDER, "cache")
HIDDEN, VOCAB, KV_BYTES = 4096, 128256, 131072  # of llama-3.1-8b: KV per token in 16 bits
WEIGHT_BYTES = 2 * 32 * (6144 * 4096 + 4096 * 4096 + 3 * 4096 * 14336) + 2 * VOCAB * HIDDEN  # a step reads
SMALL_BYTES = 2 * 16 * (3072 * 2048 + 2048 * 2048 + 3 * 2048 * 8192) + 2 * VOCAB * 2048  # of llama-3.2-1b
SMALL_KV_BYTES = 32768

# A synthetic shape of each family beside Llama (gpu/models/synthetic.c); a new family adds its shape's name.
FAMILIES = ("phi-3-mini", "phi-4", "phi-4-mini", "granite-3.1-8b", "smollm3-3b", "olmo-2-7b", "glm-4-9b-chat",
            "glm-4-9b", "starcoder2-7b", "gemma-7b", "gemma-2-9b", "gemma-3-4b", "mixtral-8x7b", "mixtral-8x7b:fp8",
            "qwen3-30b-a3b", "qwen3-30b-a3b:fp8", "qwen1.5-moe-a2.7b", "olmoe-1b-7b", "gpt-oss-20b",
            "granite-3.0-3b-a800m", "deepseek-moe-16b")
# Rows with daemons of their own, each a record.
STARTED = {**gpu_cache.ROWS, **gpu_share.ROWS, **gpu_answers.ROWS, **gpu_sleep.ROWS}
NO_CACHE = ("--prefix-cache", "no")  # rows repeat their prompts, and are to measure their reading

FAMILY_READS, FAMILY_SHARE, FAMILY_ROWS = 0.80, 0.85, 128  # of the read rate; of the 8B's share of its limit

limits, table, failures = {"flops": 738e12}, [], []
records = {"gpu": [], "gpu-latency": [], "gpu-formats": [], "gpu-experts": [], "gpu-families": [], "gpu-jobs": []}
shares = {}  # of its limit, that the 8B reaches, by rows


def row(what, text, gate, good, limit="", kept="gpu"):
    table.append((what, text, gate, limit))
    records[kept].append(record.row(what, text, gate, limit, good))
    if not good:
        failures.append(what)
    print(f"{'ok    ' if good else 'SHORT '} {what}: {text}   (gate {gate}{', limit ' + limit if limit else ''})",
          flush=True)


# ---- histograms, as protocol/base/hist.c has them

def edge(bucket):
    if bucket < 32:
        return bucket
    shift = bucket // 32 - 1
    return ((32 + bucket % 32) << shift) + (1 << shift) - 1


class Hist:
    def __init__(self, count=0, total=0, buckets=None):
        self.count, self.total, self.buckets = count, total, buckets or {}

    @staticmethod
    def of(answer, name):
        hist = answer["histograms"][name]
        return Hist(hist["count"], hist["sum_us"], dict(map(tuple, hist["buckets"])))

    def less(self, other):
        return Hist(self.count - other.count, self.total - other.total,
                    {b: n - other.buckets.get(b, 0) for b, n in self.buckets.items()})

    def plus(self, other):
        keys = set(self.buckets) | set(other.buckets)
        return Hist(self.count + other.count, self.total + other.total,
                    {b: self.buckets.get(b, 0) + other.buckets.get(b, 0) for b in keys})

    def at(self, fraction):
        seen = 0
        for bucket in sorted(self.buckets):
            seen += self.buckets[bucket]
            if seen >= fraction * self.count and seen:
                return edge(bucket)
        return 0


# ---- the daemon and who asks it

class Control:
    """A connection for STATS; one frame each way."""

    def __init__(self):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(SOCKET)
        self.ask(1, {"versions": [1, 1], "client": "gpu.py"})

    def ask(self, kind, head):
        text = json.dumps(head).encode()
        text += b" " * (-len(text) % 8)
        self.socket.sendall(struct.pack("<IBBHQII", 0x45434C53, 1, kind, 0, 0, len(text), 0) + text)
        *_, head_bytes, payload = struct.unpack("<IBBHQII", self.take(24))
        answer = json.loads(self.take(head_bytes))
        self.take(payload)
        return answer

    def take(self, size):
        data = b""
        while len(data) < size:
            piece = self.socket.recv(size - len(data))
            if not piece:
                raise RuntimeError("the daemon closed the connection")
            data += piece
        return data

    def stats(self):
        return Poll(self.ask(9, {"buckets": True}))

    def model(self):
        return self.ask(11, {})


class Poll:
    HISTS = ("step_compute", "step_gap", "inter_token_latency", "time_to_first_token", "host_in")

    def __init__(self, answer):
        counters = answer["counters"]
        self.at_us, self.gauges = answer["uptime_us"], answer["gauges"]
        self.steps, self.ahead = counters["steps_total"], counters["steps_ahead_total"]
        self.counters = counters
        self.prompt, self.generated = counters["prompt_tokens_total"], counters["generated_tokens_total"]
        self.ended = counters["finished_length_total"]
        self.hist = {name: Hist.of(answer, name) for name in self.HISTS}

    def since(self, before, name):
        return self.hist[name].less(before.hist[name])


class Daemon:
    def __init__(self, build, model, *options):
        self.build, begin = build, time.monotonic()
        os.makedirs(CACHE, exist_ok=True)
        self.log = open(os.path.join(FOLDER, "log"), "w+")
        self.process = subprocess.Popen(
            [os.path.join(build, "daemon/sluiced"), "--model", model, "--device", "cuda", "--module-dir",
             os.path.join(build, "gpu"), "--socket", SOCKET, "--log-requests", "no", "--cache-dir",
             CACHE, *options], stderr=self.log)
        while subprocess.run(self.command("health"), capture_output=True).returncode != 0:
            if self.process.poll() is not None or time.monotonic() - begin > 60:
                self.process.kill()
                self.log.seek(0)
                raise RuntimeError("the daemon is not ready: " + self.log.read()[-1500:])
            time.sleep(0.02)
        print(f"       {model} ready after {time.monotonic() - begin:.2f} s", flush=True)
        self.socket, self.control = SOCKET, Control()

    def command(self, *args):
        return [os.path.join(self.build, "client/sluice"), *args, "--socket", SOCKET]

    def client(self, lines):
        """A batch on its way: `sluice generate`, streaming."""
        handle, path = tempfile.mkstemp(dir=FOLDER)
        with os.fdopen(handle, "w") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)
        return subprocess.Popen(self.command("generate", "--file", path, "--json"), stdout=subprocess.DEVNULL)

    def run(self, lines, every=0.02):
        """The answers of STATS while the batch runs, and one after it."""
        client, polls = self.client(lines), [self.control.stats()]
        while client.poll() is None:
            time.sleep(every)
            polls.append(self.control.stats())
        if client.returncode:
            raise RuntimeError(f"sluice ended with {client.returncode}")
        return polls

    def cpu_s(self):
        with open(f"/proc/{self.process.pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self):
        self.process.terminate()
        self.process.wait(60)


def prompts(count, tokens, out, seed=1, vocab=VOCAB):
    rng = random.Random(seed)
    return [{"tokens": [rng.randrange(vocab - 256) for _ in range(tokens)], "max_tokens": out, "ignore_eos": True}
            for _ in range(count)]


class Steady:
    """Of the stretches with exactly `rows` rows: steps, device time (computing, and between steps), tokens a second."""

    def __init__(self, polls, rows, least=100):
        self.steps = self.ahead = self.wall_us = 0
        self.compute, self.gap = Hist(), Hist()
        for a, b in zip(polls, polls[1:]):
            steps = b.steps - a.steps
            if steps == 0 or b.prompt != a.prompt or b.generated - a.generated != rows * steps:
                continue
            self.steps += steps
            self.ahead += b.ahead - a.ahead
            self.compute = self.compute.plus(b.since(a, "step_compute"))
            self.gap = self.gap.plus(b.since(a, "step_gap"))
        if self.steps < least:
            raise RuntimeError(f"only {self.steps} steps of exactly {rows} rows")
        self.step_us = (self.compute.total + self.gap.total) / self.steps
        self.rate = rows * 1e6 / self.step_us

    def text(self):
        return f"{self.rate:,.0f} tok/s ({self.step_us / 1000:.3f} ms, {self.steps} steps, " \
               f"{100 * self.ahead / self.steps:.0f} % enqueued ahead)"


def format_bytes(model):
    """Weights in 16 bits but for the embedding, and bytes of each of the others, with what they come with."""
    weights, embedding = model.get("formats", {}).get("weights", {}), model["vocabulary"] * model["hidden"]
    packed = sum(size for name, size in weights.items() if name not in ("bf16", "f16"))
    if not packed:
        return model["parameters"] - embedding, 2
    plain = max(0, (sum(weights.values()) - packed) / 2 - embedding)
    return plain, packed / (model["parameters"] - embedding - plain)


def step_bytes(model, rows):
    """Of the weights that a step of so many rows reads: of a mixture the experts that some row is expected to take,
    which are of the packed ones where there are such, while what is in 16 bits beside them every step reads."""
    once, count, top = model["step_parameters"], model["experts"], model["experts_per_token"]
    plain, each = format_bytes(model)
    plain = min(plain, once)
    taken = 0
    if count:
        left = model["parameters"] - once - model["vocabulary"] * model["hidden"]  # not taken; the embedding apart
        taken = left / (1 - top / count) * (1 - top / count - (1 - top / count) ** rows)
    return 2 * plain + each * (once - plain + taken)


def floor_rate(rows, context=192, weights=WEIGHT_BYTES, kv=KV_BYTES, read=None):
    """Tokens a second where products run at the products' rate or the bytes that are read at the read rate."""
    products = max((read or weights) / limits["read"], rows * weights / limits["flops"])
    return rows / (products + rows * context * kv / limits["read"])


# ---- rows

def steady_one(daemon, vocab=VOCAB):
    polls = [poll for _ in range(4) for poll in daemon.run(prompts(1, 120, 136, vocab=vocab))]
    return Steady(polls[1:], 1, 300)


def steady_many(daemon, rows, vocab=VOCAB):
    daemon.run(prompts(rows, 104, 24, vocab=vocab))
    return Steady([poll for _ in range(2) for poll in daemon.run(prompts(rows, 104, 152, vocab=vocab))], rows)


def single(daemon, name, weights, kv, gate, share):
    steady = steady_one(daemon)
    rate = (weights + 192 * kv) / steady.step_us * 1e6
    limit = limits["read"] / (weights + 192 * kv)
    good = steady.rate >= gate and (not share or rate >= share * limits["read"])
    row(name, f"{steady.text()}, {100 * rate / limits['read']:.1f} % of the read rate", f"{gate:,} tok/s", good,
        f"{limit:,.0f}")


def decode(daemon, rows, gate):
    steady = steady_many(daemon, rows)
    shares[rows] = steady.rate / floor_rate(rows)
    row(f"decode, batch {rows}", steady.text(), f"{gate:,} tok/s" if gate else "none", steady.rate >= gate,
        f"{floor_rate(rows):,.0f}")


def family(daemon):
    """One sequence beside the read rate, many beside their limit; sizes are what the daemon says of the model."""
    model = daemon.control.model()
    vocab, kv, once = model["vocabulary"], model["kv_token_bytes"], model["step_parameters"]
    weights = step_bytes(model, 1)
    daemon.run(prompts(FAMILY_ROWS, 128, 8, vocab=vocab))
    one, many = steady_one(daemon, vocab), steady_many(daemon, FAMILY_ROWS, vocab)
    reads = (weights + 192 * kv) / one.step_us * 1e6 / limits["read"]
    limit = floor_rate(FAMILY_ROWS, weights=2 * once, kv=kv, read=step_bytes(model, FAMILY_ROWS))
    share, asked = many.rate / limit, FAMILY_SHARE * shares[FAMILY_ROWS]
    row(f"{model['model'].partition(':')[2]}, decode, batch 1 / {FAMILY_ROWS}",
        f"{one.rate:,.0f} tok/s, {100 * reads:.1f} % of the read rate / {many.rate:,.0f} tok/s, {100 * share:.1f} % of "
        f"its limit (8B {100 * shares[FAMILY_ROWS]:.1f} %; {one.step_us / 1000:.3f} and {many.step_us / 1000:.3f} ms)",
        f"{100 * FAMILY_READS:.0f} % / {100 * asked:.1f} %", reads >= FAMILY_READS and share >= asked,
        f"{limits['read'] / (weights + 192 * kv):,.0f} / {limit:,.0f}", "gpu-families")


INVARIANT = {1: 0.60, 16: 0.60, 64: 0.75, 128: 0.75, 256: 0.75}  # rows: of the speed without


def invariant_run(build, options):
    """One daemon after the other; each rate with the option beside the same without it."""
    rates = []
    records["gpu-invariant"] = []
    for own in ((), ("--invariant", "yes")):
        daemon = Daemon(build, "synthetic:llama-3.1-8b", *NO_CACHE, *own, *options)
        try:
            daemon.run(prompts(256, 128, 8))
            steady = {rows: steady_one(daemon) if rows == 1 else steady_many(daemon, rows) for rows in INVARIANT}
            rates.append({**{rows: steady[rows].rate for rows in steady}, "prefill": prefill_rate(daemon)[0]})
        finally:
            daemon.stop()
    for rows, least in INVARIANT.items():
        share = rates[1][rows] / rates[0][rows]
        row(f"invariant, decode, batch {rows}",
            f"{rates[1][rows]:,.0f} tok/s, {100 * share:.1f} % of {rates[0][rows]:,.0f} without", f"{100 * least:.0f} %",
            share >= least, kept="gpu-invariant")
    share = rates[1]["prefill"] / rates[0]["prefill"]
    row("invariant, prefill", f"{rates[1]['prefill']:,.0f} tok/s, {100 * share:.1f} % of {rates[0]['prefill']:,.0f} without",
        "60 %", share >= 0.6, kept="gpu-invariant")


def gap(daemon):
    steady = Steady(daemon.run(prompts(64, 120, 600)), 64, 500)
    p50, p99 = steady.gap.at(0.5), steady.gap.at(0.99)
    row("gap between steps, batch 64, p50 / p99", f"{p50} / {p99} us ({steady.gap.count} gaps)", "10 / 50 us",
        p50 <= 10 and p99 <= 50)


def host(daemon):
    client = daemon.client(prompts(128, 120, 500))
    while daemon.control.stats().gauges["running"] < 128:
        time.sleep(0.02)
    time.sleep(0.3)
    begin, cpu = time.monotonic(), daemon.cpu_s()
    time.sleep(2)
    share = (daemon.cpu_s() - cpu) / (time.monotonic() - begin)
    running = daemon.control.stats().gauges["running"]
    client.wait()
    row("host CPU of the daemon, batch 128, streaming", f"{100 * share:.0f} % of a core", "50 %",
        share <= 0.5 and running == 128)


def first_token(daemon):
    def ask(count, seed):
        for i in range(count):
            daemon.client(prompts(1, 128, 1, seed + i)).wait()
        return daemon.control.stats()
    before = ask(5, 0)
    times = ask(200, 100).since(before, "time_to_first_token")
    p50, p99 = times.at(0.5) / 1000, times.at(0.99) / 1000
    row("unloaded time to first token, 128 tokens, p50 / p99", f"{p50:.2f} / {p99:.2f} ms ({times.count} requests)",
        "8 / 15 ms", p50 <= 8 and p99 <= 15, "4")


def very_first(daemon):
    """Before any other request; the daemon has just come up."""
    before = daemon.control.stats()
    daemon.client(prompts(1, 128, 1)).wait()
    first = daemon.control.stats().since(before, "time_to_first_token")
    row("first token of the very first request, 128 tokens", f"{first.total / 1000:.2f} ms", "none", first.count == 1)


def busy(polls):
    """From the last answer before any work to the first one with all of it done, in microseconds."""
    begin = max(i for i, poll in enumerate(polls) if poll.steps == polls[0].steps)
    end = min(i for i, poll in enumerate(polls) if poll.ended == polls[-1].ended)
    return polls[end].at_us - polls[begin].at_us


def burst_rate(daemon):
    polls = daemon.run(prompts(2048, 128, 128))
    rate = 2048 * 128 / busy(polls) * 1e6
    steps = polls[-1].steps - polls[0].steps
    device_us = polls[-1].since(polls[0], "step_compute").total
    return rate, f"{rate:,.0f} output tok/s ({steps} steps, {device_us / 1e6:.1f} of {busy(polls) / 1e6:.1f} s computing)"


def burst(daemon):
    rate, text = burst_rate(daemon)
    limit = 1 / (1 / floor_rate(256) + WEIGHT_BYTES / limits["flops"])
    row("2,048 requests of 128 in, 128 out at once", text, "17,000 tok/s", rate >= 17000, f"{limit:,.0f}")


def prefill_rate(daemon):
    polls = [poll for poll in daemon.run(prompts(960, 512, 1), 0.1)]
    inside = [poll for poll in polls if polls[0].prompt + 16384 <= poll.prompt <= polls[-1].prompt - 16384]
    a, b = inside[0], inside[-1]
    rate = (b.prompt - a.prompt) / (b.at_us - a.at_us) * 1e6
    return rate, f"{rate:,.0f} tok/s over {(b.at_us - a.at_us) / 1e6:.1f} s, " \
                 f"{(b.prompt - a.prompt) / (b.steps - a.steps):,.0f} tokens a step"


def prefill(daemon):
    rate, text = prefill_rate(daemon)
    row("prefill, prompts of 512", text, "42,000 tok/s", rate >= 42000, f"{limits['flops'] / WEIGHT_BYTES:,.0f}")


def bench_kernels(build, *what):
    path = glob.glob(os.path.join(build, "**/bench_kernels"), recursive=True)[0]
    out = subprocess.run([path, *what], capture_output=True, text=True, timeout=120).stdout
    limits.setdefault("read", float(re.search(r"HBM read (\d+)", out).group(1)) * 1e9)
    return out


# what the row says, prompts, their tokens, dimension, TFLOP/s
PREFILL_ATTENTION = (("8k", 1, 8192, 128, 560), ("2k", 4, 2048, 128, 520), ("512", 16, 512, 128, 290),
                     ("8k, dimension 64", 1, 8192, 64, 430))


def kernels(build):
    for what in ("decode", "prefill"):
        out = bench_kernels(build, what)
        if what == "decode":
            found = re.search(r"32 x +4096, 32/8 heads of 128, blocks of +32: +([\d.]+) us +(\d+) GB/s = +([\d.]+)",
                              out)
            share = float(found.group(3))
            row("decode attention, 32 x 4,096", f"{found.group(1)} us, {int(found.group(2)):,} GB/s, {share} % of the "
                "read rate of its run", "85 %", share >= 85)
        else:
            for what, count, tokens, dim, gate in PREFILL_ATTENTION:
                rate = int(re.search(rf" {count} x +{tokens} behind +0, 32/8 heads of +{dim}: +[\d.]+ us +(\d+) TFLOP/s",
                                     out).group(1))
                row(f"prefill attention, causal, {what}", f"{rate} TFLOP/s", f"{gate} TFLOP/s", rate >= gate)


def limits_run(program):
    out = subprocess.run([program], capture_output=True, text=True, timeout=120).stdout
    values = {line.split()[0]: float(line.split()[1]) for line in out.splitlines()
              if len(line.split()) >= 3 and re.fullmatch(r"[\d.]+", line.split()[1])}
    limits["read"] = values["hbm_read"] * 1e9
    limits["flops"] = values["cublasLt_bf16_8B_layer_M4096_flops"] * 1e12
    print(f"       limits: read {values['hbm_read']:,.0f} GB/s, products {limits['flops'] / 1e12:,.0f} TFLOP/s",
          flush=True)


LARGE = {
    "1": lambda daemon: single(daemon, "decode, batch 1, 8B", WEIGHT_BYTES, KV_BYTES, 257, 0.85),
    "64": lambda daemon: decode(daemon, 64, 0),
    "128": lambda daemon: decode(daemon, 128, 20000),
    "256": lambda daemon: decode(daemon, 256, 28000),
    "gap": gap,
    "host": host,
    "ttft": first_token,
    "prefill": prefill,
    "burst": burst,
}


# Latency under load: --only latency, or one of these.
LATENCY = ("rate-10", "rate-20", "rate-28", "peer-10", "peer-20", "peer-28", "4096", "saturated", "itl-25ms")


def latency_row(*args):
    row(*args, kept="gpu-latency")


def latency(daemon, name, args):
    if name == "4096":
        gpu_latency.beside(daemon, latency_row, prompts)
    elif name == "saturated":
        gpu_latency.saturated(daemon, latency_row, args.seconds)
    elif name == "itl-25ms":  # a tighter target does not make first tokens later than these
        gpu_latency.rate(daemon, latency_row, 20, args.seconds, args.seeds, ", --itl-target 25ms")
    elif name.startswith("peer"):  # what arrived when vLLM's figures were taken
        gpu_latency.beside_peer(daemon, latency_row, int(name.partition("-")[2]))
    else:
        gpu_latency.rate(daemon, latency_row, int(name.partition("-")[2]), args.seconds, args.seeds)


def latency_run(build, names, args, options):
    """Those with the targets of the daemon's own first, then that with another."""
    for own in (True, False):
        some = [name for name in names if (name != "itl-25ms") == own]
        if not some:
            continue
        daemon = Daemon(build, "synthetic:llama-3.1-8b", *NO_CACHE, *([] if own else ["--itl-target", "25ms"]),
                        *options)
        attempt("warm-up", daemon.run, prompts(256, 128, 8))
        for name in some:
            attempt(name, latency, daemon, name, args)
        daemon.stop()


def attempt(name, what, *args):
    try:
        what(*args)
    except Exception as error:  # the other rows are worth their time all the same
        row(name, f"failed: {error}", "", False)


def started_run(build, name, options):
    kept = "gpu-" + name
    records[kept] = []
    model = gpu_sleep.FIRST.get(name, "synthetic:llama-3.1-8b")
    attempt(name, STARTED[name], lambda *own: Daemon(build, model, *own, *options),
            lambda *given: row(*given, kept=kept), prompts)


def formats_run(build, names, options):
    measures = {"one": steady_one, "many": steady_many, "prefill": prefill_rate, "burst": burst_rate}
    for name in names:
        daemon = None
        try:
            daemon = Daemon(build, f"synthetic:llama-3.1-8b:{name}", *NO_CACHE, *gpu_formats.FORMATS[name], *options)
            daemon.run(prompts(256, 128, 8))
            gpu_formats.rows(daemon, row, name, measures, limits["read"])
        except Exception as error:
            row(name, f"failed: {error}", "", False, kept="gpu-formats")
        if daemon:
            daemon.stop()


def experts_run(build, names, options):
    measures = {"one": steady_one, "many": steady_many, "burst": burst_rate,
                "saturated": lambda daemon: gpu_experts.saturated(daemon, daemon.run, busy, prompts),
                "limit": lambda daemon, count: count * limits["read"] / step_bytes(daemon.control.model(), count)}
    for name in names:
        daemon = None
        try:
            if name == gpu_experts.LAYER:
                out = bench_kernels(build, "experts", gpu_experts.SHAPE + ":16 bits")
                gpu_experts.layer_rows(out, 128, row)
                continue
            daemon = Daemon(build, f"synthetic:{gpu_experts.ROWS[name]}", *NO_CACHE, *options)
            gpu_experts.rows(daemon, row, gpu_experts.ROWS[name], measures)
        except Exception as error:
            row(name, f"failed: {error}", "", False, kept="gpu-experts")
        if daemon:
            daemon.stop()


def jobs_row(*args):
    row(*args, kept="gpu-jobs")


def jobs_run(build, names, options):
    """Their daemons have the model that a row names; "" is none."""
    for name in names:
        try:
            gpu_jobs.ROWS[name](build, lambda model, *own: Daemon(build, model, *own, *options), jobs_row, prompts)
        except Exception as error:
            jobs_row(name, f"failed: {error}", "", False)


def families_run(build, names, options):
    for name in names:
        daemon = None
        try:
            daemon = Daemon(build, "synthetic:" + name, *NO_CACHE, *options)
            family(daemon)
        except Exception as error:
            row(name, f"failed: {error}", "", False, kept="gpu-families")
        if daemon:
            daemon.stop()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--limits", help="program that prints the limits")
    parser.add_argument("--only", default="", help=", ".join([
        "base (kernels, 1b, first and each of 1 to burst), kernels, 1b, first, latency, formats, experts, families, jobs", *STARTED,
        "lookup", "draft", "invariant", *LARGE, *LATENCY, *gpu_formats.FORMATS, *gpu_experts.ROWS,
        gpu_experts.LAYER, *FAMILIES, *gpu_jobs.ROWS]))
    parser.add_argument("--seconds", type=float, default=60, help="of each run at a rate (60)")
    parser.add_argument("--seeds", type=int, default=3, help="runs at each rate, of which the median counts (3)")
    args, options = parser.parse_known_args()  # the rest is the daemon's
    build, only = os.path.abspath(args.build), args.only.split(",") if args.only else []
    if "base" in only:
        only += ["kernels", "first", "1b", *LARGE]
    if args.limits:
        limits_run(args.limits)
    jobs = [name for name in gpu_jobs.ROWS if not only or "jobs" in only or name in only]
    if not only or "kernels" in only:
        attempt("kernels", kernels, build)
    elif "read" not in limits and set(only) - {"jobs", *gpu_jobs.ROWS}:  # whose limits are the copies'
        bench_kernels(build, "read")
    families = [name for name in FAMILIES if not only or "families" in only or name in only]
    wanted = [name for name in LARGE if not only or name in only or families and name == str(FAMILY_ROWS)]
    if wanted or "first" in only:
        daemon = Daemon(build, "synthetic:llama-3.1-8b", *NO_CACHE, *options)
        if not only or "first" in only:
            attempt("first", very_first, daemon)
        attempt("warm-up", daemon.run, prompts(256, 128, 8))
        for name in wanted:
            attempt(name, LARGE[name], daemon)
        daemon.stop()
    for name in STARTED:
        if not only or name in only:
            started_run(build, name, options)
    if not only or "lookup" in only:
        records["gpu-lookup"] = []
        attempt("lookup", gpu_answers.lookup, build, lambda *given: row(*given, kept="gpu-lookup"), CACHE)
    if not only or "draft" in only:
        records["gpu-draft"] = []
        attempt("draft", gpu_answers.draft, build, lambda *given: row(*given, kept="gpu-draft"), CACHE)
    if not only or "invariant" in only:
        attempt("invariant", invariant_run, build, options)
    if not only or "1b" in only:
        daemon = Daemon(build, "synthetic:llama-3.2-1b", *NO_CACHE, *options)
        attempt("1b", single, daemon, "decode, batch 1, 1B", SMALL_BYTES, SMALL_KV_BYTES, 1300, 0)
        daemon.stop()
    latency_run(build, [name for name in LATENCY if not only or "latency" in only or name in only], args, options)
    formats_run(build, [name for name in gpu_formats.FORMATS if not only or "formats" in only or name in only], options)
    experts_run(build, [name for name in (*gpu_experts.ROWS, gpu_experts.LAYER)
                        if not only or "experts" in only or name in only], options)
    families_run(build, families, options)
    jobs_run(build, jobs, options)
    print("\n| what | figure | gate | limit |\n| --- | --- | --- | --- |")
    for line in table:
        print("| " + " | ".join(line) + " |")
    print(f"\n{len(failures)} short" + (": " + "; ".join(failures) if failures else ""))
    for name, rows in records.items():
        if rows and (not only or (name.partition("-")[2] or "base") in only):
            record.keep(name, rows, build, round(limits["read"] / 1e9) if "read" in limits else None)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
