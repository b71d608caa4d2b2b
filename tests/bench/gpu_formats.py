"""Rows of gpu.py: `synthetic:llama-3.1-8b` with its weights, and keys and values, in each format.

A gate is what issue 22 asks of one H200; a row has as many as it was given. The limit of one sequence is the bytes that a
step reads at the read rate: what the daemon says its weights take, less the embedding, of which a step reads a row.
"""

FP8 = {1: 460, 64: 18500, 128: 29000, 256: 40000, "prefill": 70000, "burst": 27000}
BLOCKS = {what: round(0.9 * rate) for what, rate in FP8.items()}
U4 = {1: 680, 16: 7500, 256: 25400, "prefill": 38700}
KV8 = ("--kv-dtype", "fp8")
FORMATS = {"fp8": KV8, "fp8-blocks": KV8, "u4": (), "u4-zeros": ()}
GATES = {"fp8": FP8, "fp8-blocks": BLOCKS, "u4": U4, "u4-zeros": U4}


def read_limit(model, read):
    weights = sum(model["formats"]["weights"].values()) - 2 * model["vocabulary"] * model["hidden"]
    return read / (weights + 192 * model["kv_token_bytes"])


def rows(daemon, row, name, measures, read):
    """`measures` are gpu.py's: of one sequence, of many, of prompts, of 2,048 at once."""
    model = daemon.control.model()
    for what, gate in GATES[name].items():
        limit = ""
        if what == 1:
            steady = measures["one"](daemon)
            rate, text, limit = steady.rate, steady.text(), f"{read_limit(model, read):,.0f}"
        elif what in measures:
            rate, text = measures[what](daemon)
        else:
            steady = measures["many"](daemon, what)
            rate, text = steady.rate, steady.text()
        title = what if isinstance(what, str) else f"decode, batch {what}"
        row(f"{name}: {title}", text, f"{gate:,} tok/s", rate >= gate, limit, "gpu-formats")
