#!/usr/bin/env python3
"""Makes the reference checkpoints of tests/model/data: tiny random models and what transformers says of
them in float32 (and in bfloat16, whose error is the measure for the CUDA device).

    reference.py [--out DIR] [--only NAME]

Needs PyTorch and transformers; a GPU is used for bfloat16 where there is one. A failure of one
checkpoint is printed and does not stop the rest; exits 1 if any failed.

Of each checkpoint, reference.json holds per prompt: the log-probability of each given token but the
first, 48 greedy steps with the margin between the two best logits, and for the short ones the likeliest
token after each position with its log-probability, and the final hidden state (last, and mean).
"""

import argparse
import json
import math
import os
import sys
import time
import traceback

import torch
import transformers
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM

import deepseek

PROMPT_LENGTHS = (1, 2, 5, 17, 33, 65, 150, 300)
SHORT_PROMPTS = 5  # the first ones carry hidden states and likeliest tokens
GREEDY_STEPS = 48
LOGITS_DEVIATION = 1.3
DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
CONFIG_DTYPES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}

ARCHITECTURES = {
    "llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM", "phi3": "Phi3ForCausalLM",
    "granite": "GraniteForCausalLM", "smollm3": "SmolLM3ForCausalLM",
    "olmo2": "Olmo2ForCausalLM", "glm": "GlmForCausalLM", "glm4": "Glm4ForCausalLM",
    "starcoder2": "Starcoder2ForCausalLM", "mixtral": "MixtralForCausalLM",
    "qwen2_moe": "Qwen2MoeForCausalLM", "qwen3_moe": "Qwen3MoeForCausalLM", "olmoe": "OlmoeForCausalLM",
    "glm4_moe": "Glm4MoeForCausalLM", "gpt_oss": "GptOssForCausalLM", "granitemoe": "GraniteMoeForCausalLM",
    "granitemoeshared": "GraniteMoeSharedForCausalLM", "deepseek": "DeepseekForCausalLM",
    "gemma": "GemmaForCausalLM", "gemma2": "Gemma2ForCausalLM", "gemma3_text": "Gemma3ForCausalLM", "gemma3": "Gemma3ForConditionalGeneration"}
MIXTURES = ("mixtral", "qwen2_moe", "qwen3_moe", "olmoe", "glm4_moe")
PLUS_ONE = ("gemma", "gemma2", "gemma3_text", "gemma3")  # norms multiply by 1 + weight

BASE = dict(
    vocab_size=256, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, head_dim=64, hidden_act="silu", max_position_embeddings=512,
    rms_norm_eps=1e-5, initializer_range=0.02, use_cache=True, bos_token_id=None, eos_token_id=None,
    pad_token_id=None)

DEFAULT = dict(rope_type="default", rope_theta=10000.0)
LINEAR = dict(rope_type="linear", rope_theta=10000.0, factor=4.0)
LLAMA3 = dict(rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0,
              high_freq_factor=4.0, original_max_position_embeddings=64)
YARN = dict(rope_type="yarn", rope_theta=10000.0, factor=8.0, original_max_position_embeddings=64)
YARN_TUNED = dict(YARN, beta_fast=16.0, beta_slow=2.0, truncate=False, attention_factor=1.2)
YARN_OSS = dict(YARN, beta_fast=32.0, beta_slow=1.0, truncate=False)
YARN_MSCALE = dict(YARN, mscale=0.9, mscale_all_dim=0.6)
LONG_FACTORS = [1.0 + 0.9 * i for i in range(12)]
SHORT_FACTORS = [1.0 + 0.05 * i for i in range(12)]
LONGROPE = dict(rope_type="longrope", rope_theta=10000.0, short_factor=SHORT_FACTORS, long_factor=LONG_FACTORS)
SU = dict(rope_type="su", rope_theta=10000.0, short_factor=[1.0 + 0.1 * i for i in range(16)],
          long_factor=[2.0 + i for i in range(16)], attention_factor=1.19,
          original_max_position_embeddings=512)


def spec(seed, name, arch, dtype, rope, spelling, shards=1, **fields):
    return dict(seed=seed, name=name, arch=arch, dtype=dtype, rope=rope, spelling=spelling,
                shards=shards, fields=fields)


GEMMA = dict(hidden_act=None, hidden_activation="gelu_pytorch_tanh", head_dim=32)
# Of a checkpoint that has more than text: the rest of it is small, and nobody reads it.
VISION = dict(
    vision_config=dict(model_type="siglip_vision_model", hidden_size=8, intermediate_size=8, num_hidden_layers=1,
                       num_attention_heads=1, image_size=28, patch_size=14),
    mm_tokens_per_image=4, image_token_index=255, boi_token_index=254, eoi_token_index=253)

