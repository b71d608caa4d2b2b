#!/usr/bin/env python3
"""Makes the reference checkpoints of tests/model/quantized whose weights are whole numbers of 4 and 8 bits (gptq, awq,
compressed-tensors' pack-quantized), by the public definitions of their formats, and what PyTorch says of the
dequantized weights in float32.

    quantized_whole.py [--out DIR] [--only NAME]

Needs what reference.py needs. Where compressed-tensors is installed, its words are compared with those made here.
"""

import argparse
import json
import os
import re
import tempfile

import torch
from safetensors.torch import save_file

import experts_apart
import quantized
import reference as plain

AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]


def packed(values, bits, order=None):
    """Words along the last dimension, the first element in the low bits; padded with zeros."""
    each = 32 // bits
    values = torch.nn.functional.pad(values.long(), (0, -values.shape[-1] % each)).reshape(*values.shape[:-1], -1, each)
    if order:
        values = values[..., order]
    words = (values << (bits * torch.arange(each))).sum(-1)
    return torch.where(words >= 1 << 31, words - (1 << 32), words).to(torch.int32)


def groups_of(columns, size, shuffled, generator):
    """The group of each column; shuffled: as columns are grouped that were sorted by their activations."""
    size = size if size > 0 else columns
    own = torch.arange(columns) // size
    return own[torch.randperm(columns, generator=generator)] if shuffled else own


def whole(w, bits, groups, symmetric, scales):
    """Whole numbers, and a scale and a zero for each row and group."""
    most, count = 2 ** bits - 1, int(groups.max()) + 1
    scale, zero = torch.empty(w.shape[0], count), torch.empty(w.shape[0], count)
    for group in range(count):
        part = w[:, groups == group]
        low, high = part.amin(1).clamp(max=0), part.amax(1).clamp(min=0)
        if symmetric:
            high = torch.maximum(-low, high)
            low = -high
        scale[:, group] = ((high - low) / most).clamp(min=1e-5)
        zero[:, group] = (most + 1) // 2 if symmetric else (-low / scale[:, group]).round().clamp(1, most)
    scale = scale.to(scales)
    wide, offset = scale.float()[:, groups], zero[:, groups]
    elements = (w / wide + offset).round().clamp(0, most)
    return elements, scale, zero, (elements - offset) * wide


def gptq_tensors(scheme, elements, scale, zero, groups):
    bits = scheme["bits"]
    kept = {"qweight": packed(elements, bits).t(),
            "qzeros": packed((zero - (0 if scheme["v2"] else 1)).t(), bits),
            "scales": scale.t()}
    if scheme["g_idx"]:
        kept["g_idx"] = groups.to(torch.int32)
    return kept


def awq_tensors(scheme, elements, scale, zero, groups):
    return {"qweight": packed(elements.t(), 4, AWQ_ORDER), "qzeros": packed(zero.t(), 4, AWQ_ORDER), "scales": scale.t()}


def compressed_tensors(scheme, elements, scale, zero, groups):
    bits = scheme["bits"]
    kept = {"weight_packed": packed(elements, bits), "weight_scale": scale,
            "weight_shape": torch.tensor(elements.shape)}
    if not scheme["symmetric"]:
        kept["weight_zero_point"] = packed(zero.t(), bits).t()
    if scheme["shuffled"]:
        kept["weight_g_idx"] = groups.to(torch.int32)
    compare(kept, elements, zero, bits)
    return kept


def compare(kept, elements, zero, bits):
    try:
        from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32
    except ImportError:
        return
    middle = 2 ** (bits - 1)
    assert torch.equal(kept["weight_packed"], pack_to_int32((elements - middle).to(torch.int8), bits))
    if "weight_zero_point" in kept:
        other = pack_to_int32((zero - middle).to(torch.int8), bits, packed_dim=0)
        assert torch.equal(kept["weight_zero_point"], other)


def scheme_of(make, bits, group, symmetric=True, shuffled=False, v2=False, g_idx=True):
    return dict(make=make, bits=bits, group=group, symmetric=symmetric, shuffled=shuffled, v2=v2, g_idx=g_idx)


