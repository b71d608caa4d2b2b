#!/usr/bin/env python3
"""Makes the reference checkpoints of tests/model/quantized whose experts are in MXFP4, as gpt-oss is published, and what
PyTorch says of them in float32 with the numbers that they stand for.

    mxfp4.py [--out DIR] [--only NAME]

Needs what reference.py needs; reference.json is that of quantized.py.
"""

import argparse
import json
import os
import tempfile

import torch
from safetensors.torch import save_file

import quantized
import reference as plain

VALUES = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
BLOCK = 32
NAMES = ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]
SPECS = [
    plain.spec(301, "gpt-oss-mxfp4", "gpt_oss", "BF16", plain.YARN_OSS, 4, hidden_size=64, intermediate_size=64,
               num_local_experts=6, num_experts_per_tok=3, sliding_window=16, swiglu_limit=7.0, attention_bias=True),
    plain.spec(302, "gpt-oss-mxfp4-blocks", "gpt_oss", "BF16", plain.DEFAULT, 5, hidden_size=96, intermediate_size=32,
               num_local_experts=4, num_experts_per_tok=2, sliding_window=24, swiglu_limit=0.75, attention_bias=True,
               num_hidden_layers=1, **plain.PAIRS),
]


def narrowed(matrices, generator):
    """[experts][columns][rows] to bytes of blocks, bytes of scales, and the numbers again."""
    blocks = matrices.transpose(1, 2).unflatten(-1, (-1, BLOCK))
    exponents = torch.floor(torch.log2(blocks.abs().amax(-1))) - 2
    exponents += torch.randint(0, 2, exponents.shape, generator=generator)  # no scale is that of its neighbour
    scaled = blocks / torch.exp2(exponents)[..., None]
    nearest = (scaled[..., None] - VALUES).abs().argmin(-1).to(torch.uint8)
    numbers = VALUES[nearest.long()] * torch.exp2(exponents)[..., None]
    return (nearest[..., 0::2] | nearest[..., 1::2] << 4, (exponents + 127).to(torch.uint8),
            numbers.flatten(-2).transpose(1, 2).contiguous())


def make(item, directory):
    with tempfile.TemporaryDirectory() as base:
        model, prompts = plain.build(item, item["seed"], base, quantized.GAIN)
        with open(os.path.join(base, "config.json")) as file:
            config = json.load(file)
    generator = torch.Generator().manual_seed(item["seed"])
    tensors = {}
    for name, value in model.state_dict().items():
        if name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            tensors[name + "_blocks"], tensors[name + "_scales"], numbers = narrowed(value, generator)
            value.copy_(numbers)
        elif not (name == "lm_head.weight" and item["fields"].get("tie_word_embeddings")):
            tensors[name] = value.to(plain.DTYPES[item["dtype"]])
    save_file({name: value.contiguous() for name, value in tensors.items()},
              os.path.join(directory, "model.safetensors"), {"format": "pt"})
    quantized.write_config(directory, "config.json", dict(
        config, quantization_config=dict(modules_to_not_convert=NAMES, quant_method="mxfp4")))
    mean, most = quantized.errors_in_bf16(model, prompts)
    result = dict(seed=item["seed"], torch=torch.__version__, bf16_mean_error=round(mean, 6),
                  bf16_max_error=round(most, 6), rounds=False)
    text = json.dumps(result)[:-1] + ',\n"prompts": [\n' + ",\n".join(
        json.dumps(plain.rounded(entry), separators=(",", ":"))
        for entry in plain.entries(model, prompts, steps=False)) + "\n]}\n"
    with open(os.path.join(directory, "reference.json"), "w") as out:
        out.write(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    default = os.path.join(os.path.dirname(os.path.abspath(__file__)), "quantized")
    parser.add_argument("--out", default=default)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for item in SPECS:
        if options.only and options.only != item["name"]:
            continue
        directory = os.path.join(options.out, item["name"])
        os.makedirs(directory, exist_ok=True)
        make(item, directory)
        print(item["name"], flush=True)


if __name__ == "__main__":
    main()