SMALL = dict(num_attention_heads=2, num_key_value_heads=1, tie_word_embeddings=True)
PAIRS = dict(SMALL, num_key_value_heads=2)  # such as two devices share

# spelling 4: rope_theta and rope_scaling at the top level, torch_dtype; 5: rope_parameters, dtype
SPECS = [
    spec(0, "llama-default-bf16", "llama", "BF16", DEFAULT, 4),
    spec(1, "llama-linear-f16", "llama", "F16", LINEAR, 5, tie_word_embeddings=True),
    spec(2, "llama-llama3-bf16", "llama", "BF16", LLAMA3, 4, shards=3, **SMALL),
    spec(3, "llama-llama3-f32", "llama", "F32", LLAMA3, 5, num_attention_heads=2, num_key_value_heads=2),
    spec(4, "llama-yarn-f16", "llama", "F16", YARN, 5, max_position_embeddings=64),
    spec(5, "llama-yarn-tuned-bf16", "llama", "BF16", YARN_TUNED, 5, **SMALL),
    spec(6, "llama-yarn-mscale-bf16", "llama", "BF16", YARN_MSCALE, 4, **SMALL),
    spec(7, "llama-bias-bf16", "llama", "BF16", DEFAULT, 5, attention_bias=True, mlp_bias=True),
    spec(9, "llama-mqa-f16", "llama", "F16", DEFAULT, 4, head_dim=80, num_key_value_heads=1),
    spec(10, "llama-mha-bf16", "llama", "BF16", DEFAULT, 4, hidden_size=128, num_attention_heads=2,
         num_key_value_heads=None, head_dim=None, tie_word_embeddings=True, num_hidden_layers=1),
    spec(11, "mistral-window-bf16", "mistral", "BF16", DEFAULT, 4, sliding_window=16),
    spec(12, "mistral-window-f32", "mistral", "F32", DEFAULT, 5, sliding_window=32, **SMALL),
    spec(13, "mistral-full-f16", "mistral", "F16", DEFAULT, 4, sliding_window=None, **SMALL),
    spec(14, "mistral-linear-bf16", "mistral", "BF16", LINEAR, 4, sliding_window=24,
         head_dim=96, **SMALL),
    spec(15, "mistral-llama3-bf16", "mistral", "BF16", LLAMA3, 5, sliding_window=None, **SMALL),
    spec(16, "mistral-yarn-f16", "mistral", "F16", YARN, 4, sliding_window=7, **SMALL),
    spec(17, "qwen2-default-bf16", "qwen2", "BF16", DEFAULT, 5, tie_word_embeddings=True, head_dim=None,
         hidden_size=128, num_attention_heads=2, num_key_value_heads=1, num_hidden_layers=1),
    spec(18, "qwen2-default-f32", "qwen2", "F32", DEFAULT, 4, **SMALL),
    spec(19, "qwen2-window-bf16", "qwen2", "BF16", DEFAULT, 4, num_hidden_layers=3, use_sliding_window=True,
         sliding_window=16, max_window_layers=1, tie_word_embeddings=True),
    spec(20, "qwen2-yarn-f16", "qwen2", "F16", YARN, 4, max_position_embeddings=64, **SMALL),
    spec(21, "qwen2-linear-bf16", "qwen2", "BF16", LINEAR, 5, **SMALL),
    spec(22, "qwen2-llama3-bf16", "qwen2", "BF16", LLAMA3, 4, **SMALL),
    spec(23, "qwen3-default-bf16", "qwen3", "BF16", DEFAULT, 5, head_dim=128, num_attention_heads=2,
         num_key_value_heads=1, tie_word_embeddings=True),
    spec(24, "qwen3-default-f32", "qwen3", "F32", DEFAULT, 4, num_attention_heads=2, num_key_value_heads=2),
    spec(25, "qwen3-bias-f16", "qwen3", "F16", DEFAULT, 4, attention_bias=True, **SMALL),
    spec(26, "qwen3-window-bf16", "qwen3", "BF16", DEFAULT, 5, use_sliding_window=True, sliding_window=16,
         layer_types=["sliding_attention", "full_attention"], tie_word_embeddings=True),
    spec(27, "qwen3-yarn-bf16", "qwen3", "BF16", YARN, 4, **SMALL),
    spec(28, "qwen3-linear-f16", "qwen3", "F16", LINEAR, 5, **SMALL),
    spec(29, "qwen3-llama3-bf16", "qwen3", "BF16", LLAMA3, 4, **SMALL),
    spec(30, "phi3-window-bf16", "phi3", "BF16", DEFAULT, 4, sliding_window=16),
    spec(31, "phi3-full-f16", "phi3", "F16", DEFAULT, 5, sliding_window=None, **SMALL),
    spec(32, "granite-bias-bf16", "granite", "BF16", DEFAULT, 4, embedding_multiplier=6.0,
         residual_multiplier=0.45, attention_multiplier=0.11, logits_scaling=3.0, attention_bias=True, mlp_bias=True),
    spec(33, "granite-tied-f16", "granite", "F16", DEFAULT, 5, embedding_multiplier=3.0,
         residual_multiplier=0.7, attention_multiplier=0.16, logits_scaling=8.0, **SMALL),
    spec(34, "smollm3-list-bf16", "smollm3", "BF16", DEFAULT, 4, num_hidden_layers=3,
         no_rope_layers=[1, 0, 1], tie_word_embeddings=True),
    spec(35, "smollm3-interval-f16", "smollm3", "F16", DEFAULT, 5, no_rope_layer_interval=2,
         tie_word_embeddings=False, num_attention_heads=2, num_key_value_heads=1),
    # of a context longer than the original one, so the long factors; the other of one as long
    spec(60, "phi3-long-bf16", "phi3", "BF16", LONGROPE, 4, hidden_size=64, num_attention_heads=2,
         num_key_value_heads=1, head_dim=None, partial_rotary_factor=0.75, original_max_position_embeddings=64,
         sliding_window=None, tie_word_embeddings=True),
    spec(61, "phi3-short-f16", "phi3", "F16", SU, 4, hidden_size=64, num_attention_heads=2,
         num_key_value_heads=2, head_dim=None, original_max_position_embeddings=512, sliding_window=40),
    spec(62, "phi3-partial-f32", "phi3", "F32", DEFAULT, 5, hidden_size=64, num_attention_heads=2,
         num_key_value_heads=1, head_dim=None, partial_rotary_factor=0.5, sliding_window=None,
         tie_word_embeddings=True),
    spec(40, "olmo2-default-bf16", "olmo2", "BF16", DEFAULT, 4),
    spec(41, "olmo2-bias-f16", "olmo2", "F16", LINEAR, 5, attention_bias=True, tie_word_embeddings=True,
         num_attention_heads=2, num_key_value_heads=2),
    spec(42, "olmo2-yarn-bf16", "olmo2", "BF16", YARN, 4, max_position_embeddings=64, hidden_size=64,
         num_key_value_heads=None, head_dim=None, num_hidden_layers=3),
    spec(43, "glm-default-bf16", "glm", "BF16", DEFAULT, 4, partial_rotary_factor=0.5, attention_bias=True),
    spec(44, "glm-tied-f16", "glm", "F16", DEFAULT, 5, attention_bias=False, **SMALL),
    spec(45, "glm4-default-bf16", "glm4", "BF16", DEFAULT, 4, partial_rotary_factor=0.5, attention_bias=True),
    spec(46, "glm4-linear-f16", "glm4", "F16", dict(LINEAR, partial_rotary_factor=0.25), 5,
         attention_bias=False, tie_word_embeddings=True, num_attention_heads=2, num_key_value_heads=2),
    spec(63, "starcoder2-window-bf16", "starcoder2", "BF16", DEFAULT, 4, hidden_size=64, num_attention_heads=2,
         num_key_value_heads=1, head_dim=None, rms_norm_eps=None, norm_epsilon=1e-5, sliding_window=16,
         hidden_act="gelu_pytorch_tanh", use_bias=True, tie_word_embeddings=True),
    spec(64, "starcoder2-plain-f16", "starcoder2", "F16", LINEAR, 5, hidden_size=64, num_attention_heads=4,
         num_key_value_heads=2, head_dim=None, rms_norm_eps=None, norm_epsilon=1e-3, sliding_window=None,
         hidden_act="gelu_pytorch_tanh", use_bias=False, tie_word_embeddings=False),
    spec(90, "gemma-default-bf16", "gemma", "BF16", DEFAULT, 4, hidden_size=16, **{**GEMMA, "hidden_act": "gelu", "hidden_activation": None}),
    spec(91, "gemma-mqa-f16", "gemma", "F16", DEFAULT, 5, hidden_size=16, num_attention_heads=2, num_key_value_heads=1, **GEMMA),
    spec(50, "gemma2-default-bf16", "gemma2", "BF16", DEFAULT, 4, hidden_size=16, sliding_window=16,
         query_pre_attn_scalar=48, attn_logit_softcapping=1.5, final_logit_softcapping=3.0, **GEMMA),
    spec(41, "gemma2-wide-f16", "gemma2", "F16", DEFAULT, 5, sliding_window=33, query_pre_attn_scalar=256,
         attn_logit_softcapping=1.0, final_logit_softcapping=None, hidden_size=16, **SMALL, **{**GEMMA, "head_dim": 256}),
    spec(42, "gemma2-untied-f32", "gemma2", "F32", DEFAULT, 4, sliding_window=7, query_pre_attn_scalar=32,
         attn_logit_softcapping=None, final_logit_softcapping=2.5, tie_word_embeddings=False,
         layer_types=["full_attention", "sliding_attention"], num_attention_heads=2, **GEMMA),
    spec(53, "gemma3-default-bf16", "gemma3_text", "BF16", dict(LINEAR, rope_theta=1000000.0), 4, num_hidden_layers=3,
         hidden_size=16, rope_local_base_freq=10000.0, sliding_window=16, sliding_window_pattern=2,
         query_pre_attn_scalar=48, **GEMMA),
    spec(44, "gemma3-text-bf16", "gemma3", "BF16", dict(LINEAR, rope_theta=1000000.0), 4, num_hidden_layers=2,
         sliding_window=24, sliding_window_pattern=2, query_pre_attn_scalar=32, num_attention_heads=None,
         num_key_value_heads=None, hidden_size=16, **{**GEMMA, "head_dim": 16}),
    spec(45, "gemma3-parts-f16", "gemma3", "F16", dict(
        full_attention=dict(LINEAR, rope_theta=500000.0), sliding_attention=dict(DEFAULT, rope_theta=20000.0)), 5,
         layer_types=["full_attention", "sliding_attention"], sliding_window=33, query_pre_attn_scalar=256,
         hidden_size=16, tie_word_embeddings=False, num_attention_heads=2, num_key_value_heads=1,
         **{**GEMMA, "head_dim": 256}),
    spec(70, "mixtral-default-bf16", "mixtral", "BF16", DEFAULT, 4, intermediate_size=16, num_local_experts=8,
         num_experts_per_tok=2, head_dim=None),
    spec(71, "mixtral-window-f16", "mixtral", "F16", LINEAR, 5, intermediate_size=24, num_local_experts=4,
         num_experts_per_tok=3, sliding_window=16, **PAIRS),
    spec(72, "qwen2-moe-shared-bf16", "qwen2_moe", "BF16", DEFAULT, 4, moe_intermediate_size=16,
         shared_expert_intermediate_size=24, num_experts=6, num_experts_per_tok=2, norm_topk_prob=False),
    spec(73, "qwen2-moe-step-f16", "qwen2_moe", "F16", DEFAULT, 5, num_hidden_layers=3, decoder_sparse_step=2,
         moe_intermediate_size=24, shared_expert_intermediate_size=16, num_experts=6, num_experts_per_tok=4,
         norm_topk_prob=True, qkv_bias=False, **PAIRS),
    spec(74, "qwen3-moe-norm-bf16", "qwen3_moe", "BF16", DEFAULT, 5, moe_intermediate_size=16, num_experts=8,
         num_experts_per_tok=3, norm_topk_prob=True, mlp_only_layers=[]),
    spec(75, "qwen3-moe-dense-f16", "qwen3_moe", "F16", YARN, 4, num_hidden_layers=3, mlp_only_layers=[2],
         moe_intermediate_size=24, num_experts=10, num_experts_per_tok=2, norm_topk_prob=False,
         use_sliding_window=True, sliding_window=24, **PAIRS),
    spec(76, "olmoe-default-bf16", "olmoe", "BF16", DEFAULT, 4, hidden_size=64, head_dim=None, intermediate_size=16,
         num_experts=8, num_experts_per_tok=4, norm_topk_prob=False, clip_qkv=None),
    spec(77, "olmoe-norm-f16", "olmoe", "F16", LINEAR, 5, hidden_size=64, head_dim=None, num_attention_heads=2,
         num_key_value_heads=None, intermediate_size=24, num_experts=4, num_experts_per_tok=1, norm_topk_prob=True,
         attention_bias=True, tie_word_embeddings=True),
    spec(78, "glm4-moe-shared-bf16", "glm4_moe", "BF16", DEFAULT, 4, partial_rotary_factor=0.5, num_hidden_layers=3,
         moe_intermediate_size=16, n_routed_experts=8, num_experts_per_tok=3, n_shared_experts=2,
         first_k_dense_replace=1, routed_scaling_factor=1.5, use_qk_norm=True, attention_bias=True, n_group=1,
         topk_group=1),
    spec(79, "glm4-moe-dense-f16", "glm4_moe", "F16", DEFAULT, 5, moe_intermediate_size=24, n_routed_experts=6,
         num_experts_per_tok=2, n_shared_experts=1, first_k_dense_replace=0, norm_topk_prob=False, **PAIRS),
    spec(80, "gpt-oss-yarn-bf16", "gpt_oss", "BF16", YARN_OSS, 4, intermediate_size=24, num_local_experts=8,
         num_experts_per_tok=3, sliding_window=16, swiglu_limit=7.0, attention_bias=True,
         layer_types=["sliding_attention", "full_attention"]),
    spec(81, "gpt-oss-clamp-f16", "gpt_oss", "F16", DEFAULT, 5, intermediate_size=40,
         num_local_experts=4, num_experts_per_tok=2, sliding_window=33, swiglu_limit=0.75, swiglu_alpha=1.4,
         attention_bias=False, **PAIRS),
    spec(82, "granite-moe-bias-bf16", "granitemoe", "BF16", DEFAULT, 4, intermediate_size=16, num_local_experts=8,
         num_experts_per_tok=3, embedding_multiplier=6.0, residual_multiplier=0.45, attention_multiplier=0.11,
         logits_scaling=3.0, attention_bias=True, head_dim=None),
    spec(83, "granite-moe-tied-f16", "granitemoe", "F16", LINEAR, 5, intermediate_size=24, num_local_experts=6,
         num_experts_per_tok=2, embedding_multiplier=3.0, residual_multiplier=0.7, attention_multiplier=0.16,
         logits_scaling=8.0, **{**PAIRS, "head_dim": None, "hidden_size": 64}),
    spec(84, "granite-moe-shared-bf16", "granitemoeshared", "BF16", DEFAULT, 5, num_hidden_layers=3,
         intermediate_size=16, num_local_experts=6, num_experts_per_tok=4, shared_intermediate_size=24,
         embedding_multiplier=4.0, residual_multiplier=0.5, attention_multiplier=0.2, logits_scaling=5.0,
         head_dim=None),
    spec(85, "granite-moe-shared-none-f16", "granitemoeshared", "F16", DEFAULT, 4, intermediate_size=24,
         num_local_experts=4, num_experts_per_tok=2, shared_intermediate_size=0, embedding_multiplier=3.0,
         residual_multiplier=0.7, attention_multiplier=0.16, logits_scaling=4.0,
         **{**PAIRS, "head_dim": None, "hidden_size": 64}),
    spec(86, "deepseek-shared-bf16", "deepseek", "BF16", DEFAULT, 4, num_hidden_layers=3, moe_intermediate_size=16,
         n_routed_experts=8, num_experts_per_tok=3, n_shared_experts=2, first_k_dense_replace=1, moe_layer_freq=1,
         norm_topk_prob=False, scoring_func="softmax", head_dim=None),
    spec(87, "deepseek-norm-f16", "deepseek", "F16", LINEAR, 5, num_hidden_layers=4, moe_intermediate_size=24,
         n_routed_experts=6, num_experts_per_tok=2, first_k_dense_replace=0, moe_layer_freq=2, norm_topk_prob=True,
         **{**PAIRS, "head_dim": None, "hidden_size": 64, "attention_bias": True}),
]

