#!/usr/bin/env python3
"""Random schemas against the package jsonschema: random_schemas.py PROGRAM [--seeds FIRST..LAST] [--style N]

Of each seed a schema is made, with an instance of it where one comes easily. What a model that knows nothing draws from
its masks, and ends, must be valid; that instance, in the schema's order, must be producible, or be invalid; and of
mutated instances those that are invalid must not be. At least 80 of 100 texts end by themselves. Exit 1 when one is
wrong (its seed is named), 77 without jsonschema.
"""
import argparse
import collections
import json
import random
import sys

sys.path.insert(0, __file__.rsplit("/", 1)[0])
import lines  # noqa: E402

NAMES = ["a", "ab", "name", "x-1", "é", "b c", "type", "n\"q"]
WORDS = ["", "a", "abc", "red", "blue", "é€", "a\"b", "line\n", "0", "2024-02-29"]
PATTERNS = ["^a", "c$", "^[a-c]{1,3}$", "b|d", "^[^x]+$", "^\\d+-\\w*$", "(^x|é)", "^(?:foo|ba[rz])$"]
FORMATS = ["date", "uuid", "ipv4", "email", "time"]


class Maker:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.definitions = {}

    def chance(self, share):
        return self.random.random() < share

    def string(self):
        schema = {"type": "string"}
        kind = self.random.randrange(6)
        if kind < 2:
            low = self.random.randrange(4)
            schema.update(self.some(minLength=low, maxLength=low + self.random.randrange(6)))
        elif kind == 2:
            schema["format"] = self.random.choice(FORMATS)
        elif kind == 3:
            schema["pattern"] = self.random.choice(PATTERNS)
            schema.update(self.some(maxLength=self.random.randrange(3, 9)))
        elif kind == 4:
            schema["not"] = {"enum": self.random.sample(WORDS, 3)}
        return schema

    def some(self, **members):
        return {name: value for name, value in members.items() if self.chance(0.6)}

    def number(self):
        low = self.random.randrange(-30, 30)
        schema = {"type": self.random.choice(["integer", "number"])}
        schema.update(self.some(minimum=low, maximum=low + self.random.randrange(20, 90)))
        if self.chance(0.2):
            schema["exclusiveMinimum"] = low - 0.5
        if self.chance(0.3):
            schema["multipleOf"] = self.random.choice([2, 3, 7, 10])
        return schema

    def array(self, depth):
        schema = {"type": "array"}
        kind = self.random.randrange(5)
        if kind < 3:
            schema["items"] = self.schema(depth - 1)
            low = self.random.randrange(3)
            schema.update(self.some(minItems=low, maxItems=low + self.random.randrange(4)))
        elif kind == 3:
            schema["prefixItems"] = [self.schema(depth - 1) for _ in range(self.random.randrange(1, 4))]
            schema["items"] = self.random.choice([False, {"type": "integer"}])
        else:
            schema["contains"] = self.schema(0)
            schema.update(self.some(minContains=self.random.randrange(3)))
        if self.chance(0.1):
            schema = {"type": "array", "items": {"enum": [1, 2, "a", None]}, "uniqueItems": True}
        return schema

    def object(self, depth):
        names = self.random.sample(NAMES, self.random.randrange(5))
        schema = {"type": "object", "properties": {name: self.schema(depth - 1) for name in names}}
        if names and self.chance(0.7):
            schema["required"] = self.random.sample(names, self.random.randrange(len(names) + 1))
        schema.update(self.some(additionalProperties=self.random.choice([False, False, True, {"type": "integer"}])))
        if self.chance(0.2):
            schema["patternProperties"] = {self.random.choice(PATTERNS): self.schema(0)}
        if self.chance(0.1):
            schema["propertyNames"] = {"maxLength": self.random.randrange(2, 6)}
        if self.chance(0.15):
            schema["minProperties"] = 1
        if self.chance(0.15):
            schema["maxProperties"] = self.random.randrange(1, 4)
        if len(names) > 1 and self.chance(0.2):
            schema["dependentRequired"] = {names[0]: [names[1]]}
        return schema

    def enum(self):
        values = WORDS[:4] + [1, 2.5, -3, True, False, None, [1, "a"], {"a": 1}]
        return {"enum": self.random.sample(values, self.random.randrange(1, 5))}

    def combined(self, depth):
        kind = self.random.randrange(7)
        if kind == 0:
            return {"anyOf": [self.schema(depth - 1) for _ in range(self.random.randrange(1, 4))]}
        if kind == 1:
            return {"oneOf": [self.schema(depth - 1), self.schema(depth - 1)]}
        if kind == 2:
            first = self.schema(depth - 1)
            return {"allOf": [first, {"type": first["type"]} if "type" in first else {}, {"not": self.enum()}]}
        if kind == 3:
            name = f"d{len(self.definitions)}"
            self.definitions[name] = True
            self.definitions[name] = self.schema(depth - 1)
            return {"$ref": f"#/$defs/{name}"}
        if kind == 4:
            left, right = self.object(depth - 1), self.object(depth - 1)
            left.pop("additionalProperties", None)
            return {"allOf": [left, right]}
        if kind == 5:
            names = self.random.sample(NAMES, 2)
            schema = self.object(depth - 1)
            return {**schema, "if": {"required": names[:1]}, "then": {"properties": {names[1]: self.schema(0)}}, "else": {"maxProperties": 3}}
        return {**self.object(depth - 1), "anyOf": [{"required": [self.random.choice(NAMES)]}, {"minProperties": 1}]}

    def schema(self, depth):
        kind = self.random.randrange(10)
        if depth > 0 and kind < 3:
            return self.object(depth)
        if depth > 0 and kind == 3:
            return self.array(depth)
        if depth > 0 and kind < 6:
            return self.combined(depth)
        return self.random.choice([self.string, self.number, self.enum, lambda: {"type": ["boolean", "null"]}])()

    def whole(self):
        schema = self.schema(3)
        return {**schema, "$defs": self.definitions} if self.definitions else schema


