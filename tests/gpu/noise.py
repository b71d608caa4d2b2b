#!/usr/bin/env python3
"""What roundings do to the logits of synthetic:llama-3.1-8b: tests/gpu/noise.py BUILD

The daemon generates for 512 prompts at once and scores what it generated; PyTorch makes the same weights
and computes the same sequences, in float32 and with chosen values rounded to 16 bits, and transformers
runs the same model in bf16. Prints how far each is from float32, and how far below the likeliest a token
can be that one path chose and another, which rounds at the same places, scores: the check of serve.py.
Needs PyTorch, transformers and a GPU of 100 GB; about two minutes.
"""

import math
import random
import sys

import numpy as np
import torch
from serve import Daemon, batch

HIDDEN, INNER, LAYERS, HEADS, KV_HEADS, DIM, VOCAB = 4096, 14336, 32, 32, 8, 128, 128256
LENGTH = 352  # the longest prompt and what is generated, rounded up
TRUE, PAIRS, CHUNK = 32, 256, 16  # sequences compared with float32; in pairs of paths; at a time
PLACES = "norm qkv q k v weights attended o gate_up activated down last_norm".split()
INPUTS = "norm q k v weights attended activated last_norm".split()  # of products, each rounded once
BF16, F16 = torch.bfloat16, torch.float16
WORD = (1 << 64) - 1

torch.backends.cuda.matmul.allow_tf32 = False
torch.set_grad_enabled(False)
torch.set_default_device("cuda")


def signed(value):
    value &= WORD
    return value - (1 << 64) if value >> 63 else value


def shifted(value, by):
    return value >> by & (1 << 64 - by) - 1


def mixed(value):
    """fill_mix of gpu/kernels/fill.cu, of a number or a tensor."""
    number = isinstance(value, int)
    for shift, factor in ((30, 0xbf58476d1ce4e5b9), (27, 0x94d049bb133111eb)):
        value = (value ^ shifted(value, shift)) * (factor if number else signed(factor))
        value = value & WORD if number else value
    return value ^ shifted(value, 31)


def filled(tensor, rows, columns):
    """The weights that op_fill makes, in bf16."""
    key = signed(mixed(mixed(tensor + 1)))
    step = float(np.float32(0.02) * (np.float32(1) / np.float32(209.02153)))
    out = torch.empty(rows * columns, dtype=BF16)
    for first in range(0, rows * columns, 1 << 27):
        end = min(rows * columns, first + (1 << 27))
        bits = mixed(torch.arange(first + 1, end + 1).mul_(signed(0x9e3779b97f4a7c15)).add_(key))
        pairs = (bits & 0x00ff00ff00ff00ff) + (shifted(bits, 8) & 0x00ff00ff00ff00ff)
        out[first:end] = (shifted(pairs * 0x0001000100010001, 48) - 1020).float().mul_(step)
    return out.view(rows, columns)


class Weights:
    def __init__(self):
        of = lambda layer, role, rows, columns: filled(role + 21 * layer, rows, columns)
        self.embed, self.head = of(0, 0, VOCAB, HIDDEN), of(0, 2, VOCAB, HIDDEN)
        self.layers = [{
            "qkv": torch.cat([of(i, 4, HEADS * DIM, HIDDEN), of(i, 5, KV_HEADS * DIM, HIDDEN),
                              of(i, 6, KV_HEADS * DIM, HIDDEN)]),
            "o": of(i, 7, HIDDEN, HEADS * DIM),
            "gate_up": torch.cat([of(i, 15, INNER, HIDDEN), of(i, 16, INNER, HIDDEN)]),
            "down": of(i, 17, HIDDEN, INNER)} for i in range(LAYERS)]
        plain = 500000.0 ** (-np.arange(0, DIM, 2) / DIM)
        share = np.clip((8192 * plain / (2 * math.pi) - 1) / (4 - 1), 0, 1)  # llama3
        self.frequency = torch.tensor((1 - share) * plain / 8 + share * plain, dtype=torch.float32)


def rounded(x, dtype):
    return x if dtype is None else x.to(dtype).float()


def product(x, w, dtype):
    """x w^T in float32, exact to its last bits: an unrounded x as the sum of three of bf16."""
    if dtype is not None:
        return torch.mm(x.to(dtype), w.to(dtype).t(), out_dtype=torch.float32)
    total = 0
    for _ in range(3):
        part = x.to(BF16)
        total = total + torch.mm(part, w.t(), out_dtype=torch.float32)
        x = x - part.float()
    return total


