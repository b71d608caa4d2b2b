#!/usr/bin/env python3
"""Makes the reference adapters of tests/model/adapted with PEFT: random A and B for checkpoints of tests/model/data and
tests/model/quantized, and what PEFT says of the two in float32.

    adapted.py [--out DIR] [--only NAME]

Needs what reference.py needs, and PEFT. A directory is called BASE.NAME; reference.json is as there, without greedy
steps; what bfloat16 is off by is PEFT's, the adapter included.
"""

import argparse
import copy
import json
import os
import shutil
import sys
import tempfile

import peft
import torch
from safetensors.torch import save_file

import quantized
import reference as plain

HERE = os.path.dirname(os.path.abspath(__file__))
ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
FUSED = ["qkv_proj", "o_proj", "gate_up_proj", "down_proj"]

# base, name, dtype of A and B, fields of PEFT's LoraConfig
SPECS = [
    ("llama-default-bf16", "all", "F32", dict(r=8, lora_alpha=16, target_modules=ALL)),
    ("llama-default-bf16", "root", "BF16", dict(r=16, lora_alpha=8, use_rslora=True, target_modules=["q_proj", "v_proj"])),
    ("llama-default-bf16", "wide", "F16", dict(r=256, lora_alpha=64, target_modules=["down_proj"])),
    ("llama-default-bf16", "one", "F32", dict(r=12, lora_alpha=20, target_modules=["gate_proj", "o_proj"],
                                              layers_to_transform=[1])),
    ("qwen2-default-bf16", "all", "BF16", dict(r=8, lora_alpha=16, target_modules=ALL)),
    ("qwen3-default-bf16", "all", "F16", dict(r=24, lora_alpha=24, target_modules=ALL)),
    ("phi3-partial-f32", "all", "F32", dict(r=16, lora_alpha=16, target_modules=FUSED)),
    ("glm-default-bf16", "all", "F32", dict(r=8, lora_alpha=16, target_modules=ALL[:4] + FUSED[2:])),
    ("gemma2-default-bf16", "all", "F32", dict(r=8, lora_alpha=8, target_modules=ALL)),
    ("olmo2-default-bf16", "all", "F32", dict(r=8, lora_alpha=8, target_modules=ALL)),
    ("starcoder2-plain-f16", "all", "F32", dict(r=8, lora_alpha=8, target_modules=ALL[:4] + ["c_fc", "c_proj"])),
    ("llama-fp8-tensor", "all", "BF16", dict(r=8, lora_alpha=16, target_modules=ALL)),
    ("qwen2-ct-weights", "all", "F32", dict(r=8, lora_alpha=8, target_modules=ALL)),
]


def fill(model, dtype, seed):
    """Numbers that the dtype has exactly; B is none of zeros."""
    generator = torch.Generator().manual_seed(seed)
    for name, weight in sorted(model.named_parameters()):
        if "lora_" not in name:
            continue
        values = torch.randn(weight.shape, generator=generator) / weight.shape[1] ** 0.5
        weight.data = (values * (0.5 if "lora_B" in name else 1.0)).to(plain.DTYPES[dtype]).float()


def save(model, directory, base, dtype):
    """What PEFT writes, in the dtype, without its page and without a path."""
    with tempfile.TemporaryDirectory() as made:
        model.save_pretrained(made)
        with open(os.path.join(made, "adapter_config.json")) as file:
            config = json.load(file)
    config["base_model_name_or_path"] = base
    config["target_modules"] = sorted(config["target_modules"])
    state = peft.get_peft_model_state_dict(model)
    save_file({name: value.to(plain.DTYPES[dtype]).contiguous() for name, value in state.items()},
              os.path.join(directory, "adapter_model.safetensors"))
    with open(os.path.join(directory, "adapter_config.json"), "w") as file:
        json.dump(config, file, indent=1, sort_keys=True)
        file.write("\n")


def bf16_error(adapted, prompts, listed):
    """What the same model is off by, with everything in bfloat16: on average, at most."""
    low = copy.deepcopy(adapted).to(torch.bfloat16).base_model.model
    off = [abs(a - b) for tokens, entry in zip(prompts, listed)
           for a, b in zip(plain.given_logprobs(plain.logits_of(low, tokens), tokens), entry["logprobs"])]
    return sum(off) / len(off), max(off)


def make(out, base, name, dtype, fields, seed):
    directory = os.path.join(out, f"{base}.{name}")
    shutil.rmtree(directory, ignore_errors=True)
    os.makedirs(directory)
    plainly = os.path.isdir(os.path.join(HERE, "data", base))
    source = os.path.join(HERE, "data" if plainly else "quantized", base)
    model = plain.load(source, torch.float32, "cpu") if plainly else quantized.dequantized(source)
    with open(os.path.join(source, "reference.json")) as file:
        known = json.load(file)
    prompts = [prompt["tokens"] for prompt in known["prompts"]]
    adapted = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", lora_dropout=0.0, **fields))
    fill(adapted, dtype, seed)
    adapted.eval()
    save(adapted, directory, base, dtype)
    listed = plain.entries(adapted.base_model.model, prompts, steps=False)
    for entry in listed:
        for key in ("hidden_last", "hidden_mean", "top_ids", "top_logprobs"):
            entry.pop(key, None)
    apart = max(abs(a - b) for new, old in zip(listed, known["prompts"])
                for a, b in zip(new["logprobs"], old["logprobs"]))
    mean, worst = bf16_error(adapted, prompts, listed)
    result = dict(peft=peft.__version__, torch=torch.__version__, seed=seed, off_the_base=apart,
                  bf16_mean_error=mean, bf16_max_error=worst)
    text = json.dumps(plain.rounded(result))[:-1] + ',\n"prompts": [\n' + ",\n".join(
        json.dumps(plain.rounded(entry), separators=(",", ":")) for entry in listed) + "\n]}\n"
    with open(os.path.join(directory, "reference.json"), "w") as file:
        file.write(text)
    print(f"{base}.{name}: up to {apart:.2f} off the base")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default=os.path.join(HERE, "adapted"))
    parser.add_argument("--only")
    options = parser.parse_args()
    for seed, (base, name, dtype, fields) in enumerate(SPECS):
        if not options.only or options.only == f"{base}.{name}":
            make(options.out, base, name, dtype, fields, 500 + seed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