# Rope of real models and of corners: frequencies only.
ROPE_CASES = [
    ("llama-3.1", dict(head_dim=128, max_position_embeddings=131072), dict(
        rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
        original_max_position_embeddings=8192)),
    ("llama-3.2", dict(head_dim=64, max_position_embeddings=131072), dict(
        rope_type="llama3", rope_theta=500000.0, factor=32.0, low_freq_factor=1.0, high_freq_factor=4.0,
        original_max_position_embeddings=8192)),
    ("qwen2.5", dict(head_dim=128, max_position_embeddings=32768),
     dict(rope_type="default", rope_theta=1000000.0)),
    ("qwen2.5-yarn", dict(head_dim=128, max_position_embeddings=32768), dict(
        rope_type="yarn", rope_theta=1000000.0, factor=4.0, original_max_position_embeddings=32768)),
    ("linear-80", dict(head_dim=80, max_position_embeddings=4096),
     dict(rope_type="linear", rope_theta=10000.0, factor=2.5)),
    ("yarn-tuned", dict(head_dim=64, max_position_embeddings=512), YARN_TUNED),
    ("yarn-mscale", dict(head_dim=64, max_position_embeddings=512), YARN_MSCALE),
    ("yarn-mscale-one", dict(head_dim=64, max_position_embeddings=512), dict(YARN, mscale=0.9)),
    ("yarn-all-one", dict(head_dim=64, max_position_embeddings=512),
     dict(YARN, factor=1.0, mscale=1.0, mscale_all_dim=1.0)),
    ("yarn-attention-factor", dict(head_dim=64, max_position_embeddings=512),
     dict(YARN, attention_factor=0.75)),
    ("yarn-256", dict(head_dim=256, max_position_embeddings=4096), dict(
        rope_type="yarn", rope_theta=5000.0, factor=2.0, original_max_position_embeddings=2048)),
]


