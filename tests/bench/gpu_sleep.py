"""Rows of gpu.py: several models on one GPU, of which some sleep.

`sleep` has two 8B models of which one fits beside its KV: the first token of a request to the one that sleeps, with its
weights in host memory, also of a long prompt, whose first layers compute while the last weights come, and both asked all the
time. `asleep` and `released` are what the GPU holds when all sleep, and
how long the first token takes then. `zipf` has eight 1B models decode at once, rows by Zipf's law, against what their
step times at those rows allow when each has the GPU to itself.
"""

import re
import subprocess
import sys
import time

from gpu_share import running, until

EIGHT, ONE = "synthetic:llama-3.1-8b", "synthetic:llama-3.2-1b"
ONE_FITS = ("--gpu-memory-max", "28GiB", "--sleep-after", "600s", "--model-stay", "1s", "--model", f"b={EIGHT}")
TURNS, FIRST_S, RELEASED_S = 8, 0.6, 3
LONG = 4096  # tokens of a prompt
ROUNDS, EACH = 6, 16  # of the load on both
HELD_MIB = 600
ROWS_OF = (24, 12, 8, 6, 5, 4, 3, 2)  # 64 rows, by 1 / rank
SETTLE_S, WINDOW_S, OUT = 3, 6, 20000
LEAST, SWITCH_US = 0.9, 50


def gpu_used_mib():
    text = subprocess.run(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"], check=True,
                          capture_output=True, text=True, timeout=30).stdout
    return int(text.split()[0])


GIVEN_BACK = """
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
device, context = ctypes.c_int(), ctypes.c_void_p()
made = cuda.cuInit(0) or cuda.cuDeviceGet(ctypes.byref(device), 0) or cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
if made or cuda.cuDevicePrimaryCtxReset_v2(device):
    sys.exit(1)
print("given back", flush=True)
sys.stdin.read()
"""


