#!/usr/bin/env python3
"""Makes the reference EAGLE-3 heads of tests/model/heads, of random weights, and what they guess in float32 for
checkpoints of tests/model/data, of tests/model/quantized, and for a deeper one that is made here.

    eagle.py [--out DIR] [--only NAME]

Needs what reference.py needs. A directory is called TARGET.NAME; config.json and tensors are as SpecForge writes them.
reference.json names the target and holds per prompt three rounds: the tokens behind the prompt, which the target has
computed but for the last, and the head's six likeliest guesses behind that, each read after the one before, with its
log-probability among the head's tokens and the margin between its two best logits. All entries but those of guesses are
of the target's own features.

- The first: the target's next token alone.
- As many of its guesses as ACCEPTED, as if the target had drawn them, and what it draws then.
- The target's own next three tokens.

A head stays only if each of the mistakes below would be seen, and no guess is a close one.
"""

import argparse
import json
import os
import shutil
import sys

import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import (
    LlamaAttention, LlamaMLP, LlamaRMSNorm, LlamaRotaryEmbedding)

import quantized
import reference as plain

HERE = os.path.dirname(os.path.abspath(__file__))
PROMPT_LENGTHS = (1, 2, 5, 33, 150)
STEPS = 6
ACCEPTED = 2
OWN = 3
CALM = 0.005  # between the two best logits, of the target and of the head
SEEN = 0.002  # of a log-probability: ten times what an engine may be off
SEEDS = 60    # that are tried

# A target deep enough for the layers that a head reads where it names none: the third, the middle, the third from last.
DEEP = plain.spec(100, "llama-deep-f16", "llama", "F16", plain.DEFAULT, 4, num_hidden_layers=8,
                  **{**plain.SMALL, "head_dim": 32})
DEEP_GAIN = 0.7


def head(target, name, seed, dtype, layers, named, rope, own_embedding=False, maps=True, **fields):
    """`layers`: what enters them is read; `named`: whereby config.json says so. `maps`: d2t and t2d are there."""
    return dict(target=target, name=f"{target}.{name}", seed=seed, dtype=dtype, layers=layers, named=named, rope=rope,
                own_embedding=own_embedding, maps=maps, fields=fields)


LLAMA3 = dict(rope_theta=500000.0, rope_scaling={k: v for k, v in plain.LLAMA3.items() if k != "rope_theta"})
HEADS = [
    head("llama-llama3-f32", "part", 1, "F32", [0, 1, 1], "top", LLAMA3, draft_vocab_size=96,
         num_attention_heads=4, num_key_value_heads=2, head_dim=64),
    head("qwen3-default-bf16", "own", 2, "BF16", [0, 0, 1], "top", dict(rope_parameters=plain.DEFAULT),
         own_embedding=True, maps=False, hidden_size=48, target_hidden_size=32, draft_vocab_size=256,
         norm_before_residual=True, num_attention_heads=2,
         num_key_value_heads=1, head_dim=128),
    head("llama-deep-f16", "default", 3, "F16", [2, 4, 5], None, dict(rope_theta=10000.0), draft_vocab_size=120,
         num_attention_heads=2, num_key_value_heads=2, head_dim=64, target_hidden_size=32),
    head("qwen2-ct-weights", "top", 4, "BF16", [0, 1, 1], "top", dict(rope_theta=20000.0), draft_vocab_size=200,
         num_attention_heads=4, num_key_value_heads=1, head_dim=32, norm_before_residual=False),
]


def config_json(item, target):
    config = dict(
        architectures=["LlamaForCausalLMEagle3"], model_type="llama", vocab_size=target.vocab_size,
        hidden_size=target.hidden_size, intermediate_size=56, num_hidden_layers=1, hidden_act="silu",
        max_position_embeddings=512, rms_norm_eps=1e-5, attention_bias=False, mlp_bias=False, tie_word_embeddings=False,
        use_cache=True, bos_token_id=None, eos_token_id=None, pad_token_id=None,
        torch_dtype=plain.CONFIG_DTYPES[item["dtype"]])
    config.update(item["rope"], **item["fields"])
    if item["named"] == "top":
        config["eagle_aux_hidden_state_layer_ids"] = item["layers"]
    return config