def config_json(item):
    """config.json as a publisher would have written it, in the spelling that the spec names."""
    config = {"architectures": [ARCHITECTURES[item["arch"]]], "model_type": item["arch"], **BASE}
    config.update(item["fields"])
    for key in ("head_dim", "rms_norm_eps", "hidden_act", "num_attention_heads", "num_key_value_heads"):
        if config.get(key, 0) is None:
            del config[key]
    dtype = CONFIG_DTYPES[item["dtype"]]
    if item["spelling"] == 4:
        rope = dict(item["rope"])
        config["torch_dtype"] = dtype
        config["rope_theta"] = rope.pop("rope_theta")
        config["rope_scaling"] = None if rope["rope_type"] == "default" else rope
    else:
        config["dtype"] = dtype
        config["rope_parameters"] = item["rope"]
    if item["arch"] == "gemma3":
        return nested(config)
    return config


def nested(config):
    """The same as the text's part of a model that has more; what is said above the parts is there alone."""
    top = {key: config.pop(key) for key in list(config)
           if key in ("architectures", "model_type", "torch_dtype", "dtype", "tie_word_embeddings", "eos_token_id")}
    return {**top, "text_config": {"model_type": "gemma3_text", **config}, **VISION}


def random_weights(model, seed, gain, plus_one):
    """Attention that is peaked but not chaotic: scores of deviation 1.6 * gain, so that every part of
    the computation shows in the logits and rounding does not drown it."""
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for name, tensor in model.state_dict().items():
        noise = torch.randn(tensor.shape, generator=generator)
        fan_in = tensor.shape[-2 if tensor.ndim == 3 and model.config.model_type == "gpt_oss" else -1]
        if name.endswith("e_score_correction_bias"):
            value = 0.3 * noise + 4  # all alike but for a little, as training leaves them
        elif name.endswith("bias"):
            value = 0.3 * noise
        elif "q_norm" in name or "k_norm" in name:
            value = (1.2 * gain ** 0.5) * (1 + 0.25 * noise)
        elif "norm" in name:
            value = 1 + 0.25 * noise
        elif "embed_tokens" in name or "lm_head" in name:
            value = noise / math.sqrt(fan_in)
        elif name.endswith("sinks"):
            value = 2 + noise  # as much as some tokens have together
        elif name.endswith(("mlp.gate.weight", "mlp.router.weight", "moe.router.weight")):
            value = 2 * noise / math.sqrt(fan_in)  # choices that roundings seldom change
        elif "q_proj" in name or "k_proj" in name:
            value = 1.25 * gain ** 0.5 * noise / math.sqrt(fan_in)
        else:
            value = gain * noise / math.sqrt(fan_in)
        weights[name] = value - 1 if plus_one and name.endswith("norm.weight") else value
    # The residual stream starts at the embedding's size: 1 / sqrt(hidden) would drown in the layers.
    weights[named(weights, "embed_tokens.weight")] *= 2
    return weights


