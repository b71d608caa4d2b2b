#!/usr/bin/env python3
"""Masks beside the package llguidance, in one run on one core: llguidance_bench.py PROGRAM [DATA] [--every N] [--cpu N]

PROGRAM is constrain_lines of a release build; DATA is maskbench/data of guidance-ai/jsonschemabench. Both compile every
Nth of its schemas, and nested ones of 50 properties, over the same 128,000 tokens, and make a mask before each token of
the valid instances; every schema is met for the first time. Counted are schemas that both take, with instances that both
read to their end. Times are the thread's, in microseconds. Exit 1 where a mean, a 99th of 100 or compiling takes longer
than llguidance's; 77 without the package.
"""
import argparse
import collections
import ctypes
import glob
import json
import os
import random
import re
import sys
import tempfile
import time

sys.path.insert(0, __file__.rsplit("/", 1)[0])
import lines  # noqa: E402

TOKENS = 128000
PIECE = re.compile(rb"[ \"]?[A-Za-z_]+|[ \"]?\d{1,3}|[ ]?[^\sA-Za-z\d]{1,4}|\s+")


def vocabulary(texts, draw):
    """All bytes, pieces of the texts by how common they are, then drawn words; the last is the end."""
    counts = collections.Counter(piece for text in texts for piece in PIECE.findall(text))
    tokens = {bytes([byte]): None for byte in range(256)}
    for piece, _ in counts.most_common(40000):
        tokens.setdefault(piece[:24])
    while len(tokens) < TOKENS - 1:
        word = bytes(draw.choice(b"etaoinshrdlucmfwypvbgkjqxzETAOINSHRDLU") for _ in range(draw.randrange(2, 12)))
        tail = draw.choice([b"\",", b"\":", b"\"}", b"\"", b"\\", b"\n", b"\xc3", b",", b".", b")"]) if draw.random() < 0.08 else b""
        tokens.setdefault((b" " if draw.random() < 0.5 else b"") + word + tail)
    return list(tokens) + [b""]


class Tokenizer:
    """As llguidance wants one: the longest token that begins here."""

    def __init__(self, tokens):
        self.eos_token_id = len(tokens) - 1
        self.bos_token_id = None
        self.tokens = tokens[:-1] + [b"<|end|>"]
        self.special_token_ids = [self.eos_token_id]
        self.ids = {token: i for i, token in enumerate(tokens[:-1])}
        self.longest = max(map(len, self.ids))

    def __call__(self, text):
        out, at = [], 0
        while at < len(text):
            size = next(n for n in range(min(self.longest, len(text) - at), 0, -1) if text[at : at + n] in self.ids)
            out.append(self.ids[text[at : at + size]])
            at += size
        return out


def nested(draw, names, depth):
    """Of about 50 properties, with an instance."""
    properties, instance = {}, {}
    while names[0] > 0 and len(properties) < 8:
        names[0] -= 1
        name = f"{draw.choice(['user', 'order', 'item', 'address', 'status', 'value'])}_{names[0]}"
        kind = draw.randrange(6) if depth else draw.randrange(4)
        if kind == 0:
            bound = {"maxLength": 40} if draw.random() < 0.25 else {}
            properties[name], instance[name] = {"type": "string", **bound}, "a value of some words"
        elif kind == 1:
            properties[name], instance[name] = {"type": "integer", "minimum": 0, "maximum": 5000}, draw.randrange(5000)
        elif kind == 2:
            properties[name], instance[name] = {"enum": ["new", "paid", "sent", "gone"]}, "paid"
        elif kind == 3:
            properties[name], instance[name] = {"type": ["boolean", "null"]}, True
        elif kind == 4:
            inner, value = nested(draw, names, depth - 1)
            properties[name], instance[name] = {"type": "array", "items": inner, "maxItems": 4}, [value, value]
        else:
            properties[name], instance[name] = nested(draw, names, depth - 1)
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}, instance


def nested_set(count):
    out = []
    for seed in range(count):
        draw, names = random.Random(seed), [50]
        parts = [nested(draw, names, 2) for _ in range(12) if names[0] > 0]
        schema = {"type": "object", "properties": {f"part{i}": part for i, (part, _) in enumerate(parts)},
                  "required": [f"part{i}" for i in range(len(parts))], "additionalProperties": False}
        out.append((schema, [{f"part{i}": value for i, (_, value) in enumerate(parts)}]))
    return out


def maskbench_set(data, every):
    out = []
    for name in sorted(glob.glob(f"{data}/*.json"))[::every]:
        with open(name, encoding="utf-8") as file:
            one = json.load(file)
        out.append((one["schema"], [test["data"] for test in one["tests"] if test["valid"]][:3]))
    return out


