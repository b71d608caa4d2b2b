"""DeepSeekMoE as its authors define it (arXiv 2401.06066, and config.json of deepseek-moe-16b), which transformers
lacks: Llama's layers, whose MLP is a mixture but in the first ones. register() makes it known to transformers."""

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM


class DeepseekConfig(LlamaConfig):
    model_type = "deepseek"


class Gated(nn.Module):
    def __init__(self, hidden, size):
        super().__init__()
        self.gate_proj = nn.Linear(hidden, size, bias=False)
        self.up_proj = nn.Linear(hidden, size, bias=False)
        self.down_proj = nn.Linear(size, hidden, bias=False)

    def forward(self, x):
        return self.down_proj(nn.functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Mixture(nn.Module):
    """Of a row the greatest shares of the softmax over all experts, and what all rows go through, as it is."""

    def __init__(self, config):
        super().__init__()
        hidden, size = config.hidden_size, config.moe_intermediate_size
        self.top, self.normalised = config.num_experts_per_tok, config.norm_topk_prob
        self.gate = nn.Linear(hidden, config.n_routed_experts, bias=False)
        self.experts = nn.ModuleList(Gated(hidden, size) for _ in range(config.n_routed_experts))
        shared = getattr(config, "n_shared_experts", None)
        self.shared_experts = Gated(hidden, shared * size) if shared else None

    def forward(self, x):
        rows = x.reshape(-1, x.shape[-1])
        shares = torch.softmax(rows.float() @ self.gate.weight.float().T, -1)
        weights, chosen = torch.topk(shares, self.top, -1)
        if self.top > 1 and self.normalised:
            weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
        out = torch.zeros_like(rows)
        for number, expert in enumerate(self.experts):
            of, place = torch.where(chosen == number)
            if len(of):
                out.index_add_(0, of, (expert(rows[of]) * weights[of, place, None]).to(out.dtype))
        if self.shared_experts is not None:
            out = out + self.shared_experts(rows)
        return out.reshape(x.shape)


class DeepseekForCausalLM(LlamaForCausalLM):
    config_class = DeepseekConfig

    def __init__(self, config):
        super().__init__(config)
        for number, layer in enumerate(self.model.layers):
            if number >= config.first_k_dense_replace and number % config.moe_layer_freq == 0:
                layer.mlp = Mixture(config)
        self.post_init()


def register():
    AutoConfig.register("deepseek", DeepseekConfig, exist_ok=True)
    AutoModelForCausalLM.register(DeepseekConfig, DeepseekForCausalLM, exist_ok=True)