def gptq(bits, group, symmetric=True, shuffled=False, v2=False, act=False, g_idx=True, blocks=None, head=False):
    config = dict(quant_method="gptq", bits=bits, group_size=group, desc_act=act or shuffled, sym=symmetric,
                  lm_head=head, damp_percent=0.1, true_sequential=True, static_groups=act and not shuffled,
                  checkpoint_format="gptq_v2" if v2 else "gptq", pack_dtype="int32", meta={"quantizer": ["gptq"]})
    if blocks:
        config["modules_in_block_to_quantize"] = blocks
    made = scheme_of(gptq_tensors, bits, group, symmetric, shuffled, v2, g_idx)

    def scheme(name):
        if name == "lm_head":
            return made if head else None
        return made if not blocks or any(name.endswith(end) for block in blocks for end in block) else None
    return config, scheme


def dynamic(bits, group, rules):
    """rules: (pattern, what is other) each, the first counts; what is other is None where it is not quantized."""
    config, _ = gptq(bits, group, symmetric=False, g_idx=False)
    config["dynamic"] = {("+:" if other else "-:") + pattern: other or {} for pattern, other in rules}

    def scheme(name):
        if name == "lm_head":
            return None
        other = next((other for pattern, other in rules if re.match(pattern, name)), {})
        if other is None:
            return None
        return scheme_of(gptq_tensors, other.get("bits", bits), other.get("group_size", group), False, g_idx=False)
    return config, scheme


def autoround(bits, group, extra):
    """extra: of modules by name, and by patterns that are found anywhere in it."""
    config = dict(quant_method="auto-round", packing_format="auto_round:auto_gptq", bits=bits, group_size=group,
                  sym=False, data_type="int", autoround_version="0.8.0", iters=200, nsamples=128, seqlen=2048,
                  block_name_to_quantize="model.layers", extra_config=extra)

    def scheme(name):
        found = extra.get(name) or next(
            (other for key, other in extra.items() if re.search(r"[*+?^$()\[\]{}|\\]", key) and re.search(key, name)), {})
        if found.get("bits", bits) >= 16 or not (found or name.startswith("model.layers")):
            return None
        return scheme_of(gptq_tensors, found.get("bits", bits), found.get("group_size", group), False, g_idx=False)
    return config, scheme


def awq(group, ignored=None):
    config = dict(quant_method="awq", bits=4, group_size=group, zero_point=True, version="gemm",
                  modules_to_not_convert=ignored)
    made = scheme_of(awq_tensors, 4, group, symmetric=False)
    return config, lambda name: None if name == "lm_head" or any(i in name for i in ignored or []) else made


def weights_of(bits, group, symmetric, shuffled):
    return dict(num_bits=bits, type="int", symmetric=symmetric, strategy="group" if group > 0 else "channel",
                group_size=group if group > 0 else None, dynamic=False, actorder="group" if shuffled else None,
                block_structure=None, observer="minmax", observer_kwargs={})


def compressed(groups, ignore):
    """groups: (targets, bits, group, symmetric, shuffled) each; bits 0: e4m3 by channel."""
    mixed = any(not g[1] for g in groups)
    config = dict(quant_method="compressed-tensors", format="mixed-precision" if mixed else "pack-quantized",
                  quantization_status="compressed", global_compression_ratio=None, ignore=ignore, kv_cache_scheme=None,
                  config_groups={})
    made = []
    for number, (targets, bits, *rest) in enumerate(groups):
        weights = weights_of(bits, *rest) if bits else dict(num_bits=8, type="float", symmetric=True, dynamic=False,
                                                            strategy="channel")
        group = dict(targets=targets, weights=weights, input_activations=None, output_activations=None)
        if mixed:
            group["format"] = "pack-quantized" if bits else "float-quantized"
        config["config_groups"][f"group_{number}"] = group
        made.append(scheme_of(compressed_tensors, bits, *rest) if bits else "e4m3")

    def means(target, name):
        return bool(re.match(target[3:], name)) if target.startswith("re:") else target == name

    def scheme(name):
        if any(means(i, name) for i in ignore):
            return None
        named = [m for m, g in zip(made, groups) if any(means(t, name) for t in g[0])]
        classed = [m for m, g in zip(made, groups) if "Linear" in g[0]]
        return (named or classed or [None])[0]
    return config, scheme


def spec(seed, name, arch, dtype, quantization, scales=torch.float16, **fields):
    item = plain.spec(seed, name, arch, dtype, plain.DEFAULT, 4, **fields)
    return dict(item=item, quantization=quantization, scales=scales)


