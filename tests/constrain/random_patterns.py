#!/usr/bin/env python3
"""Random patterns and grammars against Python's re: random_patterns.py PROGRAM [--seeds FIRST..LAST] [--style N]

Of each seed a tree is made, and of it a pattern, a GBNF grammar and an expression for re, which mean the same. What a
model that knows nothing draws from the masks, and ends, must match; and of texts near these exactly those that match are
taken. Exit 1 when one is wrong (its seed is named).
"""
import argparse
import collections
import json
import random
import re
import sys

sys.path.insert(0, __file__.rsplit("/", 1)[0])
import lines  # noqa: E402

CHARACTERS = "abc01 -é€\"\\😀"


class Maker:
    """Each part is (pattern, expression of GBNF, expression of re)."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.rules = []

    def character(self):
        one = self.random.choice(CHARACTERS)
        escaped = "\\" + one if one in "\\-" else one
        return escaped, '"' + one.replace("\\", "\\\\").replace('"', '\\"') + '"', re.escape(one)

    def characters(self):
        inverted = "^" if self.random.random() < 0.3 else ""
        parts = [self.random.choice(["a-c", "0-9", "é", "à-ÿ", "\\-", "€-₭", "x", "\\]", "\\\\"]) for _ in range(self.random.randrange(1, 4))]
        text = f"[{inverted}{''.join(parts)}]"
        return text, text, text

    def named(self):
        name, plain = self.random.choice([("\\d", "[0-9]"), ("\\w", "[0-9A-Za-z_]"), ("\\D", "[^0-9]"), (".", "[^\\n\\r\\u2028\\u2029]")])
        return name, plain, plain

    def part(self, depth):
        kind = self.random.randrange(9)
        if depth <= 0 or kind < 3:
            return self.random.choice([self.character, self.character, self.characters, self.named])()
        if kind < 5:
            parts = [self.part(depth - 1) for _ in range(self.random.randrange(1, 4))]
            return "".join(one[0] for one in parts), "(" + " ".join(one[1] for one in parts) + ")", "".join(one[2] for one in parts)
        if kind < 7:
            parts = [self.part(depth - 1) for _ in range(self.random.randrange(2, 4))]
            return tuple(f"({bars.join(one[i] for one in parts)})" if i != 2 else f"(?:{bars.join(one[i] for one in parts)})" for i, bars in enumerate(["|", " | ", "|"]))
        # re takes exponential time where repetitions without bound stand in each other, or hold alternatives.
        free = self.random.random() < 0.5
        pattern, grammar, expression = self.part(0 if free else depth - 2)
        low = self.random.randrange(3)
        count = self.random.choice(["*", "+", f"{{{low},}}"] if free else ["?", f"{{{low},{low + 1}}}", f"{{{low + 1}}}"])
        if self.random.random() < 0.5:
            self.rules.append(grammar)
            grammar = f"r{len(self.rules)}"
        return f"(?:{pattern}){count}", f"({grammar}){count}", f"(?:{expression}){count}"

    def whole(self):
        pattern, grammar, expression = self.part(3)
        rules = "".join(f"\nr{i + 1} ::= {rule} # {i}" for i, rule in enumerate(self.rules))
        return pattern, f"root ::= {grammar}{rules}\n", expression


def near(maker, text):
    out = ["", text + "a", text[1:], text[:-1], text + text, text.replace("a", "b")]
    if text:
        at = maker.random.randrange(len(text))
        out += [text[:at] + maker.random.choice(CHARACTERS) + text[at + 1 :], text[:at] + text[at + 1 :]]
    return out


def main():
    options = argparse.ArgumentParser()
    options.add_argument("program")
    options.add_argument("--seeds", default="1..300")
    options.add_argument("--style", default="1")
    given = options.parse_args()
    first, last = map(int, given.seeds.split(".."))
    makers = {seed: Maker(seed) for seed in range(first, last + 1)}
    made = {seed: maker.whole() for seed, maker in makers.items()}
    compiled = {seed: re.compile(expression) for seed, (_, _, expression) in made.items()}
    asked, about = [], []
    for seed, (pattern, grammar, _) in made.items():
        for letter, text in (("P", pattern), ("G", grammar)):
            asked += [f"{letter} {lines.text(text)}"] + [f"D {seed * 8 + i}" for i in range(3)]
            about += [(seed, letter)] + [(seed, letter + "D")] * 3
    counts, wrong, second, asked_again = collections.Counter(), [], [], []
    for (seed, kind), line, answer in zip(about, asked, lines.ask(given.program, asked, given.style)):
        if len(kind) == 1:
            counts["compiled" if answer == "ok" else "refused"] += 1
            if answer != "ok" and "nothing finite" not in answer:
                wrong.append(f"seed {seed}: {line[:120]}: {answer}")
            second.append(line)
            asked_again.append(None)
        elif answer.startswith("ended"):
            counts["ended"] += 1
            text = json.loads(answer[6:])
            if not compiled[seed].fullmatch(text):
                wrong.append(f"seed {seed}: {made[seed]}: drawn, and no match: {text!r}")
            for one in near(makers[seed], text):
                second.append("R " + lines.text(one))
                asked_again.append((seed, one))
        else:
            counts["cut"] += answer == "cut"
    for which, answer in zip(asked_again, lines.ask(given.program, second, given.style)):
        if which is None or answer == "-":
            continue
        seed, text = which
        counts["texts"] += 1
        if (answer == "1") != bool(compiled[seed].fullmatch(text)):
            wrong.append(f"seed {seed}: {made[seed]}: {'taken' if answer == '1' else 'not taken'}: {text!r}")
    print(", ".join(f"{count} {what}" for what, count in sorted(counts.items())))
    for line in wrong[:10]:
        print("WRONG:", line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
