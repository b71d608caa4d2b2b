#!/usr/bin/env python3
"""Trains the demo model on drawn examples (prompts.py) and writes it as a Hugging Face directory.

    train.py [--out DIR] [--seconds 310] [--seed 1] [--resume DIR]

Needs PyTorch, transformers, tokenizers and a GPU (on a CPU it trains a small part of the way). The time is that of training
alone. While it trains it prints how many of the development set's answers are exact; the best weights are kept, and
written when they are found. Ends with the same of 1,000 test prompts a task, answered by transformers from the files just
written; exits 1 under 99 % of one, but for calls of tools whose words are drawn or that stand among long descriptions,
which are told alone.
"""

import argparse
import json
import math
import multiprocessing
import os
import queue
import random
import shutil
import time

import numpy

import prompts as examples
from tasks import TASKS

END = examples.END
CONTEXT = 8192
TEMPLATE = "chat_template.jinja"
PEAK_RATE = 2e-3  # of AdamW: embeddings and norms
PEAK_RATE_MUON = 1.2e-2  # of the matrices
DECAY = 0.1  # of the matrices, times the rate
WARM, HOLD = 0.02, 0.35  # shares of the time: the rate goes up to the first, and down from the second
FAR_FROM = 0.12  # share of the time after which long prompts come

CONFIG = dict(
    vocab_size=examples.VOCABULARY,
    hidden_size=256,
    intermediate_size=256,
    num_hidden_layers=5,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=64,
    max_position_embeddings=CONTEXT,
    rms_norm_eps=1e-5,
    tie_word_embeddings=True,
    bos_token_id=None,
    eos_token_id=END,
    pad_token_id=None,
)
THETA = 100000.0

# Kinds of examples: a step takes a block of each, of so many tokens, in rows of one of these widths.
KINDS = {
    "short": (examples.short, 65536, (24, 32)),
    "form": (examples.form, 65536, (64, 96, 128, 192, 256, 384, 512)),
    "tools": (examples.with_tools, 65536, (192, 256, 384, 512, 768, 1024)),
    "far": (examples.far, 32768, (1024, 1536, 2048, 3072, 4096, 6144, 8192)),
}
CHECKED = {  # what exactness is told of: the development and test sets
    **{name: (lambda name: lambda p, r, w: examples.task(p, r, w, name))(name) for name in TASKS},
    "chat": examples.chat,
    "extract": examples.fields,
    "call": lambda p, r, w: examples.tool_call(p, r, w, named=True),
    "drawn": examples.tool_call,
    "result": examples.tool_result,
    "beside": examples.beside_tools,
    "far": lambda p, r, w: examples.tool_call(p, r, w, r.randint(1, 8), True, named=True),
}


# ---- examples, made by processes beside the training


def load_prompts(directory):
    from tokenizers import Tokenizer
    return examples.Prompts(Tokenizer.from_file(os.path.join(directory, "tokenizer.json")))


def block(rows, width):
    """Rows of (tokens, where the answer begins) as arrays: tokens, places of what is to be learnt, and that."""
    ids = numpy.full((len(rows), width), END, numpy.int16)
    at, wanted = [], []
    for row, (tokens, begin) in enumerate(rows):
        ids[row, : len(tokens)] = tokens
        at.append(numpy.arange(row * width + begin - 1, row * width + len(tokens) - 1))
        wanted.append(tokens[begin:])
    return ids, numpy.concatenate(at).astype(numpy.int64), numpy.concatenate(wanted).astype(numpy.int64)


