"""A mixture's experts as modules of their own, named as published checkpoints name them, where transformers has one
tensor of all: what is quantized by module, and has its input rounded by module, is an expert's matrix."""

import torch

import reference as plain

PARTS = {"mixtral": ("w1", "w3", "w2")}
ROUTERS = ("mlp.gate", "block_sparse_moe.gate", "shared_expert_gate")


class Expert(torch.nn.Module):
    def __init__(self, gate_up, down, names):
        super().__init__()
        for name, weight in zip(names, (*gate_up.chunk(2), down)):
            linear = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=False)
            linear.weight.data = weight.clone()
            self.add_module(name, linear)
        self.names = names

    def forward(self, x):
        gate, up, down = (getattr(self, name) for name in self.names)
        return down(torch.nn.functional.silu(gate(x)) * up(x))


class Experts(torch.nn.ModuleList):
    def __init__(self, of, names):
        super().__init__(Expert(of.gate_up_proj.data[i], of.down_proj.data[i], names)
                         for i in range(of.gate_up_proj.shape[0]))

    def forward(self, x, chosen, weights):
        out = torch.zeros_like(x)
        for number, expert in enumerate(self):
            rows, place = torch.where(chosen == number)
            if len(rows):
                out.index_add_(0, rows, expert(x[rows]) * weights[rows, place, None])
        return out


def split(model, arch):
    """In place, where the model is a mixture."""
    names = PARTS.get(arch, ("gate_proj", "up_proj", "down_proj"))
    for layer in model.model.layers if arch in plain.MIXTURES else ():
        if hasattr(layer.mlp, "experts"):
            layer.mlp.experts = Experts(layer.mlp.experts, names)
    return model


def published(arch, name):
    return name.replace(".mlp.", ".block_sparse_moe.") if arch == "mixtral" else name


def linears(model, arch):
    """Modules that may be quantized, by their published names; what chooses experts is not."""
    for name, module in model.named_modules():
        name = published(arch, name)
        if isinstance(module, torch.nn.Linear) and not name.endswith(ROUTERS):
            yield name, module


def tensors_of(model, arch):
    return {published(arch, name): value for name, value in model.state_dict().items()}
