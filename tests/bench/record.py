#!/usr/bin/env python3
"""What a benchmark showed, kept as a record, of which results.py makes RESULTS.md.

    SLUICE_RECORDS=tests/bench/records tests/bench/gpu.sh            (and the scripts of tests/gpu: each its own)
    SLUICE_RECORDS=tests/bench/records tests/bench/record.py cpu tests/bench/cpu.sh     (any other: its last lines)
    tests/bench/results.py

(`--as COMMAND` behind the name: what is said to have been run.) A record is one JSON file, NAME.json: the command, commit, date, machine, GPU and its read rate of the same day, and
rows of what, figure, asked, limit and whether it held. A later run takes the place of the one before. Where
SLUICE_RECORDS is not set nothing is kept. Where there is no git, SLUICE_COMMIT says what was run.
"""

import datetime
import functools
import glob
import json
import os
import platform
import re
import subprocess
import sys

TOP = os.path.abspath(os.path.join(os.path.dirname(__file__), "../.."))
LINES_MAX = 8  # of a program that knows nothing of records


def row(what, figure, asked="", limit="", good=True):
    return {"what": what, "figure": figure, "asked": asked, "limit": limit, "good": good}


def row_of(text, good=True):
    """Of a line "what: figure, limit 5"."""
    what, _, figure = text.strip().partition(": ")
    return row(what, figure, good=good)


def output_of(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True, cwd=TOP, timeout=120).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""


def commit():
    name = output_of("git", "rev-parse", "--short", "HEAD")
    changed = "+" if name and output_of("git", "status", "--porcelain", "--untracked-files=no") else ""
    return os.environ.get("SLUICE_COMMIT") or name + changed or "unknown"


def processor():
    try:
        with open("/proc/cpuinfo") as file:
            found = re.search(r"model name\s*: (.*)", file.read())
    except OSError:
        found = None
    return f"{os.cpu_count()} cores, {found.group(1) if found else platform.machine()}"


@functools.cache
def read_rate(build):
    """GB/s of the first GPU; None where it cannot be known."""
    for path in glob.glob(os.path.join(build, "**/bench_kernels"), recursive=True):
        found = re.search(r"HBM read (\d+)", output_of(path, "read"))
        return int(found.group(1)) if found else None
    return None


def wanted():
    return bool(os.environ.get("SLUICE_RECORDS"))


def keep(name, rows, build=None, rate=None, command=None):
    """Writes the record where SLUICE_RECORDS says; `build`: of a run on a GPU, `command`: if not this one."""
    rows = [one for one in rows if one["figure"] or not one["good"]]  # "it ended by itself" is no figure
    if not wanted() or not rows:
        return
    gpus = output_of("nvidia-smi", "--query-gpu=name", "--format=csv,noheader").splitlines() if build else []
    record = {
        "command": command or " ".join([os.path.relpath(os.path.abspath(sys.argv[0]), TOP), *sys.argv[1:]]),
        "commit": commit(),
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": f"{len(gpus)} x {gpus[0]}" if gpus else processor(),
        "read_gb_s": (rate or read_rate(build)) if gpus else None,
        "rows": rows,
    }
    os.makedirs(os.environ["SLUICE_RECORDS"], exist_ok=True)
    with open(os.path.join(os.environ["SLUICE_RECORDS"], name + ".json"), "w") as file:
        json.dump(record, file, indent=1, ensure_ascii=False)
        file.write("\n")


def main():
    if len(sys.argv) < 3:
        print(__doc__)
        return 2
    name, command, called = sys.argv[1], sys.argv[2:], None
    if command[0] == "--as":
        called, command = command[1], command[2:]
    process, lines = subprocess.Popen(command, stdout=subprocess.PIPE, text=True), []
    for line in process.stdout:
        print(line, end="", flush=True)
        lines += [line.strip()] if line.strip() else []
    status = process.wait()
    rows = [row_of(line, status == 0) for line in lines[-LINES_MAX:]]
    keep(name, rows, command=called or " ".join(command))
    return status


if __name__ == "__main__":
    sys.exit(main())