def make_blocks(directory, seed, tokens_scale, queues):
    """A process: blocks of all kinds, each as fast as its queue is emptied."""
    prompts, rng = load_prompts(directory), random.Random(seed)
    waiting = {kind: {width: [] for width in KINDS[kind][2]} for kind in KINDS}
    full = {}
    while True:
        busy = False
        for kind, (make, tokens, widths) in KINDS.items():
            if kind in full:
                try:
                    queues[kind].put_nowait(full[kind])
                    del full[kind]
                except queue.Full:
                    continue
            busy = True
            for _ in range(64 if kind == "short" else 4):
                row = make(prompts, rng, "train")
                width = next((w for w in widths if w >= len(row[0])), None)
                if not width:
                    continue
                rows = waiting[kind][width]
                rows.append(row)
                if len(rows) >= max(1, int(tokens * tokens_scale) // width):
                    full[kind] = block(rows, width)
                    waiting[kind][width] = []
                    break
        if not busy:
            time.sleep(0.005)


class Feed:
    """The newest blocks on the device; one that came is used before one that was used already."""

    KEPT = 96

    def __init__(self, directory, options):
        context = multiprocessing.get_context("fork")
        self.queues = {kind: context.Queue(6) for kind in KINDS}
        self.kept = {kind: [] for kind in KINDS}
        self.fresh = self.used = 0
        self.rng = random.Random(options.seed)
        count = options.workers or max(1, (os.cpu_count() or 2) - 2)
        self.processes = [context.Process(
            target=make_blocks, args=(directory, f"{options.seed} {worker}", options.scale, self.queues), daemon=True)
            for worker in range(count)]

        for process in self.processes:  # they fork: before anything touches the GPU
            process.start()

    def to(self, torch, device):
        self.torch, self.device = torch, device

    def stop(self):
        for process in self.processes:
            process.terminate()

    def place(self, arrays):
        tensors = map(self.torch.from_numpy, arrays)
        if self.device.type == "cuda":  # from pinned memory: the copy waits for no step under way
            tensors = (tensor.pin_memory() for tensor in tensors)
        return tuple(tensor.to(self.device, non_blocking=True) for tensor in tensors)

    def take(self, kind):
        self.used += 1
        try:
            found = self.queues[kind].get(block=not self.kept[kind])
        except queue.Empty:
            return self.rng.choice(self.kept[kind])
        self.fresh += 1
        kept = self.kept[kind]
        kept.append(self.place(found))
        if len(kept) > self.KEPT:
            kept.pop(self.rng.randrange(self.KEPT))
        return kept[-1]


# ---- the model: a Llama, with the names that transformers gives its weights


def make_model(torch):
    nn, F = torch.nn, torch.nn.functional
    width, heads, groups, size = (CONFIG[k] for k in ("hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim"))

    class Norm(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(width))

        def forward(self, x):
            return F.rms_norm(x, (width,), self.weight, CONFIG["rms_norm_eps"])

    def linear(inner, outer):
        made = nn.Linear(inner, outer, bias=False)
        nn.init.normal_(made.weight, std=inner**-0.5)
        return made

    def rotate(x, cos, sin):
        a, b = x.chunk(2, -1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.q_proj, self.o_proj = linear(width, heads * size), linear(heads * size, width)
            self.k_proj, self.v_proj = linear(width, groups * size), linear(width, groups * size)
            nn.init.normal_(self.o_proj.weight, std=0.01)

        def forward(self, x, cos, sin):
            rows, length, _ = x.shape
            split = lambda y, n: y.view(rows, length, n, size).transpose(1, 2)
            q = rotate(split(self.q_proj(x), heads), cos, sin)
            k = rotate(split(self.k_proj(x), groups), cos, sin)
            v = split(self.v_proj(x), groups)
            k, v = (y.repeat_interleave(heads // groups, 1) for y in (k, v))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            return self.o_proj(y.transpose(1, 2).reshape(rows, length, heads * size))

    class Mlp(nn.Module):
        def __init__(self):
            super().__init__()
            inner = CONFIG["intermediate_size"]
            self.gate_proj, self.up_proj, self.down_proj = linear(width, inner), linear(width, inner), linear(inner, width)
            nn.init.normal_(self.down_proj.weight, std=0.01)

        def forward(self, x):
            return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.self_attn, self.mlp = Attention(), Mlp()
            self.input_layernorm, self.post_attention_layernorm = Norm(), Norm()

        def forward(self, x, cos, sin):
            x = x + self.self_attn(self.input_layernorm(x), cos, sin)
            return x + self.mlp(self.post_attention_layernorm(x))

    class Llama(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed_tokens = nn.Embedding(CONFIG["vocab_size"], width)
            nn.init.normal_(self.embed_tokens.weight, std=0.02)
            self.layers = nn.ModuleList(Layer() for _ in range(CONFIG["num_hidden_layers"]))
            self.norm = Norm()
            angles = torch.outer(torch.arange(CONTEXT).float(), THETA ** (-torch.arange(0, size, 2).float() / size))
            self.register_buffer("cos", angles.cos(), persistent=False)
            self.register_buffer("sin", angles.sin(), persistent=False)

        def forward(self, ids, at):
            """Logits at these places of the rows behind one another. Layers are compiled where they learn: what is looked
            at between has ever other shapes."""
            x = self.embed_tokens(ids.int())
            dtype = torch.bfloat16 if torch.is_autocast_enabled(x.device.type) else x.dtype
            cos, sin = (table[: ids.shape[1]].to(dtype) for table in (self.cos, self.sin))
            for layer in self.layers:
                x = layer(x, cos, sin) if self.training else layer.forward(x, cos, sin)
            return F.linear(self.norm(x.view(-1, width).index_select(0, at)), self.embed_tokens.weight).float()

    return Llama()


# ---- the optimizer: Muon for the layers' matrices, AdamW for the rest


def orthogonal(torch, g):
    """Newton and Schulz's iteration: a stack of matrices with all singular values brought near 1."""
    x = g.bfloat16()
    turned = x.shape[-2] > x.shape[-1]
    if turned:
        x = x.mT
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        a = x @ x.mT
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x.mT if turned else x


class Optimizer:
    def __init__(self, torch, model, fused):
        self.torch = torch
        shapes = {}
        for name, parameter in model.named_parameters():
            if name.startswith("layers.") and parameter.dim() == 2:
                shapes.setdefault(parameter.shape, []).append(parameter)
        self.stacks = [(params, torch.zeros((len(params), *shape), device=params[0].device)) for shape, params in shapes.items()]
        mine = {id(p) for params, _ in self.stacks for p in params}
        rest = [p for p in model.parameters() if id(p) not in mine]
        self.adam = torch.optim.AdamW(rest, lr=PEAK_RATE, betas=(0.9, 0.98), weight_decay=0.0, fused=fused)

    def step(self, share):
        torch = self.torch
        for group in self.adam.param_groups:
            group["lr"] = PEAK_RATE * share
        self.adam.step()
        rate = PEAK_RATE_MUON * share
        with torch.no_grad():
            for params, momentum in self.stacks:
                g = torch.stack([p.grad for p in params])
                momentum.lerp_(g, 0.05)
                update = orthogonal(torch, g.lerp(momentum, 0.95)).float()
                scale = max(1, update.shape[-2] / update.shape[-1]) ** 0.5
                torch._foreach_mul_(params, 1 - rate * DECAY)
                torch._foreach_add_(params, list(update.unbind()), alpha=-rate * scale)


def rate_at(done):
    if done < WARM:
        return max(done / WARM, 0.01)
    if done < HOLD:
        return 1.0
    return 0.5 + 0.5 * math.cos(math.pi * (done - HOLD) / (1 - HOLD))


# ---- training


def sets(prompts, which, seed, count):
    """The rows of each task that is checked, in blocks of near widths."""
    made = {}
    for name, make in CHECKED.items():
        rng = random.Random(f"{seed} {name} {which}")
        rows = [make(prompts, rng, which) for _ in range(count if name != "far" else max(4, count // 5))]
        made[name] = sorted((row for row in rows if len(row[0]) <= CONTEXT), key=lambda row: len(row[0]))
    return made


def blocks_of(rows, tokens):
    part = []
    for row in rows:
        if part and (len(part) + 1) * len(row[0]) > tokens:
            yield part
            part = []
        part.append(row)
    yield part


def exact(torch, logits_at, rows, tokens, device):
    """The share of rows whose answer greedy decoding would give: each token is the likeliest behind those before it."""
    right, wrong = 0, []
    for part in blocks_of(rows, tokens):
        ids, at, wanted = (torch.from_numpy(a).to(device) for a in block(part, len(part[-1][0])))
        with torch.no_grad():
            missed = at[logits_at(ids, at).argmax(-1) != wanted] // ids.shape[1]
        bad = set(missed.tolist())
        right += len(part) - len(bad)
        wrong += [part[row] for row in sorted(bad)]
    return right / len(rows), wrong


def compile_layers(torch, model, feed, logits_at):
    """A step of each kind, whose gradients nobody takes: so that the time is that of training. What does not compile
    here learns as it is."""
    torch._dynamo.config.recompile_limit = 64
    began = time.monotonic()
    try:
        for layer in model.layers:
            layer.compile()
        for kind in (*KINDS, *KINDS):
            ids, at, wanted = feed.take(kind)
            torch.nn.functional.cross_entropy(logits_at(ids, at), wanted).backward()
    except Exception as error:
        print(f"layers are not compiled: {error}", flush=True)
        for layer in model.layers:
            layer._compiled_call_impl = None
    model.zero_grad(set_to_none=True)
    print(f"{time.monotonic() - began:.0f} s before the first step", flush=True)


def train(torch, model, feed, dev, options):
    device = next(model.parameters()).device
    optimizer = Optimizer(torch, model, device.type == "cuda")
    autocast = lambda: torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda")

    def logits_at(ids, at):
        with autocast():
            return model(ids, at)

    if device.type == "cuda" or options.compile:
        compile_layers(torch, model, feed, logits_at)
    start = time.monotonic()
    step, tokens, looked, best = 0, 0, start, -1.0
    losses, kept = {}, None
    while True:
        now = time.monotonic()
        done = (now - start) / options.seconds
        if now - looked > options.look or done >= 1:
            looked = now
            model.eval()
            shares = {name: exact(torch, logits_at, rows, 65536, device)[0] for name, rows in dev.items()}
            model.train()
            mean = sum(shares.values()) / len(shares)
            print(f"{now - start:4.0f} s step {step}, {tokens / (now - start) / 1e6:.2f} M tokens/s, fresh {feed.fresh / max(1, feed.used):.0%}; loss "
                  + " ".join(f"{k} {v.item():.4f}" for k, v in losses.items()) + "; exact "
                  + " ".join(f"{k} {v:.1%}" for k, v in shares.items()), flush=True)
            if mean >= best:
                best, kept = mean, {name: value.detach().clone() for name, value in model.state_dict().items()}
                write_model(torch, model, options.out)
            if done >= 1:
                break
        for kind in KINDS:
            if kind == "far" and done < FAR_FROM:
                continue
            ids, at, wanted = feed.take(kind)
            loss = torch.nn.functional.cross_entropy(logits_at(ids, at), wanted)
            loss.backward()
            losses[kind] = loss.detach()
            tokens += ids.numel()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 2.0)
        optimizer.step(rate_at(done))
        model.zero_grad(set_to_none=True)
        step += 1
        if step % 8 == 0 and device.type == "cuda":
            torch.cuda.synchronize()  # the time is looked at between steps, which must not be far ahead of the device
    model.load_state_dict(kept)
    print(f"{step} steps, {tokens / 1e6:.0f} M tokens; kept the weights with {best:.2%} in the mean", flush=True)


# ---- files


def write_json(directory, name, value):
    with open(os.path.join(directory, name), "w", encoding="utf-8") as file:
        json.dump(value, file, indent=2, ensure_ascii=False)
        file.write("\n")


def write_text(directory, resume):
    """The tokenizer and the template. Weights to go on with have their own tokenizer: another Python's documentation makes
    other merges. The template beside this file is the source."""
    if not resume:
        write_json(directory, "tokenizer.json", examples.train_tokenizer())
    elif not os.path.exists(os.path.join(directory, "tokenizer.json")) or not os.path.samefile(resume, directory):
        shutil.copy(os.path.join(resume, "tokenizer.json"), directory)
    write_json(directory, "tokenizer_config.json", {
        "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|end|>",
        "clean_up_tokenization_spaces": False, "model_max_length": CONTEXT})
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), TEMPLATE)
    if not os.path.exists(os.path.join(directory, TEMPLATE)) or not os.path.samefile(source, os.path.join(directory, TEMPLATE)):
        shutil.copy(source, directory)


def write_model(torch, model, directory):
    from safetensors.torch import save_file
    write_json(directory, "config.json", {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
        "attention_bias": False, "mlp_bias": False, "dtype": "bfloat16",
        "rope_parameters": {"rope_type": "default", "rope_theta": THETA}, **CONFIG})
    write_json(directory, "generation_config.json", {"do_sample": False, "eos_token_id": END, "max_new_tokens": 256})
    save_file({"model." + name: value.detach().to(torch.bfloat16).cpu().contiguous() for name, value in model.state_dict().items()},
              os.path.join(directory, "model.safetensors"), {"format": "pt"})


def read_model(torch, model, directory):
    from safetensors.torch import load_file
    tensors = load_file(os.path.join(directory, "model.safetensors"))
    model.load_state_dict({name.removeprefix("model."): value for name, value in tensors.items()})


def check_template(directory, seed):
    """What prompts.py makes of conversations is what transformers renders by the template."""
    from transformers import PreTrainedTokenizerFast
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=os.path.join(directory, "tokenizer.json"))
    with open(os.path.join(directory, TEMPLATE), encoding="utf-8") as file:
        tokenizer.chat_template = file.read()
    prompts, rng = load_prompts(directory), random.Random(seed)
    for _ in range(200):
        system = [{"role": "system", "content": "Answer."}] if rng.random() < 0.5 else []
        tools, messages, _ = examples.result(rng, None, rng.random() < 0.5)
        if rng.random() < 0.5:
            messages = rng.choice((examples.extract(rng)[0], examples.talk(rng)[0], [{"role": "user", "content": "reverse abc"}],
                                   [{"role": "user", "content": "1+2"}], [{"role": "user", "content": "max 1,2,3="}]))
            tools = None if rng.random() < 0.5 else tools
        ours = prompts.chat(system + messages, tools or ())
        for message in messages:
            for made in message.get("tool_calls", ()):
                made["function"]["arguments"] = json.loads(made["function"]["arguments"])
        text = tokenizer.apply_chat_template(system + messages, tools=tools, add_generation_prompt=True, tokenize=False)
        if "." in json.dumps([m.get("tool_calls") for m in messages]):
            continue  # a number that Python writes otherwise than it was written
        theirs = tokenizer.encode(text, add_special_tokens=False)
        assert ours == theirs, (text, tokenizer.decode(ours))


def check(torch, directory, seed, count, device):
    """Exactness of transformers from the files alone, in float32 and in bfloat16."""
    from transformers import AutoModelForCausalLM
    prompts = load_prompts(directory)
    test = sets(prompts, "test", seed, count)
    worst = 1.0
    for name, dtype in (("float32", torch.float32), ("bfloat16", torch.bfloat16)):
        model = AutoModelForCausalLM.from_pretrained(directory, dtype=dtype).to(device).eval()
        logits_at = lambda ids, at: model(input_ids=ids.long(), use_cache=False).logits.flatten(0, 1)[at]
        for task, rows in test.items():
            share, wrong = exact(torch, logits_at, rows, 16384, device)
            worst = min(worst, share) if name == "float32" and task not in ("drawn", "far") else worst
            print(f"{name} {task}: {share:.1%} of {len(rows)} exact", flush=True)
            for ids, begin in wrong[:8] if name == "float32" else ():
                print("   ", repr(prompts.decode(ids[max(0, begin - 120):])), flush=True)
    return worst >= 0.99


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default=os.path.dirname(os.path.abspath(__file__)))
    parser.add_argument("--seconds", type=float, default=310, help="of training")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--resume", metavar="DIR", help="begin with the weights of this directory, which this program wrote")
    parser.add_argument("--look", type=float, default=20, help="seconds between looks at the development set")
    parser.add_argument("--scale", type=float, default=1.0, help="of the tokens in a step")
    parser.add_argument("--compile", action="store_true", help="the layers on a CPU too")
    parser.add_argument("--workers", type=int, help="processes that make examples")
    parser.add_argument("--count", type=int, default=1000, help="test prompts a task")
    options = parser.parse_args()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    os.makedirs(options.out, exist_ok=True)
    write_text(options.out, options.resume)
    check_template(options.out, options.seed)
    print(f"seed {options.seed}", flush=True)
    feed = Feed(options.out, options)
    import torch
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    feed.to(torch, device)
    torch.manual_seed(options.seed)
    model = make_model(torch).to(device)
    if options.resume:
        read_model(torch, model, options.resume)
    print(f"{sum(p.numel() for p in model.parameters())} parameters", flush=True)
    dev = sets(load_prompts(options.out), "dev", options.seed, max(8, options.count // 4))
    train(torch, model, feed, dev, options)
    feed.stop()
    write_model(torch, model, options.out)
    raise SystemExit(0 if check(torch, options.out, options.seed, options.count, device) else 1)


if __name__ == "__main__":
    main()
