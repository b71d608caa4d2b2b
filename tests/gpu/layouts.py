#!/usr/bin/env python3
"""One model on several devices answers what it does on one: tests/gpu/layouts.py BUILD [cuda|cpu] [PART...]

- right     every layout of replicas, shards and stages over 2, 4 and 8 devices (the CPU device: 2 and 4), as far as
            there are so many: log-probabilities of prompts and tokens of texts beside those of one device, twice. On
            the CPU device both runs give the same, and a layout without shards gives what one device gives
- starts    200 daemons on two devices each, of which each pair has its turn, shared, as stages and as replicas, a
            dozen at a time: each becomes ready, answers and ends by itself
- families  a reference checkpoint of each family (tests/model/data), shared by two devices and in two stages, beside
            one device
- formats   the same of each quantized checkpoint (tests/model/quantized) and of a synthetic model in each format;
            what two devices cannot share, since its columns would be cut inside a block, a group or an order, has to be
            refused by name
- experts   the same of each mixture of both folders, shared by whole experts (--ep)
- sanitized compute-sanitizer's memcheck over requests to a model shared by two GPUs, and to one in two stages; each
            allocation by itself (tests/gpu/apart/): of pools on several devices the tool keeps one that was given back
            (it took the 35,032,320 bytes of a step's scratch for the 33,562,880 that stood there before)

All of them when none is named; sanitized with cuda alone. Prints what it saw; exit 1 if any does not hold, 77 where
there are not two GPUs. Needs nothing but Python's own library, and compute-sanitizer for the last part.
"""

import concurrent.futures
import glob
import itertools
import json
import os
import random
import re
import shutil
import sys

import sanitizer
from served import Daemon, NotReady, check, distance, end_all, failures, gpus, keep, kill, sluiced_below

BUILD = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else ".build/cuda")
DEVICE = sys.argv[2] if len(sys.argv) > 2 else "cuda"
DEVICES = 4 if DEVICE == "cpu" else gpus()
STARTS, AT_ONCE = (200, 12) if DEVICE == "cuda" else (12, 4)
# As the scores of reference checkpoints are held to: on average, at most.
FORMATS = ("fp8", "fp8-blocks", "fp8-tensor", "fp8-static", "fp8-weights", "u4", "u4-zeros", "u8", "u8-zeros")
EXPERTS = {"num_experts", "num_local_experts", "n_routed_experts"}
REFUSED = re.compile(r"tp is 2: tensor \S+: .*columns")
MEAN_MAX, WORST_MAX = (0.02, 0.15) if DEVICE == "cuda" else (2e-4, 2e-4)
# Where inputs are rounded a rank does so by scales of its own columns, and a sum in another order already rounds some of them
# the other way: what that makes of small models. Of the synthetic shape it is told by what rounding itself makes of it.
ROUNDED, ROUNDED_MAX, ROUNDED_TIMES = re.compile("fp8|fbgemm|modelopt|ct-(channel|blocks|static|mixed)"), (0.06, 0.5), 1.5
UNROUNDED = "fp8-weights"
# Of a mixture's tokens so many may be farther off in 16 bits: two experts that a router holds nearly equal change places.
OTHER_EXPERTS = 0.01 if DEVICE == "cuda" else 0
ASKED = {"length": 12, "vocab": 250}


def daemon_on(model, dp=1, tp=1, pp=1, *options, first=0, **more):
    count = dp * tp * pp
    gpu_list = ",".join(map(str, range(first, first + count)))
    where = ("--cpu-devices", str(count)) if DEVICE == "cpu" else ("--gpus", gpu_list)
    dtype = ("--dtype", "f16") if DEVICE == "cuda" else ()  # roundings of bf16 would cover others
    return Daemon(BUILD, model, *where, *dtype, "--dp", str(dp), "--tp", str(tp), "--pp", str(pp), *options,
                  device=DEVICE, **more)


def answers(daemon, length=60, vocab=500):
    rng = random.Random(3)
    prompts = [[rng.randrange(vocab) for _ in range(n)] for n in (5, 40, 90, 120)]
    lines = [{"tokens": [rng.randrange(vocab) for _ in range(9)], "max_tokens": length, "ignore_eos": True}
             for _ in range(8)]
    return daemon.logprobs(prompts), [result["tokens"] for result in daemon.run("generate", lines)]