def logits(weights, tokens, places, layers=range(LAYERS), seed=0):
    """Logits of all positions of tokens [n, LENGTH]; `places` says what is rounded to what. With a
    seed, the embeddings are off by a millionth, which makes all roundings others."""
    count, length = tokens.shape
    x = weights.embed[tokens.reshape(-1)].float()
    if seed:
        x *= 1 + 1e-6 * torch.randn(x.shape, generator=torch.Generator("cuda").manual_seed(seed))
    angle = torch.arange(length)[:, None] * weights.frequency[None]
    cos, sin = angle.cos(), angle.sin()
    unseen = torch.full((length, length), float("-inf")).triu(1)

    def turned(t):
        a, b = t[..., :DIM // 2], t[..., DIM // 2:]
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    def normed(t, dtype):
        return rounded(t * torch.rsqrt((t * t).mean(-1, keepdim=True) + 1e-5), dtype)

    for i, w in enumerate(weights.layers):
        to = places.get if i in layers else lambda place: None
        x = rounded(x, to("residual"))
        qkv = product(normed(x, to("norm")), w["qkv"], to("norm"))
        qkv = rounded(qkv, to("qkv")).view(count, length, -1, DIM).transpose(1, 2)
        q, k, v = qkv.split([HEADS, KV_HEADS, KV_HEADS], 1)
        q = rounded(turned(q), to("q")).reshape(count, KV_HEADS, -1, DIM)
        k, v = rounded(turned(k), to("k")), rounded(v, to("v"))
        s = (q @ k.transpose(2, 3)).view(count, HEADS, length, length) * DIM ** -0.5 + unseen
        s = torch.exp(s - s.amax(-1, keepdim=True))
        total = s.sum(-1, keepdim=True)
        s = rounded(s, to("weights")).view(count, KV_HEADS, -1, length)
        out = (s @ v).view(count, HEADS, length, DIM) / total
        out = rounded(out.transpose(1, 2).reshape(count * length, -1), to("attended"))
        x = rounded(x + rounded(product(out, w["o"], to("attended")), to("o")), to("residual"))
        both = product(normed(x, to("norm")), w["gate_up"], to("norm"))
        gate, up = rounded(both, to("gate_up")).split(INNER, 1)
        out = rounded(torch.nn.functional.silu(gate) * up, to("activated"))
        x = x + rounded(product(out, w["down"], to("activated")), to("down"))
    last = places.get("last_norm")
    return product(normed(rounded(x, places.get("residual")), last), weights.head, last)


def logprobs(values, targets):
    return values.gather(1, targets[:, None])[:, 0] - torch.logsumexp(values, -1)


def below(values, chosen):
    """How far below the likeliest."""
    return values.amax(-1) - values.gather(1, chosen[:, None])[:, 0]


def figures(name, distances):
    d = torch.cat(distances).float().cpu().numpy()
    print(f"{name}: {len(d)} tokens, {100 * (d > 0).mean():.1f} % not the likeliest, "
          f"99.9 % within {np.quantile(d, .999):.4f}, all within {d.max():.4f}", flush=True)


def served(build):
    """What the daemon generates, and how it scores that."""
    draw = random.Random(11)
    prompts = [[draw.randrange(128000) for _ in range(draw.randint(32, 223))] for _ in range(512)]
    daemon = Daemon("synthetic:llama-3.1-8b")
    results, _ = batch("generate", [{"tokens": p, "max_tokens": 128, "ignore_eos": True,
                                     "logprobs": 0} for p in prompts])
    scores, _ = batch("score", [{"tokens": p + r["tokens"]} for p, r in zip(prompts, results)])
    daemon.stop()
    lengths = [len(p) + 128 for p in prompts]
    tokens = torch.zeros(512, LENGTH, dtype=torch.int64)
    for i, (p, r) in enumerate(zip(prompts, results)):
        tokens[i, :lengths[i]] = torch.tensor(p + r["tokens"])
    figures("this build", [torch.tensor(s["top_logprobs"][-128:]) - torch.tensor(
        s["logprobs"][-128:]) for s in scores])
    return tokens, lengths, [r["logprobs"] for r in results], [s["logprobs"] for s in scores]


class Bench:
    def __init__(self, tokens, lengths):
        self.weights, self.tokens, self.lengths = Weights(), tokens, torch.tensor(lengths)
        self.true = [self.some(first, {}) for first in range(0, TRUE, CHUNK)]

    def some(self, first, places, **how):
        """Logits of CHUNK sequences where there is a next token."""
        there = torch.arange(LENGTH)[None] < (self.lengths[first:first + CHUNK] - 1)[:, None]
        return logits(self.weights, self.tokens[first:first + CHUNK], places, **how)[there.view(-1)]

    def compare(self, name, places, **how):
        squares = count = worst = 0
        for i, true in enumerate(self.true):
            off = self.some(i * CHUNK, places, **how) - true
            off -= off.mean(-1, keepdim=True)
            squares += off.square().sum(dtype=torch.float64).item()
            count += off.numel()
            worst = max(worst, off.abs().max().item())
        print(f"{name}: logits off by {math.sqrt(squares / count):.5f} (deviation), {worst:.3f} at most",
              flush=True)

    def pair(self, name, places):
        distances = []
        for first in range(0, PAIRS, CHUNK):
            chosen = self.some(first, places, seed=1).argmax(-1)
            distances.append(below(self.some(first, places, seed=2), chosen))
        figures(name, distances)

    def device(self, generated, scored):
        """Log-probabilities of the daemon, decoded and scored, against float32."""
        true = torch.cat([logprobs(t, self.targets(i * CHUNK)) for i, t in enumerate(self.true)])
        score = torch.tensor([v for s in scored[:TRUE] for v in s])
        decode = torch.cat([torch.tensor([float("nan")] * (len(s) - 127) + g[1:])
                            for s, g in zip(scored[:TRUE], generated)])
        for name, values in (("score", score), ("decode", decode)):
            off = (values - true)[~values.isnan()]
            print(f"this build, {name}: log-probabilities off by {off.std().item():.5f} (deviation), "
                  f"{off.abs().max().item():.3f} at most", flush=True)

    def targets(self, first):
        there = torch.arange(LENGTH)[None] < (self.lengths[first:first + CHUNK] - 1)[:, None]
        return self.tokens[first:first + CHUNK].roll(-1, 1)[there]


def transformers_pair(weights):
    """Its own bf16: tokens generated in a batch, then scored alone."""
    from transformers import AutoModelForCausalLM, LlamaConfig, __version__
    config = LlamaConfig(
        hidden_size=HIDDEN, intermediate_size=INNER, num_hidden_layers=LAYERS, vocab_size=VOCAB,
        num_attention_heads=HEADS, num_key_value_heads=KV_HEADS, head_dim=DIM, rms_norm_eps=1e-5,
        bos_token_id=None, eos_token_id=None, rope_parameters={
            "rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 8192})
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=BF16)
    model.to_empty(device="cuda")
    for name, value in model.named_parameters():
        if name.endswith("norm.weight"):
            value.data.fill_(1)
    model.model.embed_tokens.weight.data, model.lm_head.weight.data = weights.embed, weights.head
    for layer, w in zip(model.model.layers, weights.layers):
        q, k, v = w["qkv"].split([HEADS * DIM, KV_HEADS * DIM, KV_HEADS * DIM])
        a, m = layer.self_attn, layer.mlp
        a.q_proj.weight.data, a.k_proj.weight.data, a.v_proj.weight.data = q, k, v
        a.o_proj.weight.data, m.down_proj.weight.data = w["o"], w["down"]
        m.gate_proj.weight.data, m.up_proj.weight.data = w["gate_up"].split(INNER)
    rope = model.model.rotary_emb
    rope.inv_freq, rope.original_inv_freq = weights.frequency, weights.frequency
    rope.attention_scaling = 1.0
    prompts = torch.randint(0, 128000, (256, 128), generator=torch.Generator("cuda").manual_seed(5))
    out = model.generate(prompts, attention_mask=torch.ones_like(prompts), max_new_tokens=128,
                         do_sample=False, eos_token_id=None, pad_token_id=0)
    figures(f"transformers {__version__}, bf16",
            [below(model(row[None]).logits[0, 127:-1].float(), row[128:]) for row in out])


def main():
    tokens, lengths, generated, scored = served(sys.argv[1])
    bench = Bench(tokens, lengths)
    bench.device(generated, scored)
    for dtype, name in ((BF16, "bf16"), (F16, "f16")):
        bench.compare(f"{name} in all places", dict.fromkeys(PLACES, dtype))
        bench.compare(f"{name} in inputs of products only", dict.fromkeys(INPUTS, dtype))
    for layers in (range(0, 8), range(24, 32)):
        bench.compare(f"bf16 in layers {layers[0]} to {layers[-1]} only",
                      dict.fromkeys(PLACES[:-1], BF16), layers=layers)
    for place in PLACES + ["residual"]:
        bench.compare(f"bf16, {place} only", {place: BF16})
    bench.true = None
    bench.pair("bf16 in all places, chosen by one path and scored by another",
               dict.fromkeys(PLACES, BF16))
    bench.pair("bf16 in inputs of products only, likewise", dict.fromkeys(INPUTS, BF16))
    bench.pair("f16 in all places, likewise", dict.fromkeys(PLACES, F16))
    transformers_pair(bench.weights)


main()
