#!/usr/bin/env python3
"""How a CUDA daemon behaves in operation: tests/gpu/operate.py BUILD [PART...]

- profile   1,000 steps with --profile-steps: overlap and gaps; KV growth adds at most 1 ms to a decode step
- notify    a host function after every step costs compute at most 10 us per step (bench_notify)
- ready     16 GB of safetensors in the page cache: ready in 5 s
- memory    back to weights and 1 GiB after 80 different graph buckets, and after 40 GiB of KV within the idle time; with 1
            of 64 sequences running, its blocks and two slabs
- idle      at most 2 clock ticks of CPU in 60 s on our own threads
- tenant    another process takes the GPU's memory until growth fails: all requests end while it keeps it
- taken     another process takes what a model left that sleeps: a request waits and is answered once that is gone, and is
            refused by name where it stays
- fault     a kernel that traps: exit 75 within a second; one that spins: the watchdog is not fed

All of them when none is named. Prints what it saw beside each limit; exit 1 if any does not hold. Needs nothing
but Python's own library and nvidia-smi.
"""

import glob
import json
import mmap
import os
import random
import re
import shutil
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time

from served import WEIGHTS_8B, Daemon, await_true, check, end_all, failures, keep, running

BUILD = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else ".build/cuda")
MODEL = "synthetic:llama-3.1-8b"
ONE_GPU = ("--gpus", "0")  # of however many there are: what is counted here is one replica's
FAULTS = os.path.join(BUILD, "tests/gpu/fault")
VERBOSE = bool(os.environ.get("OPERATE_VERBOSE"))
IDLE_S = 5.0  # kv-idle-release
CACHE_IDLE = ("--cache-idle-release", "4s")  # what is cached goes no later
SLAB = 64 << 20
WAITS_S, REFUSED_S = 3, 90  # memory that another process has is asked for again for 30 s
MIB, GIB = 1 << 20, 1 << 30
rng = random.Random(5)


def note(text):
    print("        " + text, flush=True)


def prompts(count, length):
    return [[rng.randrange(128000) for _ in range(length)] for _ in range(count)]


def lines(count, length, max_tokens):
    return [{"tokens": p, "max_tokens": max_tokens, "ignore_eos": True} for p in prompts(count, length)]


def ended(daemon):
    """By itself, when it is asked to."""
    code = daemon.stop()
    if code:
        check(False, f"the daemon ended with exit code {code}: {daemon.log()[-500:]}")


def buckets(log):
    """Which graphs were captured, each counted once, however often it was."""
    return set(re.findall(r"graph bucket: (rows \d+, context \d+, counts \d+)", log))


def gpu_free():
    shown = subprocess.run(["nvidia-smi", "-i", "0", "--query-gpu=memory.free", "--format=csv,noheader,nounits"],
                           capture_output=True, text=True).stdout
    return int(shown.strip()) * MIB


# ---- profile --------------------------------------------------------------------------------------------------


def compute_steps(trace):
    """The steps on compute, in order: (begin, end) in microseconds and what the plan held."""
    with open(trace) as file:
        events = json.load(file)["traceEvents"]
    threads = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    return [(e["ts"], e["ts"] + e["dur"], e["args"]) for e in events
            if e["ph"] == "X" and threads[e["tid"]] == "compute"]


def growth_costs(steps):
    """For each decode step that came with new slabs: its period, less the median of its neighbours'."""
    periods = [(steps[i][1] - steps[i - 1][1], steps[i][2], steps[i - 1][2]) for i in range(1, len(steps))]
    plain = [p for p, now, before in periods if now["tokens"] == now["rows"] == before["tokens"] == 64]
    costs = []
    for i, (period, now, before) in enumerate(periods):
        near = [p for p, a, b in periods[max(0, i - 16):i + 17]
                if a["tokens"] == b["tokens"] == 64 and not a["slabs"] and not b["slabs"]]
        if now["slabs"] and now["tokens"] == now["rows"] == before["tokens"] == 64 and len(near) > 8:
            costs.append((period - statistics.median(near), now["slabs"]))
    return costs, plain