def named(weights, ending):
    """The text's tensor: parts of more stand before its name, or "model." alone."""
    return next(name for name in weights if name in ("model." + ending, "model.language_model." + ending))


def norm_grow(weights, factor, plus_one):
    name = named(weights, "norm.weight")
    weights[name] = (weights[name] + int(plus_one)) * factor - int(plus_one)


def published_name(item, name):
    """As the first checkpoints of the class have it; the others as transformers has it since."""
    if item["arch"].startswith("granitemoe"):
        return name.replace("experts.gate_up_proj", "input_linear.weight").replace(
            "experts.down_proj", "output_linear.weight").replace("router.weight", "router.layer.weight")
    if item["name"] != "gemma3-text-bf16":
        return name
    return name.replace("model.language_model.", "language_model.model.").replace("model.vision", "vision").replace(
        "model.multi", "multi")


def experts_apart(item, weights):
    """Experts as published: each with tensors of its own, where transformers has one of all."""
    names = ("w1", "w3", "w2") if item["arch"] == "mixtral" else ("gate_proj", "up_proj", "down_proj")
    apart = {}
    for name, value in weights.items():
        if item["arch"] == "mixtral":
            name = name.replace(".mlp.", ".block_sparse_moe.")
        stem, _, kind = name.rpartition(".experts.")
        for i, expert in enumerate(value if stem else ()):
            parts = expert.chunk(2) if kind == "gate_up_proj" else (expert,)
            for part, own in zip(parts, names[:2] if kind == "gate_up_proj" else names[2:]):
                apart[f"{stem}.experts.{i}.{own}.weight"] = part
        if not stem:
            apart[name] = value
    return apart