def layouts(count):
    """All of so many devices: replicas, shards, stages."""
    return [some for some in itertools.product((1, 2, 4, 8), repeat=3) if some[0] * some[1] * some[2] == count]


def model_for(tp):
    """One whose heads go so far, and whose layers do, on the CPU device a small one."""
    if DEVICE == "cuda":
        return "synthetic:llama-3.2-1b"
    return "synthetic:tiny" if tp <= 2 else "synthetic:tiny-wide"


def right():
    one = {}
    for count in (2, 4, 8):
        for dp, tp, pp in layouts(count) if count <= DEVICES else ():
            model = model_for(tp)
            if model not in one:
                daemon = daemon_on(model)
                one[model] = answers(daemon)
                check(daemon.stop() == 0, f"{model} on one device ends by itself")
            layout(model, one[model], dp, tp, pp)


def layout(model, one, dp, tp, pp, *options, rounded_max=ROUNDED_MAX, **asked):
    try:
        daemon = daemon_on(model, dp, tp, pp, *options)
    except NotReady as error:
        return refused(model, tp, error.daemon)
    first, second = answers(daemon, **asked), answers(daemon, **asked)
    code = daemon.stop()
    mean, most = distance(one[0], first[0])
    same = sum(a == b for a, b in zip(one[1], first[1]))
    rounds = tp > 1 and ROUNDED.search(os.path.basename(model)) and not model.endswith(UNROUNDED)
    mean_max, worst_max = rounded_max if rounds else (MEAN_MAX, WORST_MAX)
    far = max(sum(abs(a - b) > worst_max for a, b in zip(one[0], some[0])) for some in (first, second))
    check(len(one[0]) > 200 and mean <= mean_max and far <= (OTHER_EXPERTS * len(one[0]) if options else 0) and code == 0,
          f"{os.path.basename(model)}, dp {dp}, tp {tp}, pp {pp}{' by experts' if options else ''}: {len(one[0])} log-probabilities "
          f"beside one device's, off by {mean:.6f}, at most {most:.6f}; {same} of {len(one[1])} texts the same; run again: "
          f"{'the same' if first == second else 'not the same'}")
    if DEVICE == "cpu":
        check(first == second and (tp > 1 or first == one), "  equal to the last digit")
    return True


def refused(model, tp, daemon):
    """Of shares alone, and by the name of what is not shared."""
    lines = daemon.log().strip().splitlines()
    check(tp > 1 and daemon.process.returncode not in (None, 0) and bool(lines and REFUSED.search(lines[-1])),
          f"{os.path.basename(model)}, tp {tp}: refused: {lines[-1] if lines else 'without a word'}")
    return False


def paths(*folders):
    return [path for folder in folders
            for path in sorted(glob.glob(os.path.join(os.path.dirname(__file__), f"../model/{folder}/*-*")))]


def config_of(path):
    with open(os.path.join(path, "config.json")) as file:
        config = json.load(file)
    return config.get("text_config", config)


def heads_go(config):
    """1 where config.json has none: the family's own number."""
    return (config.get("num_key_value_heads") or config.get("num_attention_heads", 1)) % 2 == 0


def layers(config):
    return config.get("num_hidden_layers", 1)


def family(path):
    return os.path.basename(path).partition("-")[0]


def side_by_side(models, kinds, **limits):
    """Of models, each beside one device: the layouts that kinds(model) has. How many of them went on two devices."""
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        return sum(pool.map(lambda model: beside_one(model, kinds(model), limits), models))


def of_one(model):
    daemon = daemon_on(model)
    one = answers(daemon, **ASKED)
    check(daemon.stop() == 0, f"{os.path.basename(model)} on one device ends by itself")
    return one


def beside_one(model, kinds, limits):
    try:
        one = of_one(model)
        return sum(layout(model, one, 1, tp, pp, *options, **limits, **ASKED) for tp, pp, *options in kinds)
    except Exception as error:  # the others are worth their time all the same
        check(False, f"{os.path.basename(model)}: {error!r}")
        return 0


def families():
    """Of each the first whose heads two devices can share, and whose layers two stages."""
    found = {}
    for path in paths("data"):
        if heads_go(config_of(path)) and layers(config_of(path)) > 1:
            found.setdefault(family(path), path)
    names = {family(path) for path in paths("data")}
    check(set(found) == names, f"{len(found)} of {len(names)} families have a checkpoint that two devices can share")
    side_by_side(found.values(), lambda _: ((2, 1), (1, 2)))


