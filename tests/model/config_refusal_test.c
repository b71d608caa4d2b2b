/* What config.json may not say: refused by the name of its field. */
#include <string.h>

#include "gpu/models/config.h"
#include "tests/model/config_text.h"
#include "tests/model/model_suites.h"

#define YARN ",\"rope_theta\":150000,\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":2}"

struct refusal {
    const char *changes;
    const char *text; /* the whole message behind "config.json: " */
};

#define CLASSES                                                                                    \
    "Llama, Mistral, Qwen2, Qwen3, Phi3, Granite, SmolLM3, Olmo2, Glm, Glm4, Starcoder2, Gemma, "  \
    "Gemma2, Gemma3, Gemma3ForConditionalGeneration, Mixtral, Qwen2Moe, Qwen3Moe, Olmoe, "         \
    "Glm4Moe, GptOss, GraniteMoe, GraniteMoeShared and Deepseek are, short ones with ForCausalLM " \
    "behind"

static const struct refusal refusals[] = {
    /* what is not computed here, by name */
    {"\"architectures\":[\"GPT2LMHeadModel\"],\"model_type\":\"gpt2\"",
     "architectures: \"GPT2LMHeadModel\" is not supported (" CLASSES ")"},
    {"\"-architectures\":0,\"model_type\":\"gpt2\"",
     "model_type: \"gpt2\" is not supported (llama, mistral, qwen2, qwen3, phi3, granite, "
     "smollm3, olmo2, glm, glm4, starcoder2, gemma, gemma2, gemma3_text, gemma3, mixtral, "
     "qwen2_moe, "
     "qwen3_moe, olmoe, glm4_moe, gpt_oss, granitemoe, granitemoeshared and deepseek are)"},
    {"\"-architectures\":0,\"-model_type\":0", "architectures: missing"},
    {"\"architectures\":[\"LlamaForTokenClassification\"]",
     "architectures: \"LlamaForTokenClassification\" is not supported (" CLASSES ")"},
    {"\"model_type\":\"mistral\"",
     "model_type: \"mistral\" is not the type of the class under architectures"},
    {"\"architectures\":\"LlamaForCausalLM\"",
     "architectures: \"LlamaForCausalLM\" is not a list of one name"},
    {"\"architectures\":[\"LlamaForCausalLM\",\"X\"]",
     "architectures: a list is not a list of one name"},
    {"\"architectures\":[7]", "architectures: 7 is not a string"},
    {"\"hidden_act\":\"gelu\"",
     "hidden_act: \"gelu\" is not supported (silu and gelu_pytorch_tanh are)"},
    {"\"hidden_act\":1", "hidden_act: 1 is not a string"},
    {"\"torch_dtype\":\"float64\"",
     "torch_dtype: \"float64\" is not supported (bfloat16, float16 and float32 are)"},
    {"\"dtype\":\"int8\"", "dtype: \"int8\" is not supported (bfloat16, float16 and float32 are)"},
    {"\"quantization_config\":{\"quant_method\":\"bitsandbytes\",\"bits\":4}",
     "quantization_config.quant_method: \"bitsandbytes\" is not supported (these are: fp8 "
     "fbgemm_fp8 modelopt compressed-tensors gptq awq auto-round mxfp4)"},
    {"\"quantization_config\":{}", "quantization_config.quant_method: missing"},
    {"\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":2}",
     "rope_scaling.type: \"dynamic\" is not a supported kind of rope (default, linear, llama3, "
     "yarn, longrope)"},
    {"\"rope_parameters\":{\"rope_type\":\"su\"}",
     "rope_parameters.rope_type: \"su\" is not a supported kind of rope (default, linear, "
     "llama3, yarn, longrope)"},
    {"\"partial_rotary_factor\":0.5",
     "partial_rotary_factor: 0.5 is not supported (heads are rotated whole)"},
    {"\"rope_parameters\":{\"partial_rotary_factor\":0.25}",
     "rope_parameters.partial_rotary_factor: 0.25 is not supported (heads are rotated whole)"},
    {"\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"default\"}}",
     "rope_parameters.full_attention: an object is not supported (one set of parameters for all "
     "layers is)"},
    /* what other families' models have */
    {"\"logits_scaling\":8", "logits_scaling: 8 is not supported for llama"},
    {"\"attn_logit_softcapping\":50.0", "attn_logit_softcapping: 50 is not supported for llama"},
    {"\"query_pre_attn_scalar\":256", "query_pre_attn_scalar: 256 is not supported for llama"},
    {MISTRAL ",\"num_local_experts\":8", "num_local_experts: 8 is not supported for mistral"},
    {QWEN2 ",\"use_qk_norm\":true", "use_qk_norm: true is not supported for qwen2"},
    {QWEN3 ",\"no_rope_layers\":[1,0]", "no_rope_layers: a list is not supported for qwen3"},
    {PHI3 ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":4}",
     "rope_scaling.type: \"linear\" is not supported for phi3 (default and longrope are)"},
    {PHI3 ",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4}",
     "original_max_position_embeddings: missing"},
    {LONGROPE("64", "[1,1,1,1]", "null"), "rope_scaling.long_factor: missing"},
    {LONGROPE("64", "[1,1,1]", "[1,1,1,1]"),
     "rope_scaling.short_factor: a list is not a list of 4 numbers from 0.001 to 100000"},
    {LONGROPE("64", "[1,1,1,1]", "[1,1,1,0]"),
     "rope_scaling.long_factor: 0 is not a list of 4 numbers from 0.001 to 100000"},
    {LONGROPE("64", "[1,1,1,1]", "[1,1,\"2\",1]"),
     "rope_scaling.long_factor: \"2\" is not a list of 4 numbers from 0.001 to 100000"},
    {LONGROPE("1", "[1,1,1,1]", "[1,1,1,1]"),
     "original_max_position_embeddings: 1 is not a number from 2 to 16777216"},
    {GRANITE ",\"residual_multiplier\":0",
     "residual_multiplier: 0 is not a number from 0.000001 to 1000000"},
    {GRANITE ",\"num_local_experts\":32", "num_local_experts: 32 is not supported for granite"},
    {GRANITE_MOE_ALONE, "num_local_experts: missing"},
    {GRANITE_MOE ",\"mlp_bias\":true", "mlp_bias: true is not supported for granitemoe"},
    {GRANITE_MOE ",\"shared_intermediate_size\":8",
     "shared_intermediate_size: 8 is not supported for granitemoe"},
    {GRANITE_MOE_SHARED ",\"shared_intermediate_size\":-1",
     "shared_intermediate_size: -1 is not a whole number from 0 to 262144"},
    {DEEPSEEK ",\"scoring_func\":\"sigmoid\"",
     "scoring_func: \"sigmoid\" is not supported for deepseek (softmax is)"},
    {DEEPSEEK ",\"routed_scaling_factor\":2.5",
     "routed_scaling_factor: 2.5 is not supported for deepseek"},
    {DEEPSEEK ",\"kv_lora_rank\":512", "kv_lora_rank: 512 is not supported for deepseek"},
    {DEEPSEEK ",\"moe_layer_freq\":0", "moe_layer_freq: 0 is not a whole number from 1 to 256"},
    {DEEPSEEK ",\"n_shared_experts\":40000",
     "n_shared_experts: 40000 is not supported of that moe_intermediate_size"},
    {GLM4_MOE ",\"moe_layer_freq\":2", "moe_layer_freq: 2 is not supported for glm4_moe"},
    {OLMO2 ",\"clip_qkv\":8", "clip_qkv: 8 is not supported for olmo2"},
    {OLMO2 ",\"sliding_window\":16", "sliding_window: 16 is not supported for olmo2"},
    {OLMO2 ",\"partial_rotary_factor\":0.5",
     "partial_rotary_factor: 0.5 is not supported (heads are rotated whole)"},
    {GLM ",\"mlp_bias\":true", "mlp_bias: true is not supported for glm"},
    {MIXTRAL ",\"num_experts_per_tok\":2", "num_local_experts: missing"},
    {MIXTRAL ",\"num_local_experts\":8", "num_experts_per_tok: missing"},
    {MIXTRAL ",\"num_local_experts\":8,\"num_experts_per_tok\":9",
     "num_experts_per_tok: 9 is not at most as many as there are experts"},
    {MIXTRAL ",\"num_local_experts\":512,\"num_experts_per_tok\":2,\"num_hidden_layers\":64",
     "num_local_experts: 512 is not supported in so many layers: experts' tensors are too many"},
    {GPT_OSS, "rope_scaling: missing"},
    {GPT_OSS ",\"rope_theta\":null,\"rope_scaling\":{\"factor\":2}", "rope_theta: missing"},
    {GPT_OSS YARN ",\"sliding_window\":null", "sliding_window: missing"},
    {GPT_OSS YARN ",\"swiglu_limit\":0", "swiglu_limit: 0 is not a number from 0.001 to 1000000"},
    {GPT_OSS YARN ",\"hidden_act\":\"gelu_pytorch_tanh\"",
     "hidden_act: \"gelu_pytorch_tanh\" is not supported for gpt_oss (silu is)"},
    {GPT_OSS YARN ",\"layer_types\":[\"chunked_attention\",\"full_attention\"]",
     "layer_types: \"chunked_attention\" is not supported (full_attention and sliding_attention "
     "are)"},
    {GPT_OSS YARN ",\"quantization_config\":{\"quant_method\":\"mxfp4\",\"group_size\":16}",
     "quantization_config.group_size: 16 is not supported"},
    {MIXTRAL EIGHT, "num_experts: 8 is not supported for mixtral"},
    {QWEN3 EIGHT, "num_experts: 8 is not supported for qwen3"},
    {QWEN3_MOE EIGHT ",\"mlp_only_layers\":[-1]", "mlp_only_layers: -1 is not a layer"},
    {QWEN3_MOE EIGHT ",\"mlp_only_layers\":{}",
     "mlp_only_layers: an object is not a list of layers"},
    {QWEN3_MOE EIGHT ",\"shared_expert_intermediate_size\":8",
     "shared_expert_intermediate_size: 8 is not supported for qwen3_moe"},
    {QWEN2_MOE EIGHT ",\"use_sliding_window\":true",
     "use_sliding_window: true is not supported without layer_types"},
    {GLM4_MOE ",\"n_group\":2", "n_group: 2 is not supported for glm4_moe"},
    {GLM4_MOE ",\"topk_group\":2", "topk_group: 2 is not supported for glm4_moe"},
    {GLM4_MOE ",\"n_shared_experts\":40000",
     "n_shared_experts: 40000 is not supported of that moe_intermediate_size"},
    {QWEN3_MOE EIGHT ",\"routed_scaling_factor\":2.5",
     "routed_scaling_factor: 2.5 is not supported for qwen3_moe"},
    {OLMOE EIGHT ",\"clip_qkv\":8", "clip_qkv: 8 is not supported for olmoe"},
    {OLMOE EIGHT ",\"head_dim\":64",
     "head_dim: 64 is not hidden_size over num_attention_heads, as the norms of q and k have it"},
    {GLM4 ",\"-num_key_value_heads\":0", "num_key_value_heads: missing"},
    {GLM4 ",\"partial_rotary_factor\":0.01",
     "partial_rotary_factor: 0.01 is not one by which an even number of a head's elements is "
     "rotated"},
    {SMOLLM3 ",\"use_sliding_window\":true",
     "use_sliding_window: true is not supported for smollm3"},
    {SMOLLM3 ",\"no_rope_layers\":[1]",
     "no_rope_layers: a list is not a list of num_hidden_layers numbers"},
    {SMOLLM3 ",\"no_rope_layers\":[1,2]", "no_rope_layers: 2 is not 0 or 1"},
    {"\"architectures\":[\"SmolLM3ForCausalLM\"],\"model_type\":\"smollm3\"",
     "rope_theta: missing"},
    {PHI3 ",\"partial_rotary_factor\":0.4",
     "partial_rotary_factor: 0.4 is not one by which an even number of a head's elements is "
     "rotated"},
    {PHI3 ",\"partial_rotary_factor\":0.1",
     "partial_rotary_factor: 0.1 is not one by which an even number of a head's elements is "
     "rotated"},
    {PHI3 ",\"rope_parameters\":{\"partial_rotary_factor\":1.5}",
     "rope_parameters.partial_rotary_factor: 1.5 is not a number from 0 to 1"},
    {STARCODER2 ",\"-num_key_value_heads\":0", "num_key_value_heads: missing"},
    {STARCODER2 ",\"norm_epsilon\":0", "norm_epsilon: 0 is not a number from 1e-12 to 1"},
    {STARCODER2 ",\"hidden_act\":\"relu\"",
     "hidden_act: \"relu\" is not supported (silu and gelu_pytorch_tanh are)"},
    {STARCODER2 ",\"use_parallel_residual\":true",
     "use_parallel_residual: true is not supported for starcoder2"},
    {STARCODER2 ",\"partial_rotary_factor\":0.5",
     "partial_rotary_factor: 0.5 is not supported (heads are rotated whole)"},
    {"\"use_bias\":true", "use_bias: true is not supported for llama"},
    {GEMMA2 ",\"sliding_window\":null", "sliding_window: missing"},
    {GEMMA2 ",\"attn_logit_softcapping\":0",
     "attn_logit_softcapping: 0 is not a number from 0.001 to 1000000"},
    {GEMMA2 ",\"final_logit_softcapping\":\"30\"",
     "final_logit_softcapping: \"30\" is not a number from 0.001 to 1000000"},
    {GEMMA ",\"hidden_act\":\"silu\"",
     "hidden_act: \"silu\" is not supported for gemma (gelu and gelu_pytorch_tanh are)"},
    {GEMMA ",\"hidden_act\":\"gelu\",\"query_pre_attn_scalar\":128",
     "query_pre_attn_scalar: 128 is not supported for gemma"},
    {GEMMA ",\"hidden_act\":\"gelu\",\"attn_logit_softcapping\":50",
     "attn_logit_softcapping: 50 is not supported for gemma"},
    {GEMMA2 ",\"hidden_activation\":\"gelu\"",
     "hidden_activation: \"gelu\" is not supported (silu and gelu_pytorch_tanh are)"},
    {GEMMA2 ",\"query_pre_attn_scalar\":0",
     "query_pre_attn_scalar: 0 is not a number from 1 to 65536"},
    {GEMMA2 ",\"use_bidirectional_attention\":true",
     "use_bidirectional_attention: true is not supported for gemma2"},
    {GEMMA2 ",\"sliding_window_pattern\":6",
     "sliding_window_pattern: 6 is not supported for gemma2"},
    {GEMMA2 ",\"rope_local_base_freq\":10000",
     "rope_local_base_freq: 10000 is not supported for gemma2"},
    {GEMMA2 ",\"layer_types\":[\"full_attention\",2]",
     "layer_types: 2 is not supported (full_attention and sliding_attention are)"},
    {GEMMA2 ",\"layer_types\":[]", "layer_types: a list is not a list of num_hidden_layers names"},
    {GEMMA2 ",\"num_attention_heads\":6,\"-num_key_value_heads\":0",
     "num_key_value_heads: missing"},
    {GEMMA3_TEXT ",\"sliding_window_pattern\":0",
     "sliding_window_pattern: 0 is not a whole number from 1 to 256"},
    {GEMMA3_TEXT ",\"rope_parameters\":{\"rope_type\":\"default\"}",
     "rope_parameters: an object is not an object of full_attention and sliding_attention"},
    {GEMMA3_TEXT ",\"rope_parameters\":{\"full_attention\":2}",
     "rope_parameters.full_attention: 2 is not an object"},
    {GEMMA3_TEXT ",\"rope_parameters\":{\"full_attention\":{}},\"rope_scaling\":{}",
     "rope_scaling: an object is not possible beside rope_parameters"},
    {GEMMA3_TEXT ",\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4}",
     "rope_scaling: longrope and yarn are not supported for gemma3_text"},
    {GEMMA3_TEXT ",\"rope_local_base_freq\":0",
     "rope_local_base_freq: 0 is not a number from 1.001 to 1000000000000"},
    {GEMMA3, "text_config: missing"},
    {GEMMA3 ",\"text_config\":7", "text_config: 7 is not an object"},
    {GEMMA3 ",\"text_config\":{\"model_type\":\"gemma2\"}",
     "text_config.model_type: \"gemma2\" is not the type that the class has text of"},
    {GEMMA3 ",\"text_config\":{\"hidden_size\":0}",
     "text_config.hidden_size: 0 is not a whole number from 1 to 65536"},
    {GEMMA3 ",\"text_config\":{\"num_local_experts\":8}",
     "text_config.num_local_experts: 8 is not supported for gemma3"},
    {GEMMA3 ",\"text_config\":{\"quantization_config\":{}}",
     "text_config.quantization_config: an object is not supported there (beside the text's part "
     "it is)"},
    /* sizes: missing, of the wrong type, out of range */
    {"\"-num_hidden_layers\":0", "num_hidden_layers: missing"},
    {"\"-hidden_size\":0", "hidden_size: missing"},
    {"\"-intermediate_size\":0", "intermediate_size: missing"},
    {"\"-num_attention_heads\":0", "num_attention_heads: missing"},
    {"\"-vocab_size\":0", "vocab_size: missing"},
    {"\"-max_position_embeddings\":0", "max_position_embeddings: missing"},
    {"\"hidden_size\":null", "hidden_size: missing"},
    {"\"hidden_size\":\"32\"", "hidden_size: \"32\" is not a whole number from 1 to 65536"},
    {"\"hidden_size\":0", "hidden_size: 0 is not a whole number from 1 to 65536"},
    {"\"hidden_size\":-32", "hidden_size: -32 is not a whole number from 1 to 65536"},
    {"\"hidden_size\":32.5", "hidden_size: 32.5 is not a whole number from 1 to 65536"},
    {"\"hidden_size\":65537", "hidden_size: 65537 is not a whole number from 1 to 65536"},
    {"\"hidden_size\":1e300", "hidden_size: 1e+300 is not a whole number from 1 to 65536"},
    {"\"num_hidden_layers\":257", "num_hidden_layers: 257 is not a whole number from 1 to 256"},
    {"\"num_hidden_layers\":true", "num_hidden_layers: true is not a whole number from 1 to 256"},
    {"\"vocab_size\":[256]", "vocab_size: a list is not a whole number from 1 to 1048576"},
    {"\"intermediate_size\":{}",
     "intermediate_size: an object is not a whole number from 1 to 262144"},
    {"\"num_attention_heads\":513", "num_attention_heads: 513 is not a whole number from 1 to 512"},
    {"\"num_attention_heads\":3,\"num_key_value_heads\":3",
     "hidden_size: 32 is not a multiple of num_attention_heads, 3, and head_dim is missing"},
    {"\"num_key_value_heads\":3", "num_key_value_heads: 3 is not a divisor of num_attention_heads"},
    {"\"num_key_value_heads\":8", "num_key_value_heads: 8 is not a whole number from 1 to 4"},
    {QWEN2 ",\"-num_key_value_heads\":0", "num_key_value_heads: missing"},
    {"\"head_dim\":257", "head_dim: 257 is not a whole number from 1 to 256"},
    {"\"head_dim\":7", "head_dim: 7 is not even, over 256, or with 4 heads over 65536 in all"},
    {"\"hidden_size\":4096",
     "head_dim: 1024 is not even, over 256, or with 4 heads over 65536 in all"},
    {"\"head_dim\":256,\"num_attention_heads\":512,\"num_key_value_heads\":1",
     "head_dim: 256 is not even, over 256, or with 512 heads over 65536 in all"},
    {"\"max_position_embeddings\":16777217",
     "max_position_embeddings: 16777217 is not a whole number from 1 to 16777216"},
    {"\"rms_norm_eps\":0", "rms_norm_eps: 0 is not a number from 1e-12 to 1"},
    {"\"rms_norm_eps\":\"1e-5\"", "rms_norm_eps: \"1e-5\" is not a number from 1e-12 to 1"},
    {"\"tie_word_embeddings\":1", "tie_word_embeddings: 1 is not true or false"},
    {"\"attention_bias\":\"no\"", "attention_bias: \"no\" is not true or false"},
    {"\"mlp_bias\":0", "mlp_bias: 0 is not true or false"},
    /* rope */
    {"\"rope_theta\":1", "rope_theta: 1 is not a number from 1.001 to 1000000000000"},
    {"\"rope_theta\":\"10000\"",
     "rope_theta: \"10000\" is not a number from 1.001 to 1000000000000"},
    {"\"rope_scaling\":[]", "rope_scaling: a list is not an object"},
    {"\"rope_scaling\":{\"rope_type\":7}", "rope_scaling.rope_type: 7 is not a string"},
    {"\"rope_scaling\":{\"rope_type\":\"linear\"}", "rope_scaling.factor: missing"},
    {"\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":0.5}",
     "rope_scaling.factor: 0.5 is not a number from 1 to 4096"},
    {"\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":\"2\"}",
     "rope_scaling.factor: \"2\" is not a number from 1 to 4096"},
    {"\"rope_scaling\":{\"rope_type\":\"llama3\",\"low_freq_factor\":1,\"high_freq_factor\":4}",
     "rope_scaling.factor: missing"},
    {"\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,\"high_freq_factor\":4}",
     "rope_scaling.low_freq_factor: missing"},
    {"\"rope_parameters\":{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":4,"
     "\"high_freq_factor\":4}",
     "rope_parameters.high_freq_factor: 4 is not over low_freq_factor"},
    {"\"rope_scaling\":{\"rope_type\":\"yarn\"}",
     "rope_scaling.original_max_position_embeddings: missing"},
    {"\"rope_scaling\":{\"rope_type\":\"yarn\",\"original_max_position_embeddings\":1024}",
     "rope_scaling.original_max_position_embeddings: 1024 with max_position_embeddings 512 gives a "
     "factor out of 1 to 4096"},
    {"\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":2,\"beta_fast\":1,\"beta_slow\":4}",
     "rope_scaling.beta_fast: 1 is not at least beta_slow (32 and 1 where not given)"},
    {"\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":2,\"truncate\":0}",
     "rope_scaling.truncate: 0 is not true or false"},
    {"\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":2,\"attention_factor\":0}",
     "rope_scaling.attention_factor: 0 is not a number from 0.001 to 1000"},
    /* windows */
    {MISTRAL ",\"sliding_window\":0", "sliding_window: 0 is not a whole number from 1 to 16777216"},
    {MISTRAL ",\"sliding_window\":\"4096\"",
     "sliding_window: \"4096\" is not a whole number from 1 to 16777216"},
    {QWEN2 ",\"use_sliding_window\":\"yes\"", "use_sliding_window: \"yes\" is not true or false"},
    {QWEN3 ",\"use_sliding_window\":true,\"max_window_layers\":-1",
     "max_window_layers: -1 is not a whole number from 0 to 4294967295"},
    {QWEN3 ",\"layer_types\":[\"full_attention\"]",
     "layer_types: a list is not a list of num_hidden_layers names"},
    {QWEN3 ",\"layer_types\":[\"full_attention\",\"chunked_attention\"]",
     "layer_types: \"chunked_attention\" is not supported (full_attention and sliding_attention "
     "are)"},
    {QWEN3 ",\"layer_types\":[\"full_attention\",2]",
     "layer_types: 2 is not supported (full_attention and sliding_attention are)"},
    {QWEN3 ",\"layer_types\":[\"full_attention\",\"sliding_attention\"]",
     "layer_types: \"sliding_attention\" is not possible without use_sliding_window and "
     "sliding_window"},
    /* tokens */
    {"\"bos_token_id\":256", "bos_token_id: 256 is not a whole number from -1 to 255"},
    {"\"eos_token_id\":256", "eos_token_id: 256 is not a token id from 0 to 255"},
    {"\"eos_token_id\":[1,-1]", "eos_token_id: -1 is not a token id from 0 to 255"},
    {"\"eos_token_id\":\"2\"", "eos_token_id: \"2\" is not a token id from 0 to 255"},
    {"\"eos_token_id\":[0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]",
     "eos_token_id: more than 16 ids"},
};

