"""Rows of gpu.py: what requests ask beyond tokens, beside the same load without it, in one daemon.

`constrained`: each request has a schema of its own, with names of its own and texts that do not end before the row does, at batch 64
and alone. `adapters`: 64 rows over 1, 8 and 64 adapters of rank 16, on all seven matrices and on q and v alone. `lookup`: rows that
bring guesses, by `bench_step`: how much faster a step with them makes a sequence of whose guesses half or all stand; `draft`: the same
of a draft model's.
"""

import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../client/python"))
from sluice_client import AsyncClient, Constraint  # noqa: E402

LAYERS, HIDDEN, KV, WIDE = 32, 4096, 1024, 14336  # of llama-3.1-8b
ATTENTION = {"self_attn.q_proj": (HIDDEN, HIDDEN), "self_attn.v_proj": (HIDDEN, KV)}
ALL = ATTENTION | {"self_attn.k_proj": (HIDDEN, KV), "self_attn.o_proj": (HIDDEN, HIDDEN),
                   "mlp.gate_proj": (HIDDEN, WIDE), "mlp.up_proj": (HIDDEN, WIDE), "mlp.down_proj": (WIDE, HIDDEN)}
RANK, BATCH, OUT, SECONDS = 16, 64, 600, 1.5
ADAPTED = {"q and v": (ATTENTION, {1: 95, 8: 94, 64: 90}), "all seven matrices": (ALL, {1: 91, 8: 88, 64: 72})}
CONSTRAINED = {64: 95, 1: 97}
GUESSES, HALF_STAND = 4, 1.6
DRAFTS = (("synthetic:llama-3.2-1b", "a 1B draft model", 2.4), ("synthetic:llama-3.1-8b-eagle3", "an EAGLE-3 head", 3.4))
DRAFT_IDLE = 0.98


def rate(daemon, lines, own):
    """Tokens a second while all of these run, and the figures of before and after."""
    async def load():
        async with AsyncClient(daemon.socket, timeout=60) as client:
            answers = [asyncio.create_task(client.generate(line["tokens"], max_tokens=OUT, text=False, **options))
                       for line, options in zip(lines, own)]
            start, begin = daemon.control.stats().generated, time.monotonic()
            while True:
                await asyncio.sleep(0.02)
                first = daemon.control.stats()
                if first.gauges["running"] == len(lines) and first.generated - start >= 8 * len(lines):
                    break
                if time.monotonic() - begin > 30 or any(one.done() for one in answers):
                    raise RuntimeError(f"{first.gauges['running']} of {len(lines)} run")
            await asyncio.sleep(SECONDS)
            last = daemon.control.stats()
            if last.gauges["running"] != len(lines):
                raise RuntimeError("some ended before they were measured")
            await asyncio.gather(*answers)
            return first, last
    first, last = asyncio.run(load())
    return (last.generated - first.generated) * 1e6 / (last.at_us - first.at_us), first, last


def steps(first, last):
    compute, gap = last.since(first, "step_compute"), last.since(first, "step_gap")
    ahead = 100 * (last.ahead - first.ahead) / max(last.steps - first.steps, 1)
    return f"a step {compute.at(0.5) / 1000:.2f} ms and {gap.at(0.5)} us before it, {ahead:.0f} % enqueued ahead"


def schema(number):
    texts = {f"field_{number}_{i}": {"type": "string", "minLength": OUT} for i in range(3)}
    return {"type": "object", "properties": texts, "required": list(texts), "additionalProperties": False}


def constrained(start, row, prompts):
    daemon = start("--prefix-cache", "no")
    try:
        for rows, gate in CONSTRAINED.items():
            lines = prompts(rows, 104, OUT)
            daemon.run(prompts(rows, 104, 24))
            free, *alone = rate(daemon, lines, [{"ignore_eos": True}] * rows)
            held, first, last = rate(daemon, lines, [{"constraint": Constraint.schema(schema(i))} for i in range(rows)])
            late = last.counters["masks_late_total"] - first.counters["masks_late_total"]
            masks = last.counters["masks_total"] - first.counters["masks_total"]
            row(f"constrained, batch {rows}, a schema each",
                f"{100 * held / free:.1f} % of {free:,.0f} tok/s ({late} of {masks} masks late; {steps(first, last)}, without "
                f"{steps(*alone)})", f"{gate} %",
                100 * held >= gate * free)
    finally:
        daemon.stop()