def formats():
    def kinds(model):
        if model.startswith("synthetic:"):
            return ((2, 1), (1, 2))
        config = config_of(model)
        return [kind for kind, can in (((2, 1), heads_go(config)), ((1, 2), layers(config) > 1)) if can]

    shape = "synthetic:llama-3.2-1b" if DEVICE == "cuda" else "synthetic:tiny-wide"
    apart = distance(*(of_one(f"{shape}:{name}")[0] for name in ("fp8", UNROUNDED)))
    print(f"        {shape} with inputs rounded and as they are: off by {apart[0]:.6f}, at most {apart[1]:.6f}", flush=True)
    shared = side_by_side([f"{shape}:{name}" for name in FORMATS], kinds, rounded_max=[ROUNDED_TIMES * value for value in apart])
    check(shared == 2 * len(FORMATS), f"{shape} goes on two devices in {shared} of {2 * len(FORMATS)} ways")
    side_by_side(paths("quantized"), kinds)


def experts():
    mixtures = [path for path in paths("data", "quantized") if heads_go(config_of(path)) and EXPERTS & set(config_of(path))]
    shared = side_by_side(mixtures, lambda _: ((2, 1, "--ep"),))
    check(shared, f"{shared} of {len(mixtures)} mixtures are shared by whole experts")


def start(number):
    dp, tp, pp = ((1, 2, 1), (1, 1, 2), (2, 1, 1))[number % 3]
    daemon = daemon_on("synthetic:tiny", dp, tp, pp, first=number // 3 % (DEVICES // 2) * 2, patience_s=90)
    lines = [{"tokens": [1, 2, 3 + i], "max_tokens": 6, "ignore_eos": True} for i in range(4)]
    results = daemon.run("generate", lines)
    code = daemon.stop()
    whole = len(results) == 4 and all(len(result["tokens"]) == 6 for result in results)
    shutil.rmtree(daemon.folder)
    return daemon.ready_s if code == 0 and whole else None


def starts():
    well = []
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        for number, seconds in enumerate(pool.map(start, range(STARTS)), 1):
            well += [seconds] if seconds is not None else []
            if number % 10 == 0:
                print(f"        {len(well)} of {number} well", flush=True)
    check(len(well) == STARTS, f"{len(well)} of {STARTS} starts and stops on two devices, ready after "
          f"{min(well, default=0):.2f} to {max(well, default=0):.2f} s")


def sanitized():
    why = "it is for GPUs" if DEVICE == "cpu" else sanitizer.missing()
    if why:
        print(f"        sanitized is left out: {why}", flush=True)
        return
    with concurrent.futures.ThreadPoolExecutor() as pool:
        list(pool.map(lambda layout: checked(*layout), ((2, 1), (1, 2))))


def checked(tp, pp):
    # NCCL asks for kernels that it was not built with, which is an error of the API and no access to memory.
    reports = ("--report-api-errors", "no") if tp > 1 else ()
    daemon = daemon_on("synthetic:tiny", 1, tp, pp, *sanitizer.options("memcheck"), patience_s=120,
                       modules=sanitizer.modules(BUILD, "memcheck"), wrap=sanitizer.command("memcheck", *reports))
    try:
        logprobs, texts = answers(daemon, 12)
    except RuntimeError as error:
        check(False, f"memcheck, tp {tp}, pp {pp}: {error}")
        kill(daemon.process)
        print(daemon.out()[:6000], daemon.log()[-1000:], flush=True)
        return
    code = daemon.stop(sluiced_below(daemon.process.pid))
    summary, well = sanitizer.summary(daemon.out()), code == 0 and sanitizer.clean(daemon.out())
    check(well and len(logprobs) > 200 and len(texts) == 8, f"memcheck, tp {tp}, pp {pp}: exit code {code}, {summary}")
    if not well:
        print(daemon.out()[:3000], daemon.log()[-1000:], flush=True)


PARTS = {part.__name__: part for part in (right, families, formats, experts, starts, sanitized)}


def main():
    if DEVICES < 2:
        print(f"SKIPPED: there are {DEVICES} GPUs")
        return 77
    for part in sys.argv[3:] or PARTS:
        try:
            PARTS[part]()
        except Exception as error:  # the others are worth their time all the same
            check(False, f"{part}: {error!r}")
        finally:
            end_all()
            if DEVICE == "cuda":
                keep(f"several-layouts-{part}", BUILD)
    return 1 if failures else 0


sys.exit(main())