class Head(torch.nn.Module):
    """The one layer, between what makes its inputs one and what makes tokens of its output. Float32."""

    def __init__(self, config, embedding):
        super().__init__()
        parts = LlamaConfig(**json.loads(json.dumps(config)))  # which changes what it is given
        parts._attn_implementation = "eager"
        hidden, eps = parts.hidden_size, parts.rms_norm_eps
        self.residual_normed = config.get("norm_before_residual", False)
        self.fc = torch.nn.Linear(3 * config.get("target_hidden_size", hidden), hidden, bias=False)
        self.midlayer = torch.nn.Module()
        attention = LlamaAttention(parts, 0)
        for name in ("q_proj", "k_proj", "v_proj"):
            rows = getattr(attention, name).out_features
            setattr(attention, name, torch.nn.Linear(2 * hidden, rows, bias=False))
        self.midlayer.self_attn = attention
        self.midlayer.mlp = LlamaMLP(parts)
        for name in ("hidden_norm", "input_layernorm", "post_attention_layernorm"):
            setattr(self.midlayer, name, LlamaRMSNorm(hidden, eps))
        self.norm = LlamaRMSNorm(hidden, eps)
        self.lm_head = torch.nn.Linear(hidden, config["draft_vocab_size"], bias=False)
        self.rotary = LlamaRotaryEmbedding(parts)
        self.embedding = embedding
        self.tokens = list(range(config["draft_vocab_size"]))  # of its rows of logits

    def take(self, tensors):
        tensors = dict(tensors)
        self.embedding = tensors.pop("embed_tokens.weight", self.embedding)
        if "d2t" in tensors:
            self.tokens = [i + off for i, off in enumerate(tensors.pop("d2t").tolist())]
            tensors.pop("t2d")
        self.load_state_dict({name: value.float() for name, value in tensors.items()})

    def entries(self, tokens, states):
        """Of entries, from the first on, the layer's outputs."""
        layer, count = self.midlayer, len(tokens)
        normed = layer.hidden_norm(states)
        x = torch.cat([layer.input_layernorm(self.embedding.float()[tokens]), normed], -1)[None]
        mask = torch.full((count, count), float("-inf")).triu(1)[None, None]
        angles = self.rotary(x, torch.arange(count)[None])
        r = (normed if self.residual_normed else states) + layer.self_attn(x, angles, mask)[0][0]
        return r + layer.mlp(layer.post_attention_layernorm(r))

    def logits(self, outputs):
        return self.lm_head(self.norm(outputs))


def features(target, tokens, layers):
    """Of every position what enters these layers of the target, side by side."""
    with torch.no_grad():
        states = target(input_ids=torch.tensor([tokens]), use_cache=False, output_hidden_states=True).hidden_states
    return torch.cat([states[layer][0] for layer in layers], -1)


def likeliest(logits):
    best = torch.topk(logits, 2)
    return best.indices[0].item(), (best.values[0] - best.values[1]).item()