def write_adapter(folder, matrices):
    """PEFT's files, of which the tensors are a hole: zeros cost what other numbers do."""
    shapes = {}
    for layer in range(LAYERS):
        for name, (columns, rows) in matrices.items():
            base = f"base_model.model.model.layers.{layer}.{name}"
            shapes[f"{base}.lora_A.weight"], shapes[f"{base}.lora_B.weight"] = (RANK, columns), (rows, RANK)
    head, at = {}, 0
    for name, shape in shapes.items():
        size = 2 * shape[0] * shape[1]
        head[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    os.mkdir(folder)
    with open(os.path.join(folder, "adapter_model.safetensors"), "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + at)
    modules = sorted({name.rpartition(".")[2] for name in matrices})
    with open(os.path.join(folder, "adapter_config.json"), "w") as file:
        json.dump({"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": RANK, "lora_alpha": RANK, "bias": "none",
                   "target_modules": modules}, file)


def adapters(start, row, prompts):
    for what, (matrices, gates) in ADAPTED.items():
        folder = os.path.join(tempfile.mkdtemp(), "adapter")
        write_adapter(folder, matrices)
        many = [option for i in range(max(gates)) for option in ("--adapter", f"a{i}={folder}")]
        daemon = start("--prefix-cache", "no", *many)
        try:
            lines = prompts(BATCH, 104, OUT)
            daemon.run(prompts(BATCH, 104, 24))
            base, *_ = rate(daemon, lines, [{"ignore_eos": True}] * BATCH)
            for count, gate in gates.items():
                with_them, *_ = rate(daemon, lines,
                                     [{"ignore_eos": True, "adapter": f"a{i % count}"} for i in range(BATCH)])
                row(f"64 rows over {count} adapters of rank {RANK}, {what}",
                    f"{100 * with_them / base:.1f} % of {base:,.0f} tok/s", f"{gate} %", 100 * with_them >= gate * base)
        finally:
            daemon.stop()


def lookup(build, row, cache):
    """A step of 1 + k tokens brings 1 + s tokens where s of its guesses stand."""
    path = os.path.join(build, "tests/bench/bench_step")
    out = subprocess.run([path, "--cache", cache, "synthetic:llama-3.1-8b", "1", f"1^{GUESSES}"],
                         capture_output=True, text=True, timeout=120, check=True).stdout
    (_, step, gap), (_, with_them, turn) = re.findall(r"1 rows(.*?) \+ 0 @ 128: step ([\d.]+) us .*?gap ([\d.]+)", out)
    cost = (float(with_them) + float(turn)) / (float(step) + float(gap))
    half, whole = (1 + GUESSES / 2) / cost, (1 + GUESSES) / cost
    row(f"a sequence with {GUESSES} guesses a step, half / all of which stand",
        f"{half:.2f} / {whole:.2f} times (a step {with_them} us and {turn} before it; without guesses {step} and {gap})",
        f"{HALF_STAND:g} times", half >= HALF_STAND)


def draft(build, row, cache):
    """The same with a model of 1B beside it, or a head, whose guesses' time counts, too; and steps without any, of models
    of whom one has a draft model and one has none: what it costs to have one that is not asked."""
    path = os.path.join(build, "tests/bench/bench_step")

    def steps(*arguments):
        out = subprocess.run([path, "--cache", cache, *arguments], capture_output=True, text=True, timeout=240, check=True).stdout
        found = re.findall(r"rows(?: with \d+ guesses \(([\d.]+) us\))? \+ 0 @ 128: step ([\d.]+) us .*?gap ([\d.]+)", out)
        return [sum(float(part or 0) for part in one) for one in found], found

    (alone, many), _ = steps("synthetic:llama-3.1-8b", "1", "64")
    for name, what, asked in DRAFTS:
        (beside, guessing, many_beside), found = steps("--draft", name, "synthetic:llama-3.1-8b", "1", f"1^{GUESSES}", "64")
        whole = (1 + GUESSES) * alone / guessing
        row(f"a sequence with {GUESSES} guesses a step of {what}, all of which stand",
            f"{whole:.2f} times (guesses {found[1][0]} us, the step {found[1][1]}, the gap {found[1][2]}; without {alone:.1f})",
            f"{asked:g} times", whole >= asked)
        least = min(alone / beside, many / many_beside)
        row(f"steps of 1 / 64 rows without guesses, where there is {what}",
            f"{alone / beside:.3f} / {many / many_beside:.3f} times those without one", f"{DRAFT_IDLE:g}", least >= DRAFT_IDLE)


ROWS = {"constrained": constrained, "adapters": adapters}
