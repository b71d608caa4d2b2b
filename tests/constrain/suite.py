#!/usr/bin/env python3
"""The JSON-Schema-Test-Suite, draft 2020-12, from the source package of jsonschema: suite.py PROGRAM FOLDER

FOLDER keeps the package, fetched once from the index that pip knows. Each schema is right both ways or refused by a
keyword: no invalid instance may be produced, and a valid one may only be missing for a reason that stands below. An
object's members stand in one order; an instance counts as produced when one order of its own members is. Exit 1 when
one is wrong, 77 when no package is to be had.
"""
import collections
import glob
import itertools
import subprocess
import sys
import tarfile

sys.path.insert(0, __file__.rsplit("/", 1)[0])
import lines  # noqa: E402
import json  # noqa: E402

VERSION = "4.26.0"
# (file, description of the schema): valid instances of it may be missing.
MISSING = {
    "format.json": "formats are enforced here, and only annotations there",
    "vocabulary.json": "a metaschema of one's own without validation",
    "1.0": "a whole number that is written with a fraction",
}


def fetch(folder):
    found = glob.glob(f"{folder}/jsonschema-*/json/tests/draft2020-12")
    if not found:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:", "--dest", folder, f"jsonschema=={VERSION}"]
        try:
            done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=240).returncode
        except (OSError, subprocess.TimeoutExpired):
            done = 1
        archives = glob.glob(f"{folder}/jsonschema-*.tar.gz")
        if done or not archives:
            print("SKIPPED constrain_suite: no package index has jsonschema's source package")
            sys.exit(77)
        with tarfile.open(archives[0]) as archive:
            archive.extractall(folder, filter="data")
        found = glob.glob(f"{folder}/jsonschema-*/json/tests/draft2020-12")
    return found[0]


def orders(instance):
    if isinstance(instance, dict) and len(instance) <= 5:
        return [dict(order) for order in itertools.permutations(instance.items())]
    return [instance]


def has_whole_fraction(value):
    if isinstance(value, float):
        return value == int(value)
    if isinstance(value, dict):
        value = list(value.values())
    return isinstance(value, list) and any(has_whole_fraction(one) for one in value)


def has_other_order(schema, instance):
    """A constant object stands in its own order, within others too; orders() tries them all at the top only."""
    return "const" in schema and isinstance(instance, dict)


def main():
    program, folder = sys.argv[1:]
    tests = fetch(folder)
    asked, about = [], []
    for path in sorted(glob.glob(tests + "/*.json") + glob.glob(tests + "/optional/format/*.json")):
        for group in json.load(open(path, encoding="utf-8")):
            asked.append("S " + lines.text(group["schema"]))
            about.append((path, group, None))
            for test in group["tests"]:
                for instance in orders(test["data"]):
                    asked.append("R " + lines.text(instance))
                    about.append((path, group, test))
    answers = lines.ask(program, asked)
    produced, counts, refused, wrong = {}, collections.Counter(), collections.Counter(), 0
    for (path, group, test), answer in zip(about, answers):
        if test is None:
            if answer != "ok":
                counts["schemas refused"] += 1
                refused[answer.split(": ")[2 if answer.count(": ") > 1 else -1]] += 1
        elif answer != "-":
            key = (path, group["description"], test["description"])
            produced[key] = (produced.get(key, (False,))[0] or answer == "1", group, test)
    for (path, description, what), (made, group, test) in produced.items():
        name = path.rsplit("/", 1)[1]
        optional = "/optional/" in path
        if made == test["valid"]:
            counts["right"] += 1
        elif made:
            wrong += 1
            print(f"WRONG: produced, but invalid: {name}: {description}: {what}: {lines.text(test['data'])[:100]}")
        elif optional or name in MISSING or has_whole_fraction(test["data"]) or has_other_order(group["schema"], test["data"]):
            counts["valid, not produced, known"] += 1
        else:
            wrong += 1
            print(f"WRONG: not produced, but valid: {name}: {description}: {what}: {lines.text(test['data'])[:100]}")
    print(", ".join(f"{count} {what}" for what, count in sorted(counts.items())))
    print("refused by: " + ", ".join(f"{what} ({count})" for what, count in refused.most_common()))
    if counts["right"] < 900:
        print("WRONG: fewer are right than were")
        wrong += 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