# A rank's share of 160 and 208 columns ends inside a group of 64 and of 32.
WIDE = dict(hidden_size=128, intermediate_size=208, num_attention_heads=4, num_key_value_heads=2, head_dim=40)
LAYER = dict(num_hidden_layers=1)
SPECS = [
    spec(1, "llama-gptq-sym", "llama", "F16", gptq(4, 32), **WIDE),
    spec(2, "qwen2-gptq-order", "qwen2", "BF16", gptq(4, 32, symmetric=False, shuffled=True, v2=True),
         **dict(WIDE, head_dim=None)),
    spec(3, "llama-gptq-static", "llama", "F16", gptq(8, 64, act=True), **LAYER, **WIDE),
    spec(4, "phi3-gptq-channel", "phi3", "F16", gptq(8, -1, symmetric=False), sliding_window=16, **LAYER),
    spec(5, "llama-gptq-blocks", "llama", "F16", gptq(
        4, 64, symmetric=False, g_idx=False, head=True,
        blocks=[["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"], ["mlp.down_proj"]]), **WIDE),
    spec(6, "qwen3-gptq-order-8", "qwen3", "BF16", gptq(8, 32, shuffled=True), tie_word_embeddings=True, **LAYER),
    spec(7, "llama-awq", "llama", "F16", awq(32), **WIDE),
    spec(8, "qwen2-awq-ignored", "qwen2", "F16", awq(64, ["o_proj", "layers.1.mlp"]), **dict(WIDE, head_dim=None)),
    spec(9, "glm-awq", "glm", "F16", awq(128), partial_rotary_factor=0.5, attention_bias=True, **LAYER),
    spec(10, "llama-ct-u4", "llama", "BF16", compressed([(["Linear"], 4, 128, True, False)], ["lm_head"]),
         scales=torch.bfloat16, **WIDE),
    spec(11, "qwen3-ct-u4-zeros", "qwen3", "F32", compressed([(["Linear"], 4, 32, False, False)], []),
         scales=torch.float32, hidden_size=100, intermediate_size=108, **LAYER),
    spec(12, "llama-ct-u4-order", "llama", "BF16", compressed([(["Linear"], 4, 32, False, True)], ["lm_head"]),
         scales=torch.bfloat16, **WIDE),
    spec(13, "llama-ct-u8", "llama", "BF16", compressed([(["Linear"], 8, -1, True, False)], ["lm_head"]),
         scales=torch.bfloat16, **LAYER, **dict(WIDE, hidden_size=132)),
    spec(14, "qwen2-ct-whole-mixed", "qwen2", "BF16", compressed(
        [(["Linear"], 4, 32, True, False), ([r"re:.*layers\.1\..*"], 8, 64, False, False),
         ([r"re:.*layers\.0\.mlp\.down_proj$"], 0)], ["lm_head"]), scales=torch.bfloat16, **dict(WIDE, head_dim=None)),
    # Groups of 96 do not end with rows of 128 and 208.
    spec(15, "qwen2-gptq-dynamic", "qwen2", "F16", dynamic(4, 96, [
        (r".*layers\.1\.mlp", None), (r".*\.(?:o|down)_proj", dict(bits=8, group_size=64))]), **dict(WIDE, head_dim=None)),
    spec(16, "llama-autoround", "llama", "F16", autoround(4, 32, {
        "lm_head": dict(bits=8, group_size=-1, sym=False), "model.layers.0.self_attn.o_proj": dict(bits=16, data_type="float"),
        r"layers\.1\.mlp\.(gate|up)": dict(bits=8, group_size=64, sym=False)}), **WIDE),
    # Mixtures: what chooses experts stays as it is. Of 64 columns two ranks have whole groups, of 48 none.
    spec(21, "mixtral-gptq-sym", "mixtral", "F16", gptq(4, 32), hidden_size=64, intermediate_size=64,
         num_local_experts=4, num_experts_per_tok=2, head_dim=None),
    spec(22, "qwen3-moe-gptq-order", "qwen3_moe", "BF16", gptq(4, 32, symmetric=False, shuffled=True, v2=True),
         hidden_size=64, moe_intermediate_size=64, num_experts=6, num_experts_per_tok=2, norm_topk_prob=True,
         mlp_only_layers=[], num_hidden_layers=1),
    spec(23, "mixtral-awq", "mixtral", "F16", awq(32, ["gate"]), hidden_size=64, intermediate_size=64,
         num_local_experts=6, num_experts_per_tok=2, head_dim=None, num_hidden_layers=1),
    spec(24, "qwen3-moe-awq", "qwen3_moe", "F16", awq(64, ["mlp.gate.", "o_proj"]), hidden_size=64,
         moe_intermediate_size=64, num_experts=4, num_experts_per_tok=3, norm_topk_prob=False, mlp_only_layers=[]),
    spec(25, "qwen2-moe-ct-u4", "qwen2_moe", "BF16", compressed(
        [(["Linear"], 4, 32, False, False)], ["lm_head", "re:.*mlp.gate$", "re:.*mlp.shared_expert_gate$"]),
         scales=torch.bfloat16, hidden_size=64, moe_intermediate_size=48, shared_expert_intermediate_size=64,
         num_experts=4, num_experts_per_tok=2, norm_topk_prob=False, num_hidden_layers=1),
    spec(26, "olmoe-ct-u8", "olmoe", "BF16", compressed([(["Linear"], 8, -1, True, False)], ["lm_head", "re:.*mlp.gate$"]),
         scales=torch.bfloat16, hidden_size=64, head_dim=None, intermediate_size=40, num_experts=4,
         num_experts_per_tok=2, norm_topk_prob=True, num_hidden_layers=1),
    spec(27, "glm4-moe-autoround", "glm4_moe", "F16", autoround(4, 32, {
        r"layers\.1\.mlp\.experts": dict(bits=8, group_size=64, sym=False)}), hidden_size=64,
         partial_rotary_factor=0.5, moe_intermediate_size=64, n_routed_experts=4, num_experts_per_tok=2,
         n_shared_experts=1, first_k_dense_replace=0, n_group=1, topk_group=1),
]


