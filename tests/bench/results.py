#!/usr/bin/env python3
"""Makes RESULTS.md, TECHNIQUES.md and the README's table of figures of the records: tests/bench/results.py [--check]

--check writes nothing: exit 1 where a page is not what the records make of it. Records: record.py.
"""

import json
import os
import re
import sys

import techniques

HERE = os.path.dirname(os.path.abspath(__file__))
RESULTS = os.path.join(HERE, "RESULTS.md")
TECHNIQUES = os.path.join(HERE, "TECHNIQUES.md")
README = os.path.join(HERE, "../../README.md")
LINES_MAX = 150
BEGIN, END = "<!-- made by tests/bench/results.py -->", "<!-- end -->"

ROWS_MAX = 2  # of a record; the rest is counted

# Records come in this order, by the first word of their names.
ORDER = ("gpu", "serve", "operate", "checks", "dtype", "several", "cpu", "soak", "sandbox")

# Of the README: a record (or some, NAME-PART), how one of its rows begins, and what the row is called there.
HEADLINES = [
    ("gpu", "decode, batch 1, 8B", "8B decode, one sequence"),
    ("gpu", "decode, batch 128", "8B decode, batch 128"),
    ("gpu", "decode, batch 256", "8B decode, batch 256"),
    ("gpu", "decode, batch 1, 1B", "1B decode, one sequence"),
    ("gpu", "prefill, prompts of 512", "8B prefill, prompts of 512"),
    ("gpu", "2,048 requests", "8B, 2,048 requests of 128 in, 128 out at once"),
    ("gpu-experts", "qwen3-30b-a3b: decode, batch 1", "Qwen3-30B-A3B decode, one sequence"),
    ("gpu-experts", "qwen3-30b-a3b: decode, batch 256", "Qwen3-30B-A3B decode, batch 256"),
    ("gpu", "unloaded time to first token", "8B, first token of 128, unloaded, p50 / p99"),
    ("gpu", "gap between steps", "gap between decode steps, p50 / p99"),
    ("several", "tp 2: one sequence", "`--tp 2`, one sequence beside one GPU"),
    ("several", "dp 4", "four replicas beside one GPU"),
    ("several", "70b on 4: one sequence", "70B on four GPUs, one sequence"),
    ("cpu", "a request beside Redis' PING", "requests a second beside Redis' PING, no model"),
]


def records(folder):
    found = {}
    for name in sorted(os.listdir(folder)):
        if name.endswith(".json"):
            with open(os.path.join(folder, name)) as file:
                found[name[:-len(".json")]] = json.load(file)
    return found


def order_of(name):
    first = name.split("-")[0]
    return ORDER.index(first) if first in ORDER else len(ORDER)


def cell(text):
    return str(text).replace("|", "\\|").replace("\n", " ")


def line(name, row):
    figure = cell(row["figure"])
    figure = figure if row["good"] else f"**{figure or 'not so'}**"
    return "| " + " | ".join([name, cell(row["what"]), figure, cell(row["asked"]), cell(row["limit"])]) + " |"


def runs(found, names):
    """Names by run: one command may keep several records, a minute apart."""
    by = {}
    for name in names:
        one = found[name]
        by.setdefault(tuple(one.get(key) for key in ("command", "commit", "machine", "read_gb_s", "note")), []).append(name)
    return by.values()


def origin(found, names):
    record, dates = found[names[0]], sorted({found[name]["date"] for name in names})
    date = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    rate = f", read rate {record['read_gb_s']:,} GB/s" if record.get("read_gb_s") else ""
    note = f" ({record['note']})" if record.get("note") else ""
    told = ", ".join(f"**{name}**" for name in names)
    return f"- {told}: `{record['command']}`, commit {record['commit']}, {date}, {record['machine']}{rate}{note}"


def page(found):
    names = sorted(found, key=lambda name: (order_of(name), name))
    lines = ["# Results", "",
             "Made by `tests/bench/results.py` of the last runs' records (`records/`; how they come about: `record.py`), not to be",
             "changed by hand. **Bold**: short of what was asked. Limits are those of the same GPU in the same run. What was tried",
             "and lost: [EXPERIMENTS.md](EXPERIMENTS.md). Times on shared CPUs are noise: there, ratios of one run count. 8B, 1B, 70B: `synthetic:llama-3.1-8b`, `-3.2-1b`, `-3.1-70b`; tok/s are output tokens, of prefill those read.",
             "", "| run | what | figure | asked | limit |", "| --- | --- | --- | --- | --- |"]
    for name in names:
        rows = found[name]["rows"]
        lines += [line(name, row) for row in rows[:ROWS_MAX]]
        if len(rows) > ROWS_MAX:
            lines.append(f"| {name} | and {len(rows) - ROWS_MAX} more: `records/{name}.json` | | | |")
    lines += ["", "## Runs", "", *(origin(found, some) for some in runs(found, names))]
    return "\n".join(lines) + "\n"


def figures(found):
    rows = []
    for name, begin, title in HEADLINES:
        hits = [row for other in sorted(found) if other == name or other.startswith(name + "-")
                for row in found[other]["rows"] if row["what"].startswith(begin)]
        hit = hits[0] if hits else {"figure": "not measured", "asked": ""}
        figure = re.sub(r" \([^)]*\)", "", hit["figure"])
        rows.append(f"| {title} | {cell(figure)} | {cell(hit['asked'])} |")
    return "\n".join([BEGIN, "| what | figure | asked |", "| --- | --- | --- |", *rows, END])


def main():
    found = records(os.path.join(HERE, "records"))
    with open(README) as file:
        readme = file.read()
    before, begin, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise SystemExit("README.md has no place for the figures")
    made = {RESULTS: page(found), TECHNIQUES: techniques.page(found), README: before + figures(found) + after}
    bad = made[RESULTS].count("\n") > LINES_MAX
    if bad:
        print(f"RESULTS.md would have {made[RESULTS].count(chr(10))} lines, at most {LINES_MAX}")
    for path, text in made.items():
        if "--check" in sys.argv[1:]:
            with open(path) as file:
                if file.read() != text:
                    print(f"{os.path.basename(path)} is not what tests/bench/results.py makes of the records")
                    bad = True
        elif not bad:
            with open(path, "w") as file:
                file.write(text)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