def guess(target, made, tokens, layers, mistake=None):
    """Guesses behind tokens of which the target has computed all but the last. A mistake changes one thing."""
    if mistake == "layers":
        layers = [layer + 1 if layer + 1 < target.config.num_hidden_layers else layer - 1 for layer in layers]
    read = features(target, tokens, layers)
    if mistake == "parts":
        read = read.roll(read.shape[1] // 3, 1)
    if mistake == "position":
        read = torch.cat([read[1:-1], read[-2:]])
    states, texts = made.fc(read[:-1]), list(tokens[1:])
    if mistake == "tokens":
        texts = list(tokens[:-1])
    if mistake == "first":
        states, texts = torch.cat([torch.zeros_like(states[:1]), states]), list(tokens)
    found = dict(guesses=[], logprobs=[], margins=[])
    for _ in range(STEPS):
        last = made.entries(texts, states)[-1]
        row, margin = likeliest(made.logits(last))
        found["guesses"].append(row if mistake == "map" else made.tokens[row])
        found["logprobs"].append(torch.log_softmax(made.logits(last), -1)[row].item())
        found["margins"].append(margin)
        handed = {"features": states[-1], "normed": made.norm(last)}.get(mistake, last)
        states, texts = torch.cat([states, handed[None]]), texts + found["guesses"][-1:]
    return found


def rounds_of(target, made, prompt, layers):
    """What stands in reference.json of a prompt, and the least margin of a token that the target draws."""
    def drawn(tokens):
        token, margin = likeliest(plain.logits_of(target, tokens)[-1])
        margins.append(margin)
        return token

    def round_of(behind):
        return dict(tokens=behind, **guess(target, made, prompt + behind, layers))
    margins, own = [], []
    for _ in range(OWN):
        own.append(drawn(prompt + own))
    first = round_of(own[:1])
    accepted = own[:1] + first["guesses"][:ACCEPTED]
    return [first, round_of(accepted + [drawn(prompt + accepted)]), round_of(own)], min(margins)


def mistakes_of(item, made):
    names = ["layers", "parts", "position", "tokens", "first", "features", "normed", "residual"]
    return names + (["map"] if made.tokens != list(range(len(made.tokens))) else [])


def seen(target, made, item, prompts, listed):
    """By how much at most each mistake moves a log-probability; another token is as far as can be."""
    found = {}
    for mistake in mistakes_of(item, made):
        made.residual_normed ^= mistake == "residual"
        found[mistake] = 0.0
        for prompt, entry in zip(prompts, listed):
            right = entry["rounds"][0]
            wrong = guess(target, made, prompt + right["tokens"], item["layers"], mistake)
            for i in range(STEPS):
                apart = abs(wrong["logprobs"][i] - right["logprobs"][i])
                if wrong["guesses"][i] != right["guesses"][i]:
                    apart = max(apart, 1.0)
                found[mistake] = max(found[mistake], apart)
        made.residual_normed ^= mistake == "residual"
    return found


def random_tensors(item, config, made, generator):
    """Inputs of the layer, and what each of its parts adds, are about as large as each other."""
    def noise(*shape):
        return torch.randn(shape, generator=generator)
    tensors = {}
    for name, value in made.state_dict().items():
        if "norm" in name:
            tensors[name] = 1 + 0.25 * noise(*value.shape)
        else:
            factor = 1.3 if "q_proj" in name or "k_proj" in name else 2.0 if "o_proj" in name or "down" in name else 1.0
            tensors[name] = factor * noise(*value.shape) / value.shape[1] ** 0.5
    if item["own_embedding"]:
        tensors["embed_tokens.weight"] = noise(config["vocab_size"], config["hidden_size"]) / 4
    if item["maps"]:
        chosen = torch.randperm(config["vocab_size"], generator=generator)[:config["draft_vocab_size"]].sort().values
        tensors["d2t"] = chosen - torch.arange(len(chosen))
        tensors["t2d"] = torch.zeros(config["vocab_size"], dtype=torch.bool)
        tensors["t2d"][chosen] = True
    return tensors


def in_dtype(tensors, dtype):
    return {name: value.to(dtype).contiguous() if value.is_floating_point() else value.contiguous()
            for name, value in tensors.items()}


def scale(made, tensors, target, item, dtype, prompt):
    """What fc gives has a deviation of 1, and logits the wanted one."""
    with torch.no_grad():
        read = features(target, prompt, item["layers"])
        made.take(in_dtype(tensors, dtype))
        tensors["fc.weight"] /= made.fc(read).std()
        made.take(in_dtype(tensors, dtype))
        outputs = made.entries(prompt[1:], made.fc(read[:-1]))
        tensors["norm.weight"] *= plain.LOGITS_DEVIATION / made.logits(outputs).std()
        made.take(in_dtype(tensors, dtype))
        return made.logits(outputs).std().item()


def attempt(item, config, target, embedding, seed):
    """Tensors, what reference.json says, the least margin, and what mistakes move."""
    generator = torch.Generator().manual_seed(seed)
    prompts = [torch.randint(0, config["vocab_size"], (n,), generator=generator).tolist() for n in PROMPT_LENGTHS]
    made = Head(config, embedding).eval()
    tensors = random_tensors(item, config, made, generator)
    dtype = plain.DTYPES[item["dtype"]]
    deviation = scale(made, tensors, target, item, dtype, prompts[-1])
    tensors = in_dtype(tensors, dtype)
    listed, calm = [], float("inf")
    with torch.no_grad():
        for prompt in prompts:
            rounds, least = rounds_of(target, made, prompt, item["layers"])
            calm = min(calm, least, *(margin for found in rounds for margin in found["margins"]))
            listed.append(dict(tokens=prompt, rounds=rounds))
        if calm < CALM:
            return None
        moved = seen(target, made, item, prompts, listed)
    if min(moved.values()) < SEEN:
        return None
    return tensors, listed, dict(seed=seed, logits_deviation=deviation, least_margin=calm, mistakes=moved)


def target_of(out, item):
    """Its directory, from the top folder on, and the model in float32."""
    name = item["target"]
    if name == DEEP["name"]:
        directory = os.path.join(out, name)
        return os.path.join("tests/model/heads", name), plain.load(directory, torch.float32, "cpu")
    folder = "data" if os.path.isdir(os.path.join(HERE, "data", name)) else "quantized"
    directory = os.path.join(HERE, folder, name)
    model = quantized.dequantized(directory) if folder == "quantized" else plain.load(directory, torch.float32, "cpu")
    return os.path.join("tests/model", folder, name), model


def make(out, item):
    path, target = target_of(out, item)
    directory = os.path.join(out, item["name"])
    shutil.rmtree(directory, ignore_errors=True)
    os.makedirs(directory)
    config = config_json(item, target.config)
    embedding = target.get_input_embeddings().weight.detach()
    for seed in range(1000 * item["seed"], 1000 * item["seed"] + SEEDS):
        found = attempt(item, config, target, embedding, seed)
        if found:
            break
    else:
        raise RuntimeError(f"{item['name']}: no seed is calm, or mistakes would not be seen")
    tensors, listed, result = found
    save_file(tensors, os.path.join(directory, "model.safetensors"), {"format": "pt"})
    with open(os.path.join(directory, "config.json"), "w") as file:
        json.dump(config, file, indent=1)
        file.write("\n")
    text = json.dumps(plain.rounded(dict(target=path, torch=torch.__version__, **result)))[:-1]
    text += ',\n"prompts": [\n' + ",\n".join(
        json.dumps(plain.rounded(entry), separators=(",", ":")) for entry in listed) + "\n]}\n"
    with open(os.path.join(directory, "reference.json"), "w") as file:
        file.write(text)
    print(f"{item['name']}: {text.splitlines()[0]}", flush=True)


def deep_make(out):
    directory = os.path.join(out, DEEP["name"])
    os.makedirs(directory, exist_ok=True)
    plain.build(DEEP, DEEP["seed"], directory, DEEP_GAIN)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default=os.path.join(HERE, "heads"))
    parser.add_argument("--only")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if not options.only or options.only.startswith(DEEP["name"]):
        deep_make(options.out)
    for item in HEADS:
        if not options.only or options.only == item["name"]:
            make(options.out, item)
    return 0


if __name__ == "__main__":
    sys.exit(main())