def save(item, directory, weights):
    dtype = DTYPES[item["dtype"]]
    if item["arch"] in MIXTURES:
        weights = experts_apart(item, weights)
    tied = item["fields"].get("tie_word_embeddings", item["arch"] in PLUS_ONE)
    tensors = {published_name(item, name): value.to(dtype).contiguous() for name, value in weights.items()
               if not (tied and name == "lm_head.weight")}
    for name in os.listdir(directory):
        if name.endswith(".safetensors") or name.endswith(".index.json"):
            os.remove(os.path.join(directory, name))
    shards = item["shards"]
    if shards == 1:
        save_file(tensors, os.path.join(directory, "model.safetensors"), {"format": "pt"})
        return
    names = list(tensors)
    weight_map = {}
    for shard in range(shards):
        file = f"model-{shard + 1:05d}-of-{shards:05d}.safetensors"
        part = {name: tensors[name] for name in names[shard::shards]}
        save_file(part, os.path.join(directory, file), {"format": "pt"})
        weight_map.update({name: file for name in part})
    total = sum(t.numel() * t.element_size() for t in tensors.values())
    with open(os.path.join(directory, "model.safetensors.index.json"), "w") as out:
        json.dump({"metadata": {"total_size": total}, "weight_map": weight_map}, out, indent=1)


