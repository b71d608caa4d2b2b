#!/usr/bin/env python3
"""MaskBench, the 11,306 schemas of guidance-ai/jsonschemabench: maskbench.py PROGRAM DATA [--masks N] [--show WHAT]

DATA is maskbench/data of a checkout. A schema passes when it compiles and all its instances are taken or not as they
should be. --masks: of every Nth schema, masks along its valid instances over 128,000 drawn tokens, in microseconds of
the thread; a schema's first pass makes its states. --show names the schemas that were refused, or wrong. Exit 1 when an
invalid instance is taken, or fewer pass than 8,909; 77 without the data.
"""
import argparse
import collections
import glob
import json
import os
import sys

sys.path.insert(0, __file__.rsplit("/", 1)[0])
import lines  # noqa: E402

PASS_MIN = 8909


def verdicts(program, data):
    """Of each file: why it was refused (or None), and instances that were wrong, as (taken, instance)."""
    files = sorted(glob.glob(f"{data}/*.json"))
    for begin in range(0, len(files), 500):
        asked, about = [], []
        for name in files[begin : begin + 500]:
            with open(name, encoding="utf-8") as file:
                one = json.load(file)
            asked += ["S " + lines.text(one["schema"])] + ["R " + lines.text(test["data"]) for test in one["tests"]]
            about += [(name, one["schema"], None)] + [(name, one["schema"], test) for test in one["tests"]]
        found = {}
        for (name, schema, test), answer in zip(about, lines.ask(program, asked, "0")):
            if test is None:
                found[name] = (None if answer == "ok" else answer, [], schema, [])
            elif answer != "-":
                found[name][3].append(test)
                if (answer == "1") != test["valid"]:
                    found[name][1].append((answer == "1", test["data"]))
        yield from found.items()


def masks(program, sample):
    asked = []
    for schema, tests in sample:
        asked += ["S " + lines.text(schema)] + ["M " + lines.text(test["data"]) for test in tests if test["valid"]]
    times = [answer.split() for answer in lines.ask(program, asked, "large") if answer[0].isdigit()]
    count = sum(int(one[0]) for one in times)
    worst = sorted(float(one[2]) for one in times)
    print(f"masks: {count}, mean {sum(float(one[1]) for one in times) / max(count, 1):.1f}, an instance's worst: median "
          f"{worst[len(worst) // 2]:.0f}, of 99 in 100 up to {worst[len(worst) * 99 // 100]:.0f}, of all {worst[-1]:.0f}")


def main():
    options = argparse.ArgumentParser()
    options.add_argument("program")
    options.add_argument("data")
    options.add_argument("--masks", type=int, default=0)
    options.add_argument("--show", default="")
    given = options.parse_args()
    if not glob.glob(f"{given.data}/*.json"):
        print("SKIPPED maskbench: there is no data")
        return 77
    counts, refused, sample = collections.Counter(), collections.Counter(), []
    for number, (name, (why, wrong, schema, tests)) in enumerate(verdicts(given.program, given.data)):
        taken = sum(one for one, _ in wrong)
        counts["passing" if not why and not wrong else "refused" if why else "invalid taken" if taken else "valid not taken"] += 1
        if why:
            refused[why.removeprefix("refused ").split(": ", 2)[-1][:70]] += 1
        if (given.show == "refused" and why) or (given.show == "wrong" and wrong) or taken:
            print(os.path.basename(name), why or lines.text(wrong[0][1])[:150])
        if given.masks and number % given.masks == 0 and not why:
            sample.append((schema, tests))
    print(", ".join(f"{count} {what}" for what, count in sorted(counts.items())))
    print("refused by: " + ", ".join(f"{what} ({count})" for what, count in refused.most_common(12)))
    if given.masks:
        masks(given.program, sample)
    return 1 if counts["invalid taken"] or counts["passing"] < PASS_MIN else 0


if __name__ == "__main__":
    sys.exit(main())
