"""compute-sanitizer, as the scripts of this folder run programs under it, and what it said of them.

2026.4 is the first version that follows our kernels. 2025.3.1, of CUDA 13.0, stops them for faults of its own. It
comes with CUDA 13.5; without, `python3 -m pip install nvidia-cuda-sanitizer-api` brings it, and the folder
nvidia/cu13/bin of what was installed goes first in PATH. deploy/offline-deps.sh fetches it, too.
"""

import collections
import os
import re
import shutil
import subprocess

NEEDED = (2026, 4)
# A block of ours has up to 128 barriers in shared memory, more than the tools make room for by themselves: they then
# stop the kernel.
BARRIERS = ("--num-cuda-barriers", "256")
# cuBLASLt's kernels are not ours to mend: racecheck names one in which a thread arrives at a barrier for others. They
# are left out by what their names have in the library's own symbols, which no kernel of ours may have: hidden().
LIBRARY = ("nvjet_", "_ZN7cutlass", "cutlass_80_", "cutlass3x_sm", "cask_cublas", "_xmma_gemm_", "_ZN8cublasLt",
           "gemmk1_kernel", "gemmSN_", "gemvNSP_", "gemv2T_", "_ZN8internal5gemvx")
# Between allocations memcheck leaves so many bytes that are nobody's.
PADDING = ("--padding", "4096")
TOOLS = {
    "racecheck": (*BARRIERS, "--racecheck-report", "all", *(
        arg for name in LIBRARY for arg in ("--kernel-name-exclude", "kernel_substring=" + name))),
    "initcheck": (),
    "memcheck": PADDING,
    "synccheck": BARRIERS,
}
# What each tool is shown on purpose: the kind of tests/gpu/fault/, its kernel, and the words of the report.
PLANTED = {
    "racecheck": ("race", "gemm_race_kernel", "Race reported between|hazard detected"),
    "initcheck": ("unwritten", "planted_unwritten_kernel", "Uninitialized __global__ memory read"),
    "memcheck": ("overrun", "planted_overrun_kernel", "Invalid __global__ write"),
    "synccheck": ("barrier", "planted_barrier_kernel", "Barrier error detected"),
}
ERROR_CODE = 9
# What a run says in which nothing was found. Any other line is a report, or a fault of the tool's.
CLEAN = re.compile(r"========= *(COMPUTE-SANITIZER|ERROR SUMMARY: 0 errors|"
                   r"RACECHECK SUMMARY: 0 hazards displayed \(0 errors, 0 warnings\))?")


def missing():
    """Why the tools cannot be used here; None where they can."""
    found = shutil.which("compute-sanitizer")
    if not found:
        return "there is no compute-sanitizer in PATH"
    shown = subprocess.run([found, "--version"], capture_output=True, text=True).stdout
    version = re.search(r"Version (\d+)\.(\d+)", shown)
    if not version or tuple(map(int, version.groups())) < NEEDED:
        return (f"{found} is {version.group(0) if version else 'of no known version'}; {NEEDED[0]}.{NEEDED[1]} is "
                "needed: tests/gpu/sanitizer.py says where it is")
    return None


def command(tool, *more):
    """What to put before a command, so that it runs under the tool."""
    return ("compute-sanitizer", "--tool", tool, "--error-exitcode", str(ERROR_CODE), *TOOLS[tool], *more)


def modules(build, tool, planted=False):
    """Where the daemon gets its modules from, under the tool. For initcheck tests/gpu/written/ writes what it cannot see
    to be written, or to be of no use; for memcheck tests/gpu/apart/ has no two allocations side by side. All but the
    product's own can be asked for a fault."""
    folder = {"initcheck": "written", "memcheck": "apart"}.get(tool, "fault" if planted else None)
    return os.path.join(build, "tests/gpu", folder) if folder else None


def options(tool):
    """Of the daemon, under the tool: for memcheck each block of keys and values is an allocation of its own."""
    return ("--slab-size", "1") if tool == "memcheck" else ()


def hidden(path):
    """Kernels of a program or module of ours that an exclusion would hide. Their names are plain text in it, once for
    the host; what is loaded from libraries is not in it."""
    with open(path, "rb") as file:
        names = set(re.findall(rb"[A-Za-z_$.][\w$.]*", file.read()))
    return sorted({name.decode() for name in names if any(part.encode() in name for part in LIBRARY)})


def reported(output, kernel, words):
    """Whether a report has one of these words and, in its line or the one behind it, the kernel."""
    lines = said(output)
    return any(re.search(words, one) and (kernel in one or kernel in behind)
               for one, behind in zip(lines, [*lines[1:], ""]))


def said(output):
    return [line for line in output.splitlines() if line.startswith("=========")]


def clean(output):
    lines = said(output)
    return all(CLEAN.fullmatch(line) for line in lines) and any("SUMMARY" in line for line in lines)


def summary(output):
    return " ".join(line.strip("= ") for line in said(output) if "SUMMARY" in line) or "no summary"


def kinds(output):
    """How often what was reported where, the most frequent first."""
    lines = said(output)
    count = collections.Counter(
        (what.strip("= "), where.strip("= ")) for what, where in zip(lines, lines[1:]) if where.startswith("=========     at "))
    return [f"{times} times: {what}, {where}" for (what, where), times in count.most_common(8)]


def head(output, lines=40):
    """The first reports, without the long way that led to a launch."""
    shown, frames = [], 0
    for line in output.splitlines():
        frames = frames + 1 if "Host Frame:" in line else 0
        if frames <= 4:
            shown.append(line)
    return shown[:lines]
