#!/usr/bin/env python3
"""Makes the quantized reference checkpoints of tests/model/quantized, by the public definitions of their formats,
and what PyTorch says of them in float32: weights dequantized, inputs rounded where the scheme says so.

    quantized.py [--out DIR] [--only NAME]

Needs what reference.py needs; reference.json is as there, without bfloat16, greedy steps and the rope's numbers.
"""

import argparse
import copy
import fnmatch
import json
import os
import re
import sys
import tempfile

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

import experts_apart
import reference as plain

GREATEST = 448.0
BLOCK = 128
GAIN = 0.7
SEEDS = 40  # that are tried
CALM = 0.004
KV_REACH = 0.7


def e4m3(x):
    return x.clamp(-GREATEST, GREATEST).to(torch.float8_e4m3fn)


def above_zero(greatest):
    return torch.where(greatest > 0, greatest / GREATEST, torch.ones_like(greatest))


def rounded_by(x, scale):
    return e4m3(x / scale).float() * scale


def blocks_of(w, reduce):
    rows, columns = (-(-size // BLOCK) for size in w.shape)
    return torch.stack([torch.stack([reduce(w[i * BLOCK:(i + 1) * BLOCK, j * BLOCK:(j + 1) * BLOCK])
                                     for j in range(columns)]) for i in range(rows)])


def spread(scale, shape):
    """A scale for each element, of one for all, for rows or for blocks."""
    if scale.numel() == 1:
        return scale.reshape(1, 1).expand(shape)
    if scale.shape[1] == 1 and scale.shape[0] == shape[0]:
        return scale.expand(shape)
    return scale.repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)[:shape[0], :shape[1]]


def weight_scale(w, strategy):
    if strategy == "tensor":
        return above_zero(w.abs().max())
    if strategy == "channel":
        return above_zero(w.abs().amax(1, keepdim=True))
    return above_zero(blocks_of(w.abs(), torch.max))


class Rounding:
    """What a module's input becomes; while it learns, the greatest is kept for a fixed scale."""

    def __init__(self, how):
        how, _, bound = (how or "").partition("<=")
        self.how, self.greatest, self.scale, self.learns = how, torch.zeros(()), None, how == "static"
        self.bound = float(bound or "inf")

    def __call__(self, module, inputs):
        x = inputs[0]
        if self.learns:
            self.greatest = torch.maximum(self.greatest, x.abs().max())
            return None
        if self.how == "token":
            return (rounded_by(x, above_zero(x.abs().amax(-1, keepdim=True).clamp(max=self.bound))).to(x.dtype),)
        if self.how == "static":
            return (rounded_by(x, self.scale),)
        if self.how == "group":
            parts = [rounded_by(part, above_zero(part.abs().amax(-1, keepdim=True))) for part in x.split(BLOCK, -1)]
            return (torch.cat(parts, -1),)
        return None


class Cache:
    """What keys and values become: e4m3 with a scale for each token and head, or with one for a layer's K and one for
    its V. Such scales are learnt from the first prompts, and are too small for the greatest values."""

    attached = []

    def __init__(self, how):
        self.how, self.greatest, self.scale, self.learns = how, {}, {}, how == "static"

    def __call__(self, key, x):
        if self.learns:
            self.greatest[key] = max(self.greatest.get(key, 0.0), x.abs().max().item())
            return x
        scale = self.scale[key] if self.how == "static" else above_zero(x.abs().amax(-1, keepdim=True))
        return rounded_by(x, scale)

    def learn(self):
        for key, greatest in self.greatest.items():
            self.scale[key] = torch.tensor(greatest * KV_REACH / GREATEST).bfloat16().float()
        self.learns = False

    def attach(self, model):
        """Where keys are turned and values are not yet multiplied by anything. A layer's attention looks it up by this
        name."""
        module = sys.modules[type(model).__module__]
        plainly = module.eager_attention_forward

        def attend(layer, query, key, value, *args, **kwargs):
            key, value = self(("k_scale", layer.layer_idx), key), self(("v_scale", layer.layer_idx), value)
            return plainly(layer, query, key, value, *args, **kwargs)
        module.eager_attention_forward = attend
        Cache.attached.append((module, plainly))

    @staticmethod
    def detach_all():
        while Cache.attached:
            module, plainly = Cache.attached.pop()
            module.eager_attention_forward = plainly


def fp8(inputs="dynamic", blocks=False, ignored=None):
    config = dict(quant_method="fp8", activation_scheme=inputs)
    if blocks:
        config.update(fmt="e4m3", weight_block_size=[BLOCK, BLOCK])
    if ignored is not None:
        config["modules_to_not_convert" if blocks else "ignored_layers"] = ignored
    how = "group" if blocks else "token" if inputs == "dynamic" else "static"

    def scheme(name):
        if name == "lm_head" or any(name.startswith(i) or name.endswith(i) for i in ignored or []):
            return None
        return ("block" if blocks else "tensor", how, "weight_scale_inv" if blocks else "weight_scale")
    return config, scheme


def fbgemm(bound, ignored):
    config = dict(quant_method="fbgemm_fp8", activation_scale_ub=bound, modules_to_not_convert=ignored)
    return config, lambda name: None if name in ignored else ("channel", f"token<={bound}", "weight_scale")


def modelopt(algorithm, ignored, apart=False):
    """`apart`: in hf_quant_config.json alone."""
    rules = {"FP8": ("tensor", "static"), "FP8_PER_CHANNEL_PER_TOKEN": ("channel", "token"), "FP8_PB_WO": ("block", None)}
    config = dict(quant_method="modelopt", quant_algo=algorithm, ignore=ignored, producer=dict(name="modelopt"))
    if apart:
        config = dict(producer=dict(name="modelopt"), quantization=dict(
            quant_algo=algorithm.lower(), kv_cache_quant_algo=None, exclude_modules=ignored))

    def scheme(name):
        ignores = any(fnmatch.fnmatchcase(name, i) or name.startswith(i + ".") for i in ignored)
        return None if ignores else (*rules[algorithm], "weight_scale")
    return config, scheme


def inputs_of(how):
    if how is None:
        return None
    strategy = {"token": "token", "static": "tensor", "group": "group"}[how]
    made = dict(num_bits=8, type="float", symmetric=True, strategy=strategy, dynamic=how != "static", actorder=None,
                group_size=BLOCK if how == "group" else None, block_structure=None, observer=None, observer_kwargs={})
    return made


def compressed(groups, ignore, **more):
    """groups: (targets, strategy, inputs) each."""
    config = dict(quant_method="compressed-tensors", format="float-quantized", quantization_status="compressed",
                  global_compression_ratio=None, ignore=ignore, kv_cache_scheme=None, config_groups={}, **more)
    for number, (targets, strategy, how) in enumerate(groups):
        weights = dict(num_bits=8, type="float", symmetric=True, strategy=strategy, dynamic=False, actorder=None,
                       group_size=None, block_structure=[BLOCK, BLOCK] if strategy == "block" else None,
                       observer="minmax", observer_kwargs={})
        config["config_groups"][f"group_{number}"] = dict(
            targets=targets, weights=weights, input_activations=inputs_of(how), output_activations=None)

    def means(target, name):
        return bool(re.match(target[3:], name)) if target.startswith("re:") else target == name

    def scheme(name):
        if any(means(i, name) for i in ignore):
            return None
        named = [g for g in groups if any(means(t, name) for t in g[0])]
        found = named or [g for g in groups if "Linear" in g[0]]
        return (found[0][1], found[0][2], "weight_scale") if found else None
    return config, scheme


def spec(seed, name, arch, dtype, quantization, scales=torch.float32, kv=None, **fields):
    """kv: (how, where): keys and values in eight bits, "token" or "static", or "unused": scales that stand in the
    checkpoint alone; and the module of a layer that has the scales, %s for k and v."""
    rope = fields.pop("rope", plain.DEFAULT)
    item = plain.spec(seed, name, arch, dtype, rope, 4, **fields)
    return dict(item=item, quantization=quantization, scales=scales, kv=kv)


SMALL = plain.SMALL
PLAIN = (None, lambda name: None)
WIDE = dict(hidden_size=160, intermediate_size=200, num_attention_heads=4, num_key_value_heads=2, head_dim=48,
            num_hidden_layers=1)
SPECS = [
    spec(103, "llama-fp8-tensor", "llama", "F32", fp8(), num_hidden_layers=1),
    spec(1, "qwen2-fp8-static", "qwen2", "BF16", fp8("static", ignored=["model.layers.1.mlp"]),
         **dict(SMALL, num_key_value_heads=2)),
    spec(2, "llama-fp8-blocks", "llama", "F32", fp8(blocks=True), **WIDE),
    spec(100, "qwen3-fp8-blocks", "qwen3", "F32",
         fp8(blocks=True, ignored=["lm_head", "model.layers.0.self_attn.o_proj"]), scales=torch.bfloat16,
         tie_word_embeddings=True, hidden_size=150, num_hidden_layers=1),
    spec(4, "glm-fp8-blocks", "glm", "F32", fp8(blocks=True), partial_rotary_factor=0.5, attention_bias=True,
         hidden_size=144, num_hidden_layers=1),
    spec(105, "llama-ct-static", "llama", "BF16",
         compressed([(["Linear"], "tensor", "static")], ["lm_head"]), scales=torch.bfloat16,
         kv=("unused", "self_attn"), **SMALL),
    spec(103, "llama-ct-channel", "llama", "F32", compressed([(["Linear"], "channel", "token")], []),
         scales=torch.bfloat16, num_attention_heads=2, num_key_value_heads=2, num_hidden_layers=1),
    spec(7, "phi3-ct-channel", "phi3", "F16", compressed([(["Linear"], "channel", "token")], ["lm_head"]),
         scales=torch.float16, sliding_window=16, num_hidden_layers=1),
    spec(102, "llama-ct-mixed", "llama", "BF16", compressed(
        [(["Linear"], "channel", None), ([r"re:.*layers\.0\.mlp\.(gate|up)_proj$"], "block", "group"),
         (["model.layers.1.mlp.down_proj"], "tensor", "token")], ["re:.*lm_head", "model.layers.0.self_attn.o_proj"]),
         hidden_size=136, num_attention_heads=2, num_key_value_heads=1, intermediate_size=144),
    spec(13, "llama-fbgemm-bound", "llama", "BF16", fbgemm(2.0, ["lm_head"]), num_hidden_layers=1),
    spec(14, "qwen2-fbgemm", "qwen2", "BF16", fbgemm(1200.0, ["model.layers.0.mlp.down_proj", "lm_head"]),
         num_hidden_layers=1),
    spec(15, "llama-modelopt", "llama", "BF16", modelopt("FP8", ["lm_head", "model.layers.0.self_attn*"]), **SMALL),
    spec(16, "qwen3-modelopt-channel", "qwen3", "BF16", modelopt("FP8_PER_CHANNEL_PER_TOKEN", ["lm_head"]),
         num_hidden_layers=1),
    spec(17, "llama-modelopt-apart", "llama", "BF16", modelopt("FP8_PB_WO", ["lm_head", "*layers.1*down*"], apart=True),
         **WIDE | dict(num_hidden_layers=2)),
    spec(9, "qwen2-ct-weights", "qwen2", "BF16", compressed([(["Linear"], "channel", None)], ["lm_head"]), **SMALL),
    spec(10, "llama-ct-blocks", "llama", "BF16", compressed([(["Linear"], "block", None)], ["lm_head"]), **WIDE),
    spec(11, "llama-kv-static", "llama", "BF16", compressed([(["Linear"], "channel", None)], ["lm_head"]),
         kv=("static", "self_attn"), num_attention_heads=4, num_key_value_heads=2, num_hidden_layers=2),
    spec(12, "qwen2-kv-parts", "qwen2", "F32", PLAIN, kv=("static", "self_attn.%s_proj"), num_attention_heads=2,
         num_key_value_heads=2, num_hidden_layers=1),
    spec(13, "phi3-kv-token", "phi3", "F16", PLAIN, kv=("token", None), sliding_window=16, num_hidden_layers=2),
    spec(14, "qwen3-kv-token", "qwen3", "BF16", PLAIN, kv=("token", None), num_attention_heads=4,
         num_key_value_heads=2, num_hidden_layers=2),
    # Mixtures: what chooses experts stays as it is. Of 256 columns two ranks have whole blocks, of 144 none.
    spec(201, "mixtral-fp8-static", "mixtral", "BF16", fp8("static", ignored=["lm_head"]), intermediate_size=16,
         num_local_experts=8, num_experts_per_tok=2, head_dim=None),
    spec(202, "olmoe-fp8-tensor", "olmoe", "F16", fp8(), hidden_size=64, head_dim=None, intermediate_size=24,
         num_experts=4, num_experts_per_tok=2, norm_topk_prob=False, clip_qkv=None),
    spec(203, "qwen3-moe-fp8-blocks", "qwen3_moe", "BF16", fp8(blocks=True, ignored=[
        "lm_head", "model.layers.0.self_attn", "model.layers.0.mlp.gate"]), scales=torch.bfloat16, hidden_size=136, moe_intermediate_size=256,
         num_experts=4, num_experts_per_tok=2, norm_topk_prob=True, mlp_only_layers=[], num_hidden_layers=1),
    spec(204, "mixtral-ct-blocks", "mixtral", "BF16", compressed(
        [(["Linear"], "block", None)], ["lm_head", "re:.*block_sparse_moe.gate"]), hidden_size=136,
         intermediate_size=144, num_local_experts=4, num_experts_per_tok=2, head_dim=None, num_hidden_layers=1),
    spec(205, "qwen2-moe-ct-channel", "qwen2_moe", "BF16", compressed(
        [(["Linear"], "channel", "token")], ["lm_head", "re:.*mlp.gate$", "re:.*mlp.shared_expert_gate$"]),
         moe_intermediate_size=16, shared_expert_intermediate_size=24, num_experts=6, num_experts_per_tok=2,
         norm_topk_prob=False),
    spec(206, "glm4-moe-ct-weights", "glm4_moe", "BF16", compressed(
        [(["Linear"], "channel", None)], ["lm_head", "re:.*mlp.gate$"]), partial_rotary_factor=0.5,
         num_hidden_layers=3, moe_intermediate_size=16, n_routed_experts=8, num_experts_per_tok=3, n_shared_experts=2,
         first_k_dense_replace=1, routed_scaling_factor=1.5, n_group=1, topk_group=1),
]


def quantize(model, item, scheme, scales):
    """The tensors to be kept of each linear module; the model gets what they stand for."""
    tensors, roundings = {}, {}
    for name, module in experts_apart.linears(model, item["arch"]):
        found = scheme(name)
        tied = item["fields"].get("tie_word_embeddings", False) and name == "lm_head"
        if not found or tied:
            continue
        strategy, how, ending = found
        scale = weight_scale(module.weight.data, strategy).to(scales)
        wide = spread(scale.float(), module.weight.shape)
        elements = e4m3(module.weight.data / wide)
        module.weight.data = elements.float() * wide
        tensors[name + ".weight"] = elements
        tensors[f"{name}.{ending}"] = scale
        roundings[name] = Rounding(how)
        module.register_forward_pre_hook(roundings[name])
    return tensors, roundings


def fix_inputs(model, prompts, roundings, tensors, scales):
    """Scales of inputs that stay: of what the first prompts have, the parts of one matrix alike."""
    for tokens in prompts[:4]:
        plain.logits_of(model, tokens)
    for name, rounding in roundings.items():
        if not rounding.learns:
            continue
        rounding.scale = above_zero(rounding.greatest).to(scales).float()
        rounding.learns = False
        tensors[name + ".input_scale"] = rounding.scale.to(scales)


def given(model, prompts):
    return torch.tensor([x for tokens in prompts for x in plain.given_logprobs(plain.logits_of(model, tokens), tokens)])


def unrest(model, prompts):
    """How far the results go when norms are off by a unit in the last place: an input at the edge between two of
    eight bits falls on the other side, and in a model as small as these that shows."""
    before, kept, worst = given(model, prompts), copy.deepcopy(model.state_dict()), 0.0
    generator = torch.Generator().manual_seed(1)
    for _ in range(4):
        for name, value in model.named_parameters():
            if "norm" in name:
                value.data = kept[name] * (1 + 2e-7 * torch.randn(value.shape, generator=generator))
        worst = max(worst, (given(model, prompts) - before).abs().max().item())
    model.load_state_dict(kept)
    return worst


def narrow(model):
    """What products read and give is in BF16 from here on, as on a device that computes in 16 bits; weights are not."""
    for module in model.modules():
        if isinstance(module, torch.nn.Linear):
            module.register_forward_pre_hook(lambda _, inputs: (inputs[0].bfloat16().float(),), prepend=True)
            module.register_forward_hook(lambda _, inputs, output: output.bfloat16().float())


def errors_in_bf16(model, prompts):
    """Mean and greatest: by so much 16 bits are off, since rounded inputs fall on other sides of edges."""
    before, other = given(model, prompts), copy.deepcopy(model)
    narrow(other)
    off = (given(other, prompts) - before).abs()
    return off.mean().item(), off.max().item()


def keep(model, prompts, made, tensors):
    """Keys and values in eight bits, and the scales of theirs that stay."""
    how, where = made["kv"] or (None, None)
    if how in ("token", "static"):
        cache = Cache(how)
        cache.attach(model)
        for tokens in prompts[:4] if how == "static" else []:
            plain.logits_of(model, tokens)
        cache.learn()
    for layer in range(model.config.num_hidden_layers if where else 0):
        for key in ("k_scale", "v_scale"):
            scale = cache.scale[key, layer] if how == "static" else torch.tensor(0.03)
            module = where % key[0] if "%" in where else where
            tensors[f"model.layers.{layer}.{module}.{key}"] = scale


def attempt(made, seed):
    item, (_, scheme) = made["item"], made["quantization"]
    Cache.detach_all()
    with tempfile.TemporaryDirectory() as base:
        model, prompts = plain.build(item, seed, base, GAIN)
        with open(os.path.join(base, "config.json")) as file:
            whole = json.load(file)
    experts_apart.split(model, item["arch"])
    tensors, roundings = quantize(model, item, scheme, made["scales"])
    fix_inputs(model, prompts, roundings, tensors, made["scales"])
    keep(model, prompts, made, tensors)
    return model, prompts, whole, tensors, roundings


def write_config(directory, name, config):
    with open(os.path.join(directory, name), "w") as out:
        json.dump(config, out, indent=1)
        out.write("\n")


def make(made, directory):
    item, (config, _) = made["item"], made["quantization"]
    for seed in range(item["seed"], item["seed"] + 1000 * SEEDS, 1000):
        model, prompts, whole, tensors, roundings = attempt(made, seed)
        if unrest(model, prompts) < CALM:
            break
    else:
        raise RuntimeError(f"{item['name']}: no seed is calm")
    if made["kv"] and config:
        config["kv_cache_scheme"] = dict(num_bits=8, type="float", symmetric=True, strategy="tensor", dynamic=False)
    dtype = plain.DTYPES[item["dtype"]]
    for name, value in experts_apart.tensors_of(model, item["arch"]).items():
        if name not in tensors and not (name == "lm_head.weight" and item["fields"].get("tie_word_embeddings")):
            tensors[name] = value.to(dtype).contiguous()
    if config and "quantization" in config:  # as modelopt has them
        tensors.update({n: t[:, None, :, None] for n, t in tensors.items() if n.endswith("_scale")})
    save_file({name: value.contiguous() for name, value in tensors.items()},
              os.path.join(directory, "model.safetensors"), {"format": "pt"})
    apart = config and "quantization" in config
    write_config(directory, "config.json", whole if apart or not config else dict(whole, quantization_config=config))
    if apart:
        write_config(directory, "hf_quant_config.json", config)
    mean, most = errors_in_bf16(model, prompts)
    result = dict(seed=seed, torch=torch.__version__, bf16_mean_error=round(mean, 6), bf16_max_error=round(most, 6),
                  rounds=any(r.how for r in roundings.values()) or (made["kv"] or ("unused",))[0] != "unused")
    text = json.dumps(result)[:-1] + ',\n"prompts": [\n' + ",\n".join(
        json.dumps(plain.rounded(entry), separators=(",", ":")) for entry in plain.entries(model, prompts, steps=False)) + "\n]}\n"
    with open(os.path.join(directory, "reference.json"), "w") as out:
        out.write(text)


def dequantized(directory):
    """A checkpoint of tests/model/quantized, of e4m3 with scales for tensors or rows; inputs are rounded by token where
    its config says so, and only for the base's own products."""
    config = AutoConfig.from_pretrained(directory)
    rounds = config.quantization_config["quant_method"] == "fp8"
    del config.quantization_config
    tensors = load_file(os.path.join(directory, "model.safetensors"))
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").float()
    state = {name: value.float() for name, value in tensors.items() if not name.endswith("_scale")}
    for name, value in tensors.items():
        if name.endswith("weight_scale"):
            state[name[:-len("_scale")]] *= value.float()
            if rounds:
                model.get_submodule(name[:-len(".weight_scale")]).register_forward_pre_hook(Rounding("token"))
    missing, unknown = model.load_state_dict(state, strict=False)
    if unknown or any(name != "lm_head.weight" for name in missing):
        raise RuntimeError(f"{directory}: {missing} {unknown}")
    model.tie_weights()
    return model.eval()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    default = os.path.join(os.path.dirname(os.path.abspath(__file__)), "quantized")
    parser.add_argument("--out", default=default)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for made in SPECS:
        name = made["item"]["name"]
        if options.only and options.only != name:
            continue
        directory = os.path.join(options.out, name)
        os.makedirs(directory, exist_ok=True)
        make(made, directory)
        print(name, flush=True)


if __name__ == "__main__":
    main()