def load(directory, dtype, device):
    model, info = AutoModelForCausalLM.from_pretrained(
        directory, dtype=dtype, attn_implementation="eager", output_loading_info=True)
    missing = [k for k in info["missing_keys"] if k != "lm_head.weight"]
    if missing or info["unexpected_keys"] or info["mismatched_keys"]:
        raise RuntimeError(f"loading: {info}")
    keep_to_long(model)
    return model.to(device).eval()


def keep_to_long(model):
    """longrope: where the context is longer than the original one, sluiced takes the long factors from the first
    token on (models/base/rope_config.h); transformers turns to them as a sequence grows, and so never may here."""
    rotary, config = model.model.rotary_emb, model.config
    if getattr(rotary, "rope_type", "default") != "longrope":
        return
    original = config.rope_parameters["original_max_position_embeddings"]
    if config.max_position_embeddings > original:
        frequencies, _ = transformers.modeling_rope_utils.ROPE_INIT_FUNCTIONS["longrope"](
            config, "cpu", seq_len=original + 1)
        rotary.long_inv_freq = rotary.original_inv_freq = frequencies
        rotary.inv_freq.copy_(frequencies)


def logits_of(model, tokens):
    with torch.no_grad():
        return model(input_ids=torch.tensor([tokens], device=model.device), use_cache=False).logits[0]


def given_logprobs(logits, tokens):
    logprobs = torch.log_softmax(logits.float(), -1)
    return [logprobs[i, tokens[i + 1]].item() for i in range(len(tokens) - 1)]


def prompts_of(seed, vocab):
    generator = torch.Generator().manual_seed(1000 + seed)
    return [torch.randint(0, vocab, (n,), generator=generator).tolist() for n in PROMPT_LENGTHS]


def deviation(model, prompts):
    return logits_of(model, prompts[-1]).float().std().item()