START_TEST(each_refusal_names_the_field_and_the_value)
{
    const struct refusal *refusal = &refusals[_i];
    struct model_config config;
    struct error error = {0};
    memset(&config, 0x5a, sizeof(config));
    struct model_config before = config;
    ck_assert_int_eq(config_with(refusal->changes, &config, &error), -ERR_BAD_MODEL);
    ck_assert_int_eq(error.code, ERR_BAD_MODEL);
    ck_assert_int_eq(strncmp(error.text, "config.json: ", 13), 0);
    ck_assert_str_eq(error.text + 13, refusal->text);
    ck_assert_mem_eq(&config, &before, sizeof(config));
}
END_TEST

static const struct {
    const char *text, *why;
} malformed[] = {
    {"", "config.json: JSON at byte 0: value expected"},
    {"[]", "config.json: not an object"},
    {"{\"hidden_size\":32,\"hidden_size\":64}", "config.json: JSON at byte 18: duplicate key"},
    {"{\"hidden_size\":32", "config.json: JSON at byte 17: the text ends too early"},
    {"version https", "config.json: JSON at byte 0: value expected"},
};

START_TEST(a_malformed_text_is_refused_with_its_place)
{
    struct model_config config;
    struct error error = {0};
    const char *text = malformed[_i].text;
    ck_assert_int_eq(model_config_parse(text, strlen(text), NULL, 0, &config, &error),
                     -ERR_BAD_MODEL);
    ck_assert_str_eq(error.text, malformed[_i].why);
}
END_TEST

Suite *config_refusal_suite(void)
{
    Suite *suite = suite_create("config refusals");
    TCase *tcase = tcase_create("refusals");
    tcase_add_loop_test(tcase, each_refusal_names_the_field_and_the_value, 0,
                        sizeof(refusals) / sizeof(refusals[0]));
    tcase_add_loop_test(tcase, a_malformed_text_is_refused_with_its_place, 0,
                        sizeof(malformed) / sizeof(malformed[0]));
    suite_add_tcase(suite, tcase);
    return suite;
}