def mutations(maker, value):
    """What is near it, and often no instance any more."""
    out = [None, 1, "abc", [value], {"a": value}]
    if isinstance(value, dict):
        for name in value:
            out.append({key: one for key, one in value.items() if key != name})
            out.append({key: 17 if key == name else one for key, one in value.items()})
        out.append({**value, "zz": 1})
    if isinstance(value, list):
        out += [value[1:], value + value[:1], value + [None]]
    if isinstance(value, str):
        out += [value + "x", value[1:]]
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        out += [value + 1, value * 10, -value]
    return out


def main():
    try:
        import jsonschema
    except ImportError:
        print("SKIPPED constrain_random: the package jsonschema is not installed")
        return 77
    options = argparse.ArgumentParser()
    options.add_argument("program")
    options.add_argument("--seeds", default="1..400")
    options.add_argument("--style", default="1")
    given = options.parse_args()
    first, last = map(int, given.seeds.split(".."))
    makers = {seed: Maker(seed) for seed in range(first, last + 1)}
    schemas = {seed: maker.whole() for seed, maker in makers.items()}
    asked, about = [], []
    for seed, schema in schemas.items():
        asked += ["S " + lines.text(schema)] + [f"D {seed * 8 + i}" for i in range(4)]
        about += [(seed, "S")] + [(seed, "D")] * 4
    answers = lines.ask(given.program, asked, given.style)
    counts, refused, wrong, second, texts = collections.Counter(), collections.Counter(), [], [], {}
    checks = {seed: jsonschema.Draft202012Validator(schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER) for seed, schema in schemas.items()}
    for (seed, kind), answer in zip(about, answers):
        if kind == "S":
            counts["schemas" if answer == "ok" else "refused"] += 1
            if answer != "ok":
                refused[answer.split(": ")[-1][:60]] += 1
        elif answer == "cut":
            counts["cut"] += 1
        elif answer != "-":
            counts["ended"] += 1
            value = json.loads(answer[6:])
            texts.setdefault(seed, []).append((answer[6:], value))
            if not checks[seed].is_valid(value):
                wrong.append(f"seed {seed}: drawn, and invalid: {answer[6:][:200]}")
    about = []
    for seed, drawn in texts.items():
        second.append("S " + lines.text(schemas[seed]))
        about.append(None)
        for text, value in drawn:
            for other, produced in [(text, True)] + [(lines.text(one), False) for one in mutations(makers[seed], value)]:
                second.append("R " + other)
                about.append((seed, other, produced))
    for which, answer in zip(about, lines.ask(given.program, second, given.style)):
        if which is None:
            continue
        seed, other, produced = which
        valid = checks[seed].is_valid(json.loads(other))
        counts["instances"] += 1
        counts["valid, in another form"] += valid and answer == "0"
        if answer == "1" and not valid:
            wrong.append(f"seed {seed}: invalid, and taken: {other[:200]}")
        if produced and answer == "0":
            wrong.append(f"seed {seed}: drawn, and not taken: {other[:200]}")
    print(", ".join(f"{count} {what}" for what, count in sorted(counts.items())))
    print("refused by: " + ", ".join(f"{what} ({count})" for what, count in refused.most_common(12)))
    for line in wrong[:20]:
        print("WRONG:", line)
    if counts["ended"] < 0.8 * (counts["ended"] + counts["cut"]):
        print("WRONG: fewer than 80 of 100 texts ended")
        return 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