class Ours:
    def __init__(self, program, tokens):
        self.program = program
        self.file = tempfile.NamedTemporaryFile("w", suffix=".tokens")
        self.file.writelines(token.hex() + "\n" for token in tokens)
        self.file.flush()

    def run(self, work):
        """Of each schema: the compile's time, or None, and of each instance (taken, masks, reads)."""
        asked = []
        for schema, instances in work:
            asked += ["S " + lines.text(schema), "B"] + ["T " + " ".join(map(str, ids)) for ids in instances]
        answers, out = iter(lines.ask(self.program, asked, self.file.name)), []
        for _, instances in work:
            taken, compiled = next(answers) == "ok", next(answers)
            read = [next(answers).split() for _ in instances]
            out.append((float(compiled) if taken else None,
                        [(one[1] == "1", [float(t) for t in one[2::2]], [float(t) for t in one[3::2]]) for one in read if len(one) > 1]))
        return out


class Theirs:
    def __init__(self, tokens):
        import llguidance

        self.module = llguidance
        self.tokenizer = llguidance.LLTokenizer(llguidance.TokenizerWrapper(Tokenizer(tokens)))
        self.words = (ctypes.c_uint32 * ((len(tokens) + 31) // 32))()

    def read(self, matcher, ids):
        address, size, masks, reads = ctypes.addressof(self.words), ctypes.sizeof(self.words), [], []
        for token in ids:
            begin = time.thread_time_ns()
            matcher.unsafe_compute_mask_ptr(address, size)
            masked = time.thread_time_ns()
            if not self.words[token // 32] >> token % 32 & 1:
                return False, masks, reads
            middle = time.thread_time_ns()
            taken = matcher.consume_token(token)
            done = time.thread_time_ns()
            masks.append((masked - begin) / 1000)
            reads.append((done - middle) / 1000)
            if not taken:
                return False, masks, reads
        return True, masks, reads

    def run(self, work):
        out = []
        for schema, instances in work:
            text = json.dumps(schema)
            begin = time.thread_time_ns()
            try:
                matcher = self.module.LLMatcher(self.tokenizer, self.module.LLMatcher.grammar_from_json_schema(text))
            except ValueError:
                matcher = None
            compiled = (time.thread_time_ns() - begin) / 1000
            if matcher is None or matcher.is_error():
                out.append((None, []))
                continue
            read = []
            for ids in instances:
                read.append(self.read(matcher, ids))
                matcher.reset()
            out.append((compiled, read))
        return out


def figures(values):
    values = sorted(values)
    count = len(values)
    return (sum(values) / count, values[count * 99 // 100], values[-1]) if values else (0, 0, 0)


def compare(name, ours, theirs):
    sides, schemas, instances = [([], [], []), ([], [], [])], 0, 0
    for one, other in zip(ours, theirs):
        if one[0] is None or other[0] is None:
            continue
        schemas += 1
        for side, (compiled, _) in zip(sides, (one, other)):
            side[0].append(compiled)
        for mine, others in zip(one[1], other[1]):
            if not mine[0] or not others[0]:
                continue
            instances += 1
            for side, read in zip(sides, (mine, others)):
                side[1].extend(read[1])
                side[2].extend(a + b for a, b in zip(read[1], read[2]))
    print(f"{name}: {schemas} schemas and {instances} instances that both take, {len(sides[0][1])} masks")
    worse = False
    for i, what in enumerate(["compile", "mask", "mask and token"]):
        both = [figures(side[i]) for side in sides]
        print(f"  {what:14}  " + "  ".join(f"{who}: mean {f[0]:8.1f}  p99 {f[1]:9.1f}  worst {f[2]:9.1f}" for who, f in zip(["ours", "llguidance"], both)))
        worse |= both[0][0] > both[1][0] or (i > 0 and both[0][1] > both[1][1])
    return worse


def main():
    options = argparse.ArgumentParser()
    options.add_argument("program")
    options.add_argument("data", nargs="?")
    options.add_argument("--every", type=int, default=10)
    options.add_argument("--nested", type=int, default=40)
    options.add_argument("--cpu", type=int, default=0)
    given = options.parse_args()
    try:
        import llguidance
    except ImportError:
        print("SKIPPED llguidance_bench: the package llguidance is not installed")
        return 77
    os.sched_setaffinity(0, {given.cpu})
    sets = {"nested": nested_set(given.nested)}
    if given.data:
        sets["MaskBench"] = maskbench_set(given.data, given.every)
    texts = [lines.text(value).encode() for work in sets.values() for _, values in work for value in values]
    tokens = vocabulary(texts, random.Random(1))
    tokenizer, worse = Tokenizer(tokens), False
    ours, theirs = Ours(given.program, tokens), Theirs(tokens)
    print(f"llguidance {llguidance.__version__}, {len(tokens)} tokens, microseconds of the thread")
    for name, work in sets.items():
        work = [(schema, [tokenizer(lines.text(value).encode()) for value in values]) for schema, values in work]
        work = [(schema, [ids for ids in values if ids]) for schema, values in work]
        worse |= compare(name, ours.run(work), theirs.run(work))
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