def driver_mib():
    """What the driver holds for a process that has had a context on the GPU and given it back, until it ends."""
    before = gpu_used_mib()
    with subprocess.Popen([sys.executable, "-c", GIVEN_BACK], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as bare:
        given = bare.stdout.readline()
        mib = gpu_used_mib() - before
        bare.stdin.close()
    if bare.returncode or not given:
        raise RuntimeError("no context was made and given back")
    return mib


def figures(daemon, name):
    """A series by model."""
    text = subprocess.run(daemon.command("stats", "--prometheus"), check=True, capture_output=True, text=True,
                          timeout=30).stdout
    return {model: int(value) for model, value in re.findall(rf'^sluice_model_{name}{{model="(\w+)"[^}}]*}} (\d+)$', text,
                                                             re.MULTILINE)}


def kept(daemon, model):
    text = subprocess.run(daemon.command("stats", "--prometheus"), check=True, capture_output=True, text=True,
                          timeout=30).stdout
    found = re.search(rf'^sluice_model_memory_bytes{{model="{model}",kind="kept_pinned"}} (\d+)$', text, re.MULTILINE)
    return int(found.group(1)) if found else 0


def state(daemon, model):
    text = subprocess.run(daemon.command("model", model), check=True, capture_output=True, text=True, timeout=30).stdout
    return re.search(r"^state\s+(.*)$", text, re.MULTILINE).group(1)


def first_s(daemon, model, tokens=4, number=0):
    """Of one request of one token, with the client's own start; those of each number begin in their own way."""
    ids = ",".join(str(1 + (i if i else number)) for i in range(tokens))
    begin = time.monotonic()
    subprocess.run(daemon.command("generate", "--model", model, "--tokens", ids, "--max-tokens", "1"), check=True,
                   capture_output=True, timeout=120)
    return time.monotonic() - begin


def all_kept(daemon):
    """Both have been awake for long enough to be in host memory whole."""
    size = daemon.control.model()["weight_bytes"]
    for model in "ab":
        first_s(daemon, model)
        until(lambda name=model: kept(daemon, name) >= size, 90)
    time.sleep(1.2)


def asked_by_turns(daemon, prompts):
    """How many of the requests to both, at the same time, ended well."""
    good = 0
    for _ in range(ROUNDS):
        clients = [subprocess.Popen(daemon.command("generate", "--model", model, "--tokens", "1,2,3,4", "--max-tokens", "32",
                                                   "--ignore-eos"), stdout=subprocess.DEVNULL)
                   for model in "ab" for _ in range(EACH)]
        good += sum(client.wait(120) == 0 for client in clients)
    return good


def by_turns(daemon, tokens):
    """First tokens of requests to the one of two that sleeps, and behind each those of the same length once it is awake; of
    both the times, sorted."""
    woken, awake = [], []
    for turn in range(TURNS):
        model = "ab"[turn % 2]
        if state(daemon, model) != "asleep":
            raise RuntimeError(f"{model} is awake beside the other")
        woken.append(first_s(daemon, model, tokens, 2 * turn))
        awake.append(first_s(daemon, model, tokens, 2 * turn + 1))
        time.sleep(1.2)  # model-stay
    return sorted(woken), sorted(awake)


def sleep(start, row, prompts):
    with running(start, *ONE_FITS) as daemon:
        all_kept(daemon)
        times, awake = by_turns(daemon, 4)
        long_times, long_awake = by_turns(daemon, LONG)
        before = figures(daemon, "wakes_total")
        begin = time.monotonic()
        good = asked_by_turns(daemon, prompts)
        took = time.monotonic() - begin
        wakes = sum(figures(daemon, "wakes_total").values()) - sum(before.values())
    half = TURNS // 2
    row("two 8B of which one fits: first token of a request to the one that sleeps, from host memory",
        f"{times[half]:.3f} s, at most {times[-1]:.3f} ({len(times)} times)", f"{FIRST_S} s", times[-1] <= FIRST_S)
    more, alone = (1000 * (long_[half] - short[half]) for long_, short in ((long_times, times), (long_awake, awake)))
    row(f"and of a prompt of {LONG:,} tokens: what it takes more than a short one, at waking and when the model is awake",
        f"{long_times[half]:.3f} s; {more:.0f} and {alone:.0f} ms", "less at waking", more < alone)
    row("and both asked at once, again and again", f"{good} of {2 * ROUNDS * EACH} answered, {wakes} wakes, {took:.1f} s",
        "all", good == 2 * ROUNDS * EACH)


def held(start, row, what, options, most_mib, most_s):
    """Where the context goes as well, of what there is beside the driver's own."""
    driver, before = (0 if most_mib else driver_mib()), gpu_used_mib()
    with running(start, *ONE_FITS, *options) as daemon:
        all_kept(daemon)
        for model in "ab":
            subprocess.run(daemon.command("sleep", model), capture_output=True, timeout=30)
        until(lambda: {state(daemon, model) for model in "ab"} == {"asleep"}, 60)
        time.sleep(2)
        mib = gpu_used_mib() - before
        wake = first_s(daemon, "a")
    row(f"all asleep{what}: what the GPU holds of the process; the first token then",
        f"{mib} MiB" + (f", {driver} for a process that gave its context back and has nothing else" if driver else "")
        + f"; {wake:.2f} s", f"{most_mib} MiB; {most_s} s", mib - driver <= most_mib and wake <= most_s)


def rates(daemon, rows):
    """Tokens a second of each model while each has its rows."""
    clients = []
    for model, count in rows.items():
        name = [] if model is None else ["--model", model]
        clients += [subprocess.Popen(daemon.command("generate", *name, "--tokens", "1,2,3,4", "--max-tokens", str(OUT),
                                                    "--ignore-eos", "--temperature", "0", "--n", str(count)),
                                     stdout=subprocess.DEVNULL)]
    time.sleep(SETTLE_S)
    before, begin = figures(daemon, "generation_tokens_total"), time.monotonic()
    time.sleep(WINDOW_S)
    after, took = figures(daemon, "generation_tokens_total"), time.monotonic() - begin
    whole = all(client.poll() is None for client in clients)
    for client in clients:
        client.terminate()
        client.wait()
    if not whole:
        raise RuntimeError("the load came to its end before the window did")
    time.sleep(1)
    return {model: (after[model] - before[model]) / took for model in rows}


def zipf(start, row, prompts):
    names = [f"m{i}" for i in range(len(ROWS_OF))]
    others = [word for name in names[1:] for word in ("--model", f"{name}={ONE}")]
    with running(start, *others, "--host-memory", "0") as daemon:
        for name in names:
            first_s(daemon, name)
        step_s = {count: count / rates(daemon, {names[0]: count})[names[0]] for count in ROWS_OF}
        together = rates(daemon, dict(zip(names, ROWS_OF)))
    steps = {name: together[name] / count for name, count in zip(names, ROWS_OF)}  # a second
    busy = sum(steps[name] * step_s[count] for name, count in zip(names, ROWS_OF))
    switch_us = (1 - busy) * 1e6 / sum(steps.values())
    row("eight 1B, 64 rows by Zipf's law: of what their own step times at those rows allow; a switch between models",
        f"{100 * busy:.1f} % ({sum(together.values()):,.0f} tok/s); {switch_us:.1f} us", f"{100 * LEAST:g} %; {SWITCH_US} us",
        busy >= LEAST and switch_us <= SWITCH_US)


FIRST = {"sleep": f"a={EIGHT}", "asleep": f"a={EIGHT}", "released": f"a={EIGHT}", "zipf": f"m0={ONE}"}  # models of the rows
ROWS = {
    "sleep": sleep,
    "asleep": lambda start, row, prompts: held(start, row, "", (), HELD_MIB, FIRST_S),
    "released": lambda start, row, prompts: held(start, row, ", release-device", ("--release-device", "yes"), 0, RELEASED_S),
    "zipf": zipf,
}