def profile():
    folder = tempfile.mkdtemp()
    trace = os.path.join(folder, "trace.json")
    daemon = Daemon(BUILD, MODEL, *ONE_GPU, "--profile-steps", "1000", trace)
    daemon.run("generate", lines(64, 32, 1100))
    await_true(lambda: "is written" in daemon.log(), 20)
    ended(daemon)
    for line in daemon.out().splitlines():
        note(line)
    steps = compute_steps(trace)
    check(len(steps) == 1000, f"profile: {len(steps)} of 1000 steps in the trace")
    costs, plain = growth_costs(steps)
    worst = max((cost for cost, _ in costs), default=1e9)
    note(f"{len(plain)} decode steps of 64 rows, median {statistics.median(plain):.0f} us")
    check(len(costs) >= 10 and worst <= 1000,
          f"growth: {len(costs)} decode steps came with new slabs (up to {max(s for _, s in costs)} at once); "
          f"it added {worst:.0f} us at most, {statistics.median(c for c, _ in costs):.0f} in the median, "
          "limit 1000")
    shutil.rmtree(folder)


def notify():
    run = subprocess.run([os.path.join(BUILD, "tests/bench/bench_notify")], capture_output=True, text=True)
    print(run.stdout + run.stderr, end="", flush=True)
    if run.returncode:
        failures.append("notify")


# ---- ready ----------------------------------------------------------------------------------------------------


def tensors_8b():
    yield "model.embed_tokens.weight", (128256, 4096)
    for layer in range(32):
        at = f"model.layers.{layer}."
        yield at + "input_layernorm.weight", (4096,)
        for name, rows in (("q", 4096), ("k", 1024), ("v", 1024), ("o", 4096)):
            yield at + f"self_attn.{name}_proj.weight", (rows, 4096)
        yield at + "post_attention_layernorm.weight", (4096,)
        yield at + "mlp.gate_proj.weight", (14336, 4096)
        yield at + "mlp.up_proj.weight", (14336, 4096)
        yield at + "mlp.down_proj.weight", (4096, 14336)
    yield "model.norm.weight", (4096,)
    yield "lm_head.weight", (128256, 4096)


CONFIG_8B = {
    "architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "intermediate_size": 14336,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
    "vocab_size": 128256, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "dtype": "bfloat16",
    "tie_word_embeddings": False, "rope_theta": 500000}


def write_shard(path, tensors, values):
    """values: bytes that the tensors' values are taken from, over and over."""
    header, at = {}, 0
    for name, shape in tensors:
        size = 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb", buffering=0) as file:
        file.write(struct.pack("<Q", len(text)) + text)
        while at > 0:
            at -= file.write(values[:at])