def quantize(made, model, generator):
    """The tensors of each linear module; the model gets what they stand for."""
    item, (_, scheme), tensors, groups_known = made["item"], made["quantization"], {}, {}
    for name, module in experts_apart.linears(model, item["arch"]):
        found = scheme(name)
        if not found or (item["fields"].get("tie_word_embeddings", False) and name == "lm_head"):
            continue
        w = module.weight.data
        if found == "e4m3":
            scale = quantized.weight_scale(w, "channel").to(made["scales"])
            elements = quantized.e4m3(w / scale.float())
            module.weight.data = elements.float() * scale.float()
            tensors.update({name + ".weight": elements, name + ".weight_scale": scale})
            continue
        # Parts that read one input have one order.
        source = name.rsplit(".", 1)[0] + ("" if re.search("(q|k|v|gate|up)_proj$|w[13]$", name) else name)
        groups = groups_known.setdefault(source, groups_of(w.shape[1], found["group"], found["shuffled"], generator))
        elements, scale, zero, module.weight.data = whole(w, found["bits"], groups, found["symmetric"], made["scales"])
        for ending, tensor in found["make"](found, elements, scale, zero, groups).items():
            tensors[f"{name}.{ending}"] = tensor
        tensors[name + ".weight"] = None
    return tensors


def make(made, directory):
    item, (config, _) = made["item"], made["quantization"]
    with tempfile.TemporaryDirectory() as base:
        model, prompts = plain.build(item, item["seed"], base, quantized.GAIN)
        with open(os.path.join(base, "config.json")) as file:
            config_json = json.load(file)
    experts_apart.split(model, item["arch"])
    tensors = quantize(made, model, torch.Generator().manual_seed(item["seed"]))
    dtype = plain.DTYPES[item["dtype"]]
    for name, value in experts_apart.tensors_of(model, item["arch"]).items():
        if name not in tensors and not (name == "lm_head.weight" and item["fields"].get("tie_word_embeddings")):
            tensors[name] = value.to(dtype)
    save_file({name: value.contiguous() for name, value in tensors.items() if value is not None},
              os.path.join(directory, "model.safetensors"), {"format": "pt"})
    with open(os.path.join(directory, "config.json"), "w") as out:
        json.dump(dict(config_json, quantization_config=config), out, indent=1)
        out.write("\n")
    mean, most = quantized.errors_in_bf16(model, prompts)
    result = dict(seed=item["seed"], torch=torch.__version__, bf16_mean_error=round(mean, 6),
                  bf16_max_error=round(most, 6))
    entries = plain.entries(model, prompts, steps=False)
    text = json.dumps(result)[:-1] + ',\n"prompts": [\n' + ",\n".join(
        json.dumps(plain.rounded(entry), separators=(",", ":")) for entry in entries) + "\n]}\n"
    with open(os.path.join(directory, "reference.json"), "w") as out:
        out.write(text)


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
