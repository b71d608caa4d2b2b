/* Texts of config.json for tests: a small valid one of Llama, with some fields put otherwise. */
#pragma once

#include <stddef.h>

#include "gpu/models/config.h"

#define CONFIG_TEXT_MAX 4096

/* Changes. */
#define PHI3 "\"architectures\":[\"Phi3ForCausalLM\"],\"model_type\":\"phi3\""

#define MISTRAL "\"architectures\":[\"MistralForCausalLM\"],\"model_type\":\"mistral\""
#define QWEN2 "\"architectures\":[\"Qwen2ForCausalLM\"],\"model_type\":\"qwen2\""
#define QWEN3 "\"architectures\":[\"Qwen3ForCausalLM\"],\"model_type\":\"qwen3\""
#define GRANITE "\"architectures\":[\"GraniteForCausalLM\"],\"model_type\":\"granite\""
#define SMOLLM3                                                                                    \
    "\"architectures\":[\"SmolLM3ForCausalLM\"],\"model_type\":\"smollm3\",\"rope_theta\":5000000"
#define OLMO2 "\"architectures\":[\"Olmo2ForCausalLM\"],\"model_type\":\"olmo2\""
#define MIXTRAL "\"architectures\":[\"MixtralForCausalLM\"],\"model_type\":\"mixtral\""
#define GPT_OSS                                                                                    \
    "\"architectures\":[\"GptOssForCausalLM\"],\"model_type\":\"gpt_oss\","                        \
    "\"num_local_experts\":8,\"num_experts_per_tok\":2"
#define QWEN3_MOE                                                                                  \
    "\"architectures\":[\"Qwen3MoeForCausalLM\"],\"model_type\":\"qwen3_moe\","                    \
    "\"moe_intermediate_size\":8"
#define QWEN2_MOE                                                                                  \
    "\"architectures\":[\"Qwen2MoeForCausalLM\"],\"model_type\":\"qwen2_moe\","                    \
    "\"moe_intermediate_size\":8,\"shared_expert_intermediate_size\":8"
#define OLMOE "\"architectures\":[\"OlmoeForCausalLM\"],\"model_type\":\"olmoe\""
#define GLM4_MOE                                                                                   \
    "\"architectures\":[\"Glm4MoeForCausalLM\"],\"model_type\":\"glm4_moe\","                      \
    "\"moe_intermediate_size\":8,\"n_routed_experts\":8,\"num_experts_per_tok\":2"
#define GRANITE_EXPERTS ",\"num_local_experts\":8,\"num_experts_per_tok\":2"
#define GRANITE_MOE_ALONE                                                                          \
    "\"architectures\":[\"GraniteMoeForCausalLM\"],\"model_type\":\"granitemoe\""
#define GRANITE_MOE GRANITE_MOE_ALONE GRANITE_EXPERTS
#define GRANITE_MOE_SHARED                                                                         \
    "\"architectures\":[\"GraniteMoeSharedForCausalLM\"],"                                         \
    "\"model_type\":\"granitemoeshared\"" GRANITE_EXPERTS
#define DEEPSEEK                                                                                   \
    "\"architectures\":[\"DeepseekForCausalLM\"],\"model_type\":\"deepseek\","                     \
    "\"moe_intermediate_size\":8,\"n_routed_experts\":8,\"num_experts_per_tok\":2"
#define EIGHT ",\"num_experts\":8,\"num_experts_per_tok\":2"
#define GLM "\"architectures\":[\"GlmForCausalLM\"],\"model_type\":\"glm\""
#define GLM4 "\"architectures\":[\"Glm4ForCausalLM\"],\"model_type\":\"glm4\""
#define STARCODER2 "\"architectures\":[\"Starcoder2ForCausalLM\"],\"model_type\":\"starcoder2\""
#define GEMMA "\"architectures\":[\"GemmaForCausalLM\"],\"model_type\":\"gemma\""
#define GEMMA2 "\"architectures\":[\"Gemma2ForCausalLM\"],\"model_type\":\"gemma2\""
#define GEMMA3_TEXT "\"architectures\":[\"Gemma3ForCausalLM\"],\"model_type\":\"gemma3_text\""
#define GEMMA3 "\"architectures\":[\"Gemma3ForConditionalGeneration\"],\"model_type\":\"gemma3\""

#define LONGROPE(original, short_factors, long_factors)                                            \
    PHI3 ",\"original_max_position_embeddings\":" original                                         \
         ",\"rope_scaling\":{\"rope_type\":\"longrope\",\"short_factor\":" short_factors           \
         ",\"long_factor\":" long_factors "}"

/* `changes` is a list of fields, "\"head_dim\":80,\"vocab_size\":300": each takes the place of the
 * base's field of that name, or is added. "\"-model_type\":0" takes a field out (and adds one that
 * nobody reads). NULL or "": the base alone. */
void config_text(const char *changes, char text[CONFIG_TEXT_MAX]);

/* The base with changes, parsed. */
int config_with(const char *changes, struct model_config *ret, struct error *error);