def write_checkpoint(folder):
    """8B parameters of about 0.01, in four shards with an index."""
    low = rng.randbytes(32 * MIB)
    values = bytearray(64 * MIB)
    values[0::2] = low
    values[1::2] = low[::-1].translate(bytes(0x3c | (b & 0x80) for b in range(256)))
    values, all_tensors, where = memoryview(bytes(values)), list(tensors_8b()), {}
    for shard in range(4):
        name = f"model-{shard + 1:05}-of-00004.safetensors"
        part = all_tensors[shard * len(all_tensors) // 4:(shard + 1) * len(all_tensors) // 4]
        write_shard(os.path.join(folder, name), part, values)
        where.update({tensor: name for tensor, _ in part})
    with open(os.path.join(folder, "model.safetensors.index.json"), "w") as file:
        json.dump({"metadata": {}, "weight_map": where}, file)
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump(CONFIG_8B, file)
    return sum(os.path.getsize(path) for path in glob.glob(folder + "/*.safetensors"))


def fault_in(size):
    """Memory that a virtual machine gets from its host page by page is there before anything is timed."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_POPULATE", 0x8000)
    mmap.mmap(-1, size, flags=flags).close()


def ready():
    parent = next((p for p in ("/dev/shm", tempfile.gettempdir()) if shutil.disk_usage(p).free > 18 * GIB), None)
    if parent is None:
        check(False, "ready: no place for a checkpoint of 16 GB")
        return
    folder = tempfile.mkdtemp(dir=parent)
    try:
        begin = time.monotonic()
        size = write_checkpoint(folder)
        fault_in(24 * GIB)
        for path in glob.glob(folder + "/*.safetensors"):
            subprocess.run(["cat", path], stdout=subprocess.DEVNULL, check=True)
        note(f"a checkpoint of {size / 1e9:.1f} GB in {parent}, written and read in {time.monotonic() - begin:.0f} s")
        took = []
        for _ in range(3):
            daemon = Daemon(BUILD, folder, *ONE_GPU)
            took.append(daemon.ready_s)
            [result] = daemon.run("generate", lines(1, 16, 4))
            ended(daemon)
        check(max(took) <= 5 and result["finish_reason"] == "length",
              f"ready: {size / 1e9:.1f} GB of safetensors, ready after {', '.join(f'{t:.2f}' for t in took)} s, limit 5")
    finally:
        shutil.rmtree(folder)


# ---- memory ---------------------------------------------------------------------------------------------------


def use_all_buckets(daemon):
    """Every number of rows beside a sequence of every length class, the longest first: the graphs' arena is
    then large enough for all, and none is dropped. A bucket has its graph after two steps: few rows stay so long."""
    for length in (66000, 17000, 4200, 1100, 8):
        long = daemon.begin("generate", lines(1, length, 900))
        before = daemon.stats()["counters"]["generated_tokens_total"]
        await_true(lambda: daemon.stats()["counters"]["generated_tokens_total"] > before, 30)
        daemon.run("generate", [{"tokens": p, "max_tokens": 2 + i + max(0, 4 * (i - 250)), "ignore_eos": True}
                                for i, p in enumerate(prompts(255, 8))])
        long.results()
    return daemon.stats()["device"]["captures"], len(buckets(daemon.log()))


def memory_after_buckets(daemon, free_before):
    captures, different = use_all_buckets(daemon)
    note(f"{captures} graphs were captured, of {different} buckets; "
         f"beside the weights {(free_before - gpu_free() - WEIGHTS_8B) / MIB:.0f} MiB are taken with them")
    check(different >= 80, f"idle: {different} different graph buckets used, at least 80")
    await_true(lambda: free_before - gpu_free() - WEIGHTS_8B <= GIB, IDLE_S + 3, 0.1)
    time.sleep(1)
    rest = free_before - gpu_free() - WEIGHTS_8B
    check(rest <= GIB, f"idle: free memory before the start less now is the weights and {rest / MIB:.0f} MiB, limit 1024")
    return gpu_free()


def burst(daemon, free_idle):
    batch, most = daemon.begin("generate", lines(256, 1264, 360)), 0
    while not batch.ended():
        most = max(most, daemon.stats()["memory"]["kv_used"])
    batch.results()
    took = await_true(lambda: gpu_free() >= free_idle - 2 * MIB, IDLE_S + 5, 0.02)
    check(most >= 40 * GIB, f"burst: {most / GIB:.1f} GiB of KV, at least 40")
    check(took is not None and took <= IDLE_S,
          f"burst: back to the idle memory {took or -1:.2f} s after its end, limit the idle time of {IDLE_S:.0f} s")


def one_of_64(daemon):
    # It must outlast what the others leave in the prefix cache (CACHE_IDLE), and then the slabs that held it (IDLE_S).
    last = daemon.begin("generate", lines(1, 5120, 3600))
    many = daemon.begin("generate", lines(63, 1264, 200))
    peak, free_peak, seen = 0, 0, {}
    while not many.ended():
        peak = max(peak, daemon.stats()["memory"]["kv_held"])
    free_peak = gpu_free()

    def down():
        stats = daemon.stats()
        slabs = -(-stats["gauges"]["kv_blocks_used"] * 4 * MIB // SLAB)
        seen.update(slabs=slabs, held=stats["memory"]["kv_held"], used=stats["memory"]["kv_used"])
        return stats["gauges"]["running"] == 1 and seen["held"] <= (slabs + 2) * SLAB

    took = await_true(down, float(CACHE_IDLE[1][:-1]) + IDLE_S + 3, 0.02)
    freed = gpu_free() - free_peak
    alone = not last.ended()
    many.results()
    check(took is not None and alone,
          f"1 of 64: of {peak / GIB:.1f} GiB of KV {seen['held'] / SLAB:.0f} slabs are held, its blocks fill "
          f"{seen['slabs']:.0f}, limit 2 more; {took or -1:.1f} s after the others; nvidia-smi saw {freed / GIB:.1f} GiB "
          "come back")
    last.results()


# ---- idle -----------------------------------------------------------------------------------------------------


def ticks(process_id):
    """Clock ticks of CPU of each thread: {id: (name, ticks)}."""
    threads = {}
    for path in glob.glob(f"/proc/{process_id}/task/*"):
        with open(path + "/stat") as file:
            head, _, rest = file.read().rpartition(") ")
        fields = rest.split()
        threads[int(os.path.basename(path))] = (head.partition("(")[2], int(fields[11]) + int(fields[12]))
    return threads


def idle_ticks(daemon, seconds=60):
    process_id = daemon.process.pid
    before = ticks(process_id)
    time.sleep(seconds)
    after = ticks(process_id)
    spent = {t: after[t][1] - before.get(t, ("", 0))[1] for t in after}
    ours = [t for t in after if not after[t][0].startswith("cuda")]
    note("all threads: " + ", ".join(f"{after[t][0]} {spent[t]}" for t in sorted(after)))
    check(len(ours) >= 2 and sum(spent[t] for t in ours) <= 2,
          f"idle: our own {len(ours)} threads took {sum(spent[t] for t in ours)} clock ticks in {seconds} s, limit 2; "
          f"the driver's {sum(spent.values()) - sum(spent[t] for t in ours)}")


def memory():
    free_before = gpu_free()
    daemon = Daemon(BUILD, MODEL, *ONE_GPU, *CACHE_IDLE, modules=FAULTS, environment={"SLUICE_TEST_BUCKETS": "1"})
    free_idle = memory_after_buckets(daemon, free_before)
    burst(daemon, free_idle)
    one_of_64(daemon)
    ended(daemon)


def idle():
    daemon = Daemon(BUILD, MODEL, *ONE_GPU, *CACHE_IDLE)
    daemon.run("generate", lines(64, 64, 64))
    time.sleep(IDLE_S + 1)
    idle_ticks(daemon)
    ended(daemon)


# ---- tenant ---------------------------------------------------------------------------------------------------


class Hog:
    """Another process, which holds nothing before it is told to take what there is."""

    def __init__(self):
        self.process = subprocess.Popen([os.path.join(BUILD, "tests/gpu/hog"), "600"], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        running.append(self.process)
        self.process.stdout.readline()

    def take(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        note("the other process " + self.process.stdout.readline().strip())

    def go(self):
        self.process.stdin.close()
        note("the other process " + self.process.stdout.readline().strip())
        return self.process.wait(30)


def tenant():
    daemon, hog = Daemon(BUILD, MODEL, *ONE_GPU), Hog()
    batch = daemon.begin("generate", lines(128, 256, 384))
    await_true(lambda: daemon.stats()["memory"]["kv_used"] >= 3 * GIB, 20)
    hog.take()
    begin = time.monotonic()
    while not batch.ended() and time.monotonic() - begin < 60:
        time.sleep(1)
        if VERBOSE:
            stats = daemon.stats()
            note(f"{time.monotonic() - begin:.0f} s, {gpu_free() / MIB:.0f} MiB free: " + ", ".join(
                f"{k} {stats[g][k]}" for g, k in (
                    ("counters", "steps_total"), ("counters", "generated_tokens_total"),
                    ("counters", "preemptions_total"), ("counters", "kv_refused_total"),
                    ("counters", "scratch_refused_total"), ("gauges", "running"), ("gauges", "starting"),
                    ("memory", "kv_used"), ("memory", "scratch_used"), ("memory", "scratch_held"), ("memory", "graphs"))))
    beside, took = batch.ended(), time.monotonic() - begin  # while the other still has it all
    counters = daemon.stats()["counters"]
    code = hog.go()
    results = batch.results(30)
    whole = [r for r in results if r["finish_reason"] == "length" and len(r["tokens"]) == 384]
    check(beside and len(whole) == 128 and counters["kv_refused_total"] > 0 and counters["preemptions_total"] > 0
          and code == 0,
          f"tenant: growth was refused {counters['kv_refused_total']} times, {counters['preemptions_total']} preemptions, "
          f"{len(whole)} of 128 requests ended whole, {'' if beside else 'not '}all before the other process let go, "
          f"after {took:.1f} s; its exit code {code}")
    ended(daemon)


# ---- taken ----------------------------------------------------------------------------------------------------


def to_sleep(daemon):
    daemon.ask("sleep", MODEL)
    await_true(lambda: daemon.stats()["models"][0]["state"] == "asleep", 60)


def taken():
    daemon, asked = Daemon(BUILD, MODEL, *ONE_GPU, "--sleep-after", "600s"), lines(1, 64, 4)
    daemon.run("generate", asked)
    to_sleep(daemon)
    hog = Hog()
    hog.take()
    batch = daemon.begin("generate", asked)
    time.sleep(WAITS_S)
    waited = not batch.ended()
    code, begin = hog.go(), time.monotonic()
    tokens = batch.results(30)[0]["tokens"]
    check(waited and len(tokens) == 4 and code == 0, f"taken: a request {'waited' if waited else 'did not wait'} for memory and had "
          f"its {len(tokens)} tokens {time.monotonic() - begin:.1f} s after the other process was gone")
    to_sleep(daemon)
    hog, begin = Hog(), time.monotonic()
    hog.take()
    try:
        why = f"answered: {daemon.run('generate', asked, REFUSED_S)}"
    except RuntimeError as error:
        why = str(error)
    took = time.monotonic() - begin
    hog.go()
    tokens = daemon.run("generate", asked)[0]["tokens"]
    check("device_memory" in why and len(tokens) == 4, f"taken: where it stays, refused after {took:.1f} s ({why}); "
          f"the next request has its {len(tokens)} tokens")
    ended(daemon)


# ---- fault ----------------------------------------------------------------------------------------------------


def trap():
    daemon = Daemon(BUILD, "synthetic:llama-3.2-1b", *ONE_GPU, modules=FAULTS, environment={"SLUICE_TEST_FAULT": "trap:60"})
    batch = daemon.begin("generate", lines(8, 32, 400))
    await_true(lambda: "fault: trap" in daemon.log(), 20, 0.002)
    took = await_true(lambda: daemon.process.poll() is not None, 10, 0.002)
    code = daemon.process.poll()
    client = batch.client.wait(10)
    check(code == 75 and took <= 1.0 and client != 0,
          f"trap: exit code {code} {took or -1:.2f} s after the kernel, limit 75 within 1 s; its client's {client}, not 0")
    note("its client: " + (batch.errors().strip().splitlines() or ["said nothing"])[0][:120])


def spin():
    manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    path = os.path.join(tempfile.mkdtemp(), "notify")
    manager.bind(path)
    manager.settimeout(0.05)
    daemon = Daemon(BUILD, "synthetic:llama-3.2-1b", *ONE_GPU, "--step-timeout", "1s", modules=FAULTS,
                    environment={"SLUICE_TEST_FAULT": "spin:60", "NOTIFY_SOCKET": path, "WATCHDOG_USEC": "400000"})
    daemon.begin("generate", lines(8, 32, 400))
    await_true(lambda: "fault: spin" in daemon.log(), 20, 0.002)
    begin, fed = time.monotonic(), []
    while time.monotonic() - begin < 4:
        try:
            if b"WATCHDOG=1" in manager.recv(4096):
                fed.append(time.monotonic() - begin)
        except TimeoutError:
            pass
    daemon.process.kill()
    daemon.process.wait()
    last = max(fed, default=-1)
    check(len(fed) > 2 and last <= 1.5 and "no longer fed" in daemon.log(),
          f"spin: the watchdog, fed every 0.2 s, was last fed {last:.2f} s after the kernel; step-timeout 1 s, limit 1.5")


def fault():
    trap()
    spin()


PARTS = {part.__name__: part for part in (profile, notify, ready, memory, idle, tenant, taken, fault)}


def main():
    for name in sys.argv[2:] or PARTS:
        try:
            PARTS[name]()
        except Exception as error:  # the others are worth their time all the same
            check(False, f"{name}: {error!r}")
        end_all()
        keep(f"operate-{name}", BUILD)
    print(f"{len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