def bf16_error(directory, model, prompts):
    """Log-probabilities of the given tokens in transformers' own bfloat16, and their error."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    rounded = load(directory, torch.bfloat16, device)
    lists, errors = [], []
    for tokens in prompts:
        low = given_logprobs(logits_of(rounded, tokens), tokens)
        high = given_logprobs(logits_of(model, tokens), tokens)
        lists.append(low)
        errors += [abs(a - b) for a, b in zip(low, high)]
    return lists, sum(errors) / len(errors), max(errors)


def build(item, seed, directory, gain):
    """Writes config and weights whose logits have the wanted deviation; the model in float32."""
    with open(os.path.join(directory, "config.json"), "w") as out:
        json.dump(config_json(item), out, indent=1)
        out.write("\n")
    config = AutoConfig.from_pretrained(directory)
    plus_one = item["arch"] in PLUS_ONE
    weights = random_weights(AutoModelForCausalLM.from_config(config), seed, gain, plus_one)
    prompts = prompts_of(seed, config.get_text_config().vocab_size)
    for _ in range(3):
        save(item, directory, weights)
        model = load(directory, torch.float32, "cpu")
        factor = LOGITS_DEVIATION / deviation(model, prompts)
        if abs(factor - 1) < 0.03:
            break
        norm_grow(weights, factor, plus_one)
    return model, prompts


def greedy(model, tokens):
    tokens, chosen, logprobs, margins = list(tokens), [], [], []
    for _ in range(GREEDY_STEPS):
        logits = logits_of(model, tokens)[-1].float()
        best = torch.topk(logits, 2)
        chosen.append(best.indices[0].item())
        margins.append((best.values[0] - best.values[1]).item())
        logprobs.append(torch.log_softmax(logits, -1)[chosen[-1]].item())
        tokens.append(chosen[-1])
    return dict(tokens=chosen, logprobs=logprobs, margins=margins)


def rounded(value):
    if isinstance(value, float):
        return float(f"{value:.6f}")
    if isinstance(value, list):
        return [rounded(v) for v in value]
    if isinstance(value, dict):
        return {k: rounded(v) for k, v in value.items()}
    return value


def entries(model, prompts, low=None, steps=True):
    """What reference.json says of each prompt; `low`: log-probabilities in bfloat16; with greedy steps or without."""
    listed = []
    for index, tokens in enumerate(prompts):
        logits = logits_of(model, tokens)
        logprobs = torch.log_softmax(logits.float(), -1)
        top = logprobs.max(-1)
        entry = dict(tokens=tokens, logprobs=given_logprobs(logits, tokens))
        if low:
            entry["bf16_logprobs"] = [round(value, 4) for value in low[index]]
        if steps:
            entry["greedy"] = greedy(model, tokens)
        if index < SHORT_PROMPTS:
            entry["top_ids"] = top.indices.tolist()
            entry["top_logprobs"] = top.values.tolist()
            with torch.no_grad():
                hidden = model.model(input_ids=torch.tensor([tokens]), use_cache=False).last_hidden_state[0]
            entry["hidden_last"] = hidden[-1].tolist()
            entry["hidden_mean"] = hidden.mean(0).tolist()
        listed.append(entry)
    return listed


def reference(item, directory):
    seed = item["seed"]
    for gain in (1.0, 0.85, 0.7, 0.6, 0.5):
        model, prompts = build(item, seed, directory, gain)
        low, mean, worst = bf16_error(directory, model, prompts)
        if mean <= 0.013 and worst <= 0.1:
            break
    rotary = getattr(model.model, "language_model", model.model).rotary_emb
    result = dict(
        transformers=transformers.__version__, torch=torch.__version__, seed=seed, gain=gain,
        logits_deviation=deviation(model, prompts), bf16_mean_error=mean, bf16_max_error=worst)
    listed = entries(model, prompts, low)
    text = json.dumps(rounded(result))[:-1]
    for key, of in (("", ""), ("", "full_attention_"), ("local_", "sliding_attention_")):
        if not hasattr(rotary, of + "inv_freq"):
            continue
        frequencies = [float(f"{v:.9g}") for v in getattr(rotary, of + "inv_freq").double().tolist()]
        text += f',\n"{key}attention": {float(getattr(rotary, of + "attention_scaling"))!r}'
        text += f',\n"{key}inverse_frequency": {json.dumps(frequencies)}'
    text += ',\n"prompts": [\n' + ",\n".join(
        json.dumps(rounded(entry), separators=(",", ":")) for entry in listed) + "\n]}\n"
    with open(os.path.join(directory, "reference.json"), "w") as out:
        out.write(text)
    return result


def rope_references(out):
    """rope.json: the frequencies that transformers computes for a list of rope parameters."""
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
    cases, failed = [], 0
    for name, fields, rope in ROPE_CASES:
        try:
            config = LlamaConfig(hidden_size=4 * fields["head_dim"], num_attention_heads=4,
                                 rope_parameters=dict(rope), **fields)
            rotary = LlamaRotaryEmbedding(config)
            cases.append(dict(
                name=name, **fields, rope_parameters=rope, attention=float(rotary.attention_scaling),
                inverse_frequency=[float(f"{v:.9g}") for v in rotary.inv_freq.double().tolist()]))
        except Exception:
            failed += 1
            print(f"FAILED rope {name}")
            traceback.print_exc(file=sys.stdout)
    with open(os.path.join(out, "rope.json"), "w") as file:
        file.write("[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n")
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    default = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data")
    parser.add_argument("--out", default=default)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    torch.set_num_threads(min(4, os.cpu_count() or 1))
    torch.backends.cuda.matmul.allow_tf32 = False
    deepseek.register()
    os.makedirs(options.out, exist_ok=True)
    failed = rope_references(options.out) if not options.only else 0
    for item in SPECS:
        if options.only and options.only != item["name"]:
            continue
        start = time.monotonic()
        directory = os.path.join(options.out, item["name"])
        os.makedirs(directory, exist_ok=True)
        try:
            result = reference(item, directory)
            print(f"{item['name']}: logits deviation {result['logits_deviation']:.2f}, bf16 error mean "
                  f"{result['bf16_mean_error']:.4f} max {result['bf16_max_error']:.3f}, gain "
                  f"{result['gain']}, {time.monotonic() - start:.1f} s", flush=True)
        except Exception:
            failed += 1
            print(f"FAILED {item['name']}", flush=True)
            traceback.print_exc(file=sys.stdout)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
