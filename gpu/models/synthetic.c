#include "gpu/models/synthetic.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "gpu/kernels/step/null_rule.h"
#include "gpu/models/base/family.h"
#include "gpu/models/config.h"

#define PREFIX "synthetic:"
#define NAMES_MAX 1024 /* of a list of all shapes in a message */

/* The published config.json of each model, without its end tokens: random weights mean nothing by
 * them, and a load test wants the lengths that it asked for. */
static const struct {
    const char *name, *config;
} shapes[] = {
    {"tiny",
     "{\"architectures\":[\"LlamaForCausalLM\"],\"hidden_size\":256,\"intermediate_size\":512,"
     "\"num_hidden_layers\":4,\"num_attention_heads\":4,\"num_key_value_heads\":2,\"head_dim\":64,"
     "\"vocab_size\":512,\"max_position_embeddings\":4096,\"rms_norm_eps\":1e-5,"
     "\"tie_word_embeddings\":true,\"dtype\":\"bfloat16\",\"rope_theta\":10000}"},
    {"llama-3.2-1b",
     "{\"architectures\":[\"LlamaForCausalLM\"],\"hidden_size\":2048,\"intermediate_size\":8192,"
     "\"num_hidden_layers\":16,\"num_attention_heads\":32,\"num_key_value_heads\":8,"
     "\"head_dim\":64,\"vocab_size\":128256,\"max_position_embeddings\":131072,"
     "\"rms_norm_eps\":1e-5,\"tie_word_embeddings\":true,\"dtype\":\"bfloat16\","
     "\"rope_theta\":500000,\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":32,"
     "\"low_freq_factor\":1,\"high_freq_factor\":4,\"original_max_position_embeddings\":8192}}"},
    {"llama-3.1-8b",
     "{\"architectures\":[\"LlamaForCausalLM\"],\"hidden_size\":4096,\"intermediate_size\":14336,"
     "\"num_hidden_layers\":32,\"num_attention_heads\":32,\"num_key_value_heads\":8,"
     "\"head_dim\":128,\"vocab_size\":128256,\"max_position_embeddings\":131072,"
     "\"rms_norm_eps\":1e-5,\"dtype\":\"bfloat16\","
     "\"rope_theta\":500000,\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,"
     "\"low_freq_factor\":1,\"high_freq_factor\":4,\"original_max_position_embeddings\":8192}}"},
    {"llama-3.1-8b-eagle3", /* a head for the one above */
     "{\"architectures\":[\"LlamaForCausalLMEagle3\"],\"hidden_size\":4096,"
     "\"intermediate_size\":14336,\"num_hidden_layers\":1,\"num_attention_heads\":32,"
     "\"num_key_value_heads\":8,\"vocab_size\":128256,\"draft_vocab_size\":32000,"
     "\"max_position_embeddings\":2048,\"rms_norm_eps\":1e-5,\"dtype\":\"bfloat16\","
     "\"rope_theta\":10000}"},
    {"llama-3.1-70b",
     "{\"architectures\":[\"LlamaForCausalLM\"],\"hidden_size\":8192,\"intermediate_size\":28672,"
     "\"num_hidden_layers\":80,\"num_attention_heads\":64,\"num_key_value_heads\":8,"
     "\"head_dim\":128,\"vocab_size\":128256,\"max_position_embeddings\":131072,"
     "\"rms_norm_eps\":1e-5,\"dtype\":\"bfloat16\","
     "\"rope_theta\":500000,\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,"
     "\"low_freq_factor\":1,\"high_freq_factor\":4,\"original_max_position_embeddings\":8192}}"},
    {"qwen2.5-7b",
     "{\"architectures\":[\"Qwen2ForCausalLM\"],\"hidden_size\":3584,\"intermediate_size\":18944,"
     "\"num_hidden_layers\":28,\"num_attention_heads\":28,\"num_key_value_heads\":4,"
     "\"vocab_size\":152064,\"max_position_embeddings\":32768,\"rms_norm_eps\":1e-6,"
     "\"dtype\":\"bfloat16\",\"rope_theta\":1000000}"},
    {"qwen3-0.6b",
     "{\"architectures\":[\"Qwen3ForCausalLM\"],\"hidden_size\":1024,\"intermediate_size\":3072,"
     "\"num_hidden_layers\":28,\"num_attention_heads\":16,\"num_key_value_heads\":8,"
     "\"head_dim\":128,\"vocab_size\":151936,\"max_position_embeddings\":40960,"
     "\"rms_norm_eps\":1e-6,\"tie_word_embeddings\":true,\"dtype\":\"bfloat16\","
     "\"rope_theta\":1000000}"},
    {"mistral-7b",
     "{\"architectures\":[\"MistralForCausalLM\"],\"hidden_size\":4096,"
     "\"intermediate_size\":14336,\"num_hidden_layers\":32,\"num_attention_heads\":32,"
     "\"num_key_value_heads\":8,\"vocab_size\":32000,\"max_position_embeddings\":32768,"
     "\"rms_norm_eps\":1e-5,\"sliding_window\":4096,\"dtype\":\"bfloat16\",\"rope_theta\":10000}"},
    {"phi-3-mini",
     "{\"architectures\":[\"Phi3ForCausalLM\"],\"hidden_size\":3072,\"intermediate_size\":8192,"
     "\"num_hidden_layers\":32,\"num_attention_heads\":32,\"num_key_value_heads\":32,"
     "\"vocab_size\":32064,\"max_position_embeddings\":4096,\"rms_norm_eps\":1e-5,"
     "\"sliding_window\":2047,\"dtype\":\"bfloat16\",\"rope_theta\":10000}"},
    {"phi-4",
     "{\"architectures\":[\"Phi3ForCausalLM\"],\"hidden_size\":5120,\"intermediate_size\":17920,"
     "\"num_hidden_layers\":40,\"num_attention_heads\":40,\"num_key_value_heads\":10,"
     "\"vocab_size\":100352,\"max_position_embeddings\":16384,\"rms_norm_eps\":1e-5,"
     "\"dtype\":\"bfloat16\",\"rope_theta\":250000}"},
    {"phi-4-mini",
     "{\"architectures\":[\"Phi3ForCausalLM\"],\"hidden_size\":3072,\"intermediate_size\":8192,"
     "\"num_hidden_layers\":32,\"num_attention_heads\":24,\"num_key_value_heads\":8,"
     "\"vocab_size\":200064,\"max_position_embeddings\":131072,\"rms_norm_eps\":1e-5,"
     "\"original_max_position_embeddings\":4096,\"partial_rotary_factor\":0.75,"
     "\"sliding_window\":262144,\"tie_word_embeddings\":true,\"dtype\":\"bfloat16\","
     "\"rope_theta\":10000,\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":["
     "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,"
     "1,1,1,1,1,1"
     "],\"long_factor\":["
     "1,1.118320672,1.250641126,1.398617824,1.564103225,1.74916897,1.956131817,"
     "2.187582649,2.446418898,2.735880826,3.059592084,3.421605075,3.826451687,4.279200023,"
     "4.785517845,5.351743533,5.984965424,6.693110555,7.485043894,8.370679318,9.36110372,"
     "10.4687158,11.70738129,13.09260651,14.64173252,16.37415215,18.31155283,20.47818807,"
     "22.90118105,25.61086418,28.64115884,32.03,32.1,32.13,32.23,32.6,32.61,32.64,32.66,"
     "32.7,32.71,32.93,32.97,33.28,33.49,33.5,44.16,47.77"
     "]}}"},
    {"granite-3.1-8b",
     "{\"architectures\":[\"GraniteForCausalLM\"],\"hidden_size\":4096,"
     "\"intermediate_size\":12800,\"num_hidden_layers\":40,\"num_attention_heads\":32,"
     "\"num_key_value_heads\":8,\"vocab_size\":49155,\"max_position_embeddings\":131072,"
     "\"rms_norm_eps\":1e-5,\"tie_word_embeddings\":true,\"dtype\":\"bfloat16\","
     "\"rope_theta\":5000000,\"attention_multiplier\":0.0078125,\"embedding_multiplier\":12,"
     "\"residual_multiplier\":0.22,\"logits_scaling\":16}"},
    {"smollm3-3b",
     "{\"architectures\":[\"SmolLM3ForCausalLM\"],\"hidden_size\":2048,"
     "\"intermediate_size\":11008,\"num_hidden_layers\":36,\"num_attention_heads\":16,"
     "\"num_key_value_heads\":4,\"vocab_size\":128256,\"max_position_embeddings\":65536,"
     "\"rms_norm_eps\":1e-6,\"tie_word_embeddings\":true,\"dtype\":\"bfloat16\","
     "\"rope_theta\":5000000,\"no_rope_layer_interval\":4}"},
    {"olmo-2-7b",
     "{\"architectures\":[\"Olmo2ForCausalLM\"],\"hidden_size\":4096,"
     "\"intermediate_size\":11008,\"num_hidden_layers\":32,\"num_attention_heads\":32,"
     "\"num_key_value_heads\":32,\"vocab_size\":100352,\"max_position_embeddings\":4096,"
     "\"rms_norm_eps\":1e-6,\"dtype\":\"bfloat16\",\"rope_theta\":500000}"},
    {"glm-4-9b-chat",
     "{\"architectures\":[\"GlmForCausalLM\"],\"hidden_size\":4096,"
     "\"intermediate_size\":13696,\"num_hidden_layers\":40,\"num_attention_heads\":32,"
     "\"num_key_value_heads\":2,\"head_dim\":128,\"vocab_size\":151552,"
     "\"max_position_embeddings\":131072,\"rms_norm_eps\":1.5625e-7,\"attention_bias\":true,"
     "\"partial_rotary_factor\":0.5,\"dtype\":\"bfloat16\",\"rope_theta\":5000000}"},
    {"glm-4-9b", "{\"architectures\":[\"Glm4ForCausalLM\"],\"hidden_size\":4096,"
                 "\"intermediate_size\":13696,\"num_hidden_layers\":40,\"num_attention_heads\":32,"
                 "\"num_key_value_heads\":2,\"head_dim\":128,\"vocab_size\":151552,"
                 "\"max_position_embeddings\":32768,\"rms_norm_eps\":1e-5,\"attention_bias\":true,"
                 "\"partial_rotary_factor\":0.5,\"dtype\":\"bfloat16\",\"rope_theta\":10000}"},
    {"starcoder2-7b",
     "{\"architectures\":[\"Starcoder2ForCausalLM\"],\"hidden_size\":4608,"
     "\"intermediate_size\":18432,\"num_hidden_layers\":32,\"num_attention_heads\":36,"
     "\"num_key_value_heads\":4,\"vocab_size\":49152,\"max_position_embeddings\":16384,"
     "\"norm_epsilon\":1e-5,\"hidden_act\":\"gelu_pytorch_tanh\",\"use_bias\":true,"
     "\"sliding_window\":4096,\"dtype\":\"bfloat16\",\"rope_theta\":1000000}"},
    {"gemma-7b", "{\"architectures\":[\"GemmaForCausalLM\"],\"hidden_size\":3072,"
                 "\"intermediate_size\":24576,\"num_hidden_layers\":28,\"num_attention_heads\":16,"
                 "\"num_key_value_heads\":16,\"head_dim\":256,\"vocab_size\":256000,"
                 "\"max_position_embeddings\":8192,\"rms_norm_eps\":1e-6,\"hidden_act\":\"gelu\","
                 "\"dtype\":\"bfloat16\",\"rope_theta\":10000}"},
    {"gemma-2-9b",
     "{\"architectures\":[\"Gemma2ForCausalLM\"],\"hidden_size\":3584,"
     "\"intermediate_size\":14336,\"num_hidden_layers\":42,\"num_attention_heads\":16,"
     "\"num_key_value_heads\":8,\"head_dim\":256,\"vocab_size\":256000,"
     "\"max_position_embeddings\":8192,\"rms_norm_eps\":1e-6,\"sliding_window\":4096,"
     "\"query_pre_attn_scalar\":256,\"attn_logit_softcapping\":50,"
     "\"final_logit_softcapping\":30,\"dtype\":\"bfloat16\",\"rope_theta\":10000}"},
    {"gemma-3-4b",
     "{\"architectures\":[\"Gemma3ForConditionalGeneration\"],\"model_type\":\"gemma3\","
     "\"text_config\":{\"hidden_size\":2560,\"intermediate_size\":10240,"
     "\"model_type\":\"gemma3_text\",\"num_hidden_layers\":34,"
     "\"rope_scaling\":{\"factor\":8.0,\"rope_type\":\"linear\"},"
     "\"sliding_window\":1024},\"dtype\":\"bfloat16\"}"},
    {"mixtral-8x7b",
     "{\"architectures\":[\"MixtralForCausalLM\"],\"hidden_size\":4096,"
     "\"intermediate_size\":14336,\"num_hidden_layers\":32,\"num_attention_heads\":32,"
     "\"num_key_value_heads\":8,\"num_local_experts\":8,\"num_experts_per_tok\":2,"
     "\"vocab_size\":32000,\"max_position_embeddings\":32768,\"rms_norm_eps\":1e-5,"
     "\"dtype\":\"bfloat16\",\"rope_theta\":1000000}"},
    {"qwen3-30b-a3b",
     "{\"architectures\":[\"Qwen3MoeForCausalLM\"],\"hidden_size\":2048,"
     "\"intermediate_size\":6144,\"moe_intermediate_size\":768,\"num_hidden_layers\":48,"
     "\"num_attention_heads\":32,\"num_key_value_heads\":4,\"head_dim\":128,\"num_experts\":128,"
     "\"num_experts_per_tok\":8,\"norm_topk_prob\":true,\"vocab_size\":151936,"
     "\"max_position_embeddings\":40960,\"rms_norm_eps\":1e-6,\"dtype\":\"bfloat16\","
     "\"rope_theta\":1000000}"},
    {"qwen1.5-moe-a2.7b",
     "{\"architectures\":[\"Qwen2MoeForCausalLM\"],\"hidden_size\":2048,"
     "\"intermediate_size\":5632,\"moe_intermediate_size\":1408,"
     "\"shared_expert_intermediate_size\":5632,\"num_hidden_layers\":24,"
     "\"num_attention_heads\":16,\"num_key_value_heads\":16,\"num_experts\":60,"
     "\"num_experts_per_tok\":4,\"norm_topk_prob\":false,\"vocab_size\":151936,"
     "\"max_position_embeddings\":8192,\"rms_norm_eps\":1e-6,\"dtype\":\"bfloat16\","
     "\"rope_theta\":1000000}"},
    {"olmoe-1b-7b",
     "{\"architectures\":[\"OlmoeForCausalLM\"],\"hidden_size\":2048,\"intermediate_size\":1024,"
     "\"num_hidden_layers\":16,\"num_attention_heads\":16,\"num_key_value_heads\":16,"
     "\"num_experts\":64,\"num_experts_per_tok\":8,\"norm_topk_prob\":false,"
     "\"vocab_size\":50304,\"max_position_embeddings\":4096,\"rms_norm_eps\":1e-5,"
     "\"dtype\":\"bfloat16\",\"rope_theta\":10000}"},
    {"granite-3.0-3b-a800m",
     "{\"architectures\":[\"GraniteMoeForCausalLM\"],\"hidden_size\":1536,"
     "\"intermediate_size\":512,\"num_hidden_layers\":32,\"num_attention_heads\":24,"
     "\"num_key_value_heads\":8,\"num_local_experts\":40,\"num_experts_per_tok\":8,"
     "\"vocab_size\":49155,\"max_position_embeddings\":4096,\"rms_norm_eps\":1e-6,"
     "\"tie_word_embeddings\":true,\"dtype\":\"bfloat16\",\"rope_theta\":10000,"
     "\"attention_multiplier\":0.015625,\"embedding_multiplier\":12,"
     "\"residual_multiplier\":0.22,\"logits_scaling\":6}"},
    {"deepseek-moe-16b",
     "{\"architectures\":[\"DeepseekForCausalLM\"],\"hidden_size\":2048,"
     "\"intermediate_size\":10944,\"moe_intermediate_size\":1408,\"num_hidden_layers\":28,"
     "\"num_attention_heads\":16,\"num_key_value_heads\":16,\"n_routed_experts\":64,"
     "\"num_experts_per_tok\":6,\"n_shared_experts\":2,\"first_k_dense_replace\":1,"
     "\"norm_topk_prob\":false,\"vocab_size\":102400,\"max_position_embeddings\":4096,"
     "\"rms_norm_eps\":1e-6,\"dtype\":\"bfloat16\",\"rope_theta\":10000}"},
    {"gpt-oss-20b",
     "{\"architectures\":[\"GptOssForCausalLM\"],\"hidden_size\":2880,"
     "\"intermediate_size\":2880,\"num_hidden_layers\":24,\"num_attention_heads\":64,"
     "\"num_key_value_heads\":8,\"head_dim\":64,\"attention_bias\":true,"
     "\"num_local_experts\":32,\"num_experts_per_tok\":4,\"sliding_window\":128,"
     "\"swiglu_limit\":7.0,\"vocab_size\":201088,\"max_position_embeddings\":131072,"
     "\"rms_norm_eps\":1e-5,\"dtype\":\"bfloat16\",\"rope_theta\":150000,"
     "\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":32.0,\"beta_fast\":32.0,"
     "\"beta_slow\":1.0,\"original_max_position_embeddings\":4096,\"truncate\":false},"
     "\"quantization_config\":{\"quant_method\":\"mxfp4\"}}"},
    {"gpt-oss-tiny", /* heads and blocks for two devices */
     "{\"architectures\":[\"GptOssForCausalLM\"],\"hidden_size\":256,\"intermediate_size\":128,"
     "\"num_hidden_layers\":4,\"num_attention_heads\":8,\"num_key_value_heads\":2,"
     "\"head_dim\":64,\"num_local_experts\":8,\"num_experts_per_tok\":4,"
     "\"sliding_window\":128,\"vocab_size\":512,\"max_position_embeddings\":4096,"
     "\"rms_norm_eps\":1e-5,\"dtype\":\"bfloat16\",\"rope_theta\":150000,"
     "\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":32.0,"
     "\"original_max_position_embeddings\":128,\"truncate\":false},"
     "\"quantization_config\":{\"quant_method\":\"mxfp4\"}}"},
    {"tiny-eagle3",
     "{\"architectures\":[\"LlamaForCausalLMEagle3\"],\"hidden_size\":256,"
     "\"intermediate_size\":512,\"num_hidden_layers\":1,\"num_attention_heads\":4,"
     "\"num_key_value_heads\":2,\"head_dim\":64,\"vocab_size\":512,\"draft_vocab_size\":128,"
     "\"eagle_aux_hidden_state_layer_ids\":[1,2,3],\"max_position_embeddings\":4096,"
     "\"rms_norm_eps\":1e-5,\"dtype\":\"bfloat16\",\"rope_theta\":10000}"},
    {"tiny-wide", /* heads for four devices */
     "{\"architectures\":[\"LlamaForCausalLM\"],\"hidden_size\":256,\"intermediate_size\":512,"
     "\"num_hidden_layers\":2,\"num_attention_heads\":8,\"num_key_value_heads\":4,\"head_dim\":32,"
     "\"vocab_size\":512,\"max_position_embeddings\":4096,\"rms_norm_eps\":1e-5,"
     "\"tie_word_embeddings\":true,\"dtype\":\"bfloat16\",\"rope_theta\":10000}"},
};

/* Formats of a shape's matrices but the head, as those quantize that make checkpoints of them. */
#define E4M3(...)                                                                                  \
    {                                                                                              \
        .elements = TENSOR_E4M3, .scale = "weight_scale", __VA_ARGS__                              \
    }
#define WHOLE(kind, middle, ...)                                                                   \
    {                                                                                              \
        .elements = kind, .rows = 1, .zero = middle, .scale = "weight_scale", __VA_ARGS__          \
    }

static const struct {
    const char *name;
    struct list_scheme scheme;
} formats[] = {
    {"fp8", E4M3(.rows = 1, .input = INPUT_BY_TOKEN)},
    {"fp8-blocks", E4M3(.rows = 128, .columns = 128, .input = INPUT_BY_GROUP, .group = 128)},
    {"fp8-tensor", E4M3(.input = INPUT_BY_TOKEN)},
    {"fp8-static", E4M3(.input = INPUT_BY_TENSOR)},
    {"fp8-weights", E4M3(.rows = 1)},
    {"u4", WHOLE(TENSOR_U4, 8, .columns = 128)},
    {"u4-zeros", WHOLE(TENSOR_U4, 8, .columns = 128, .zeros = "weight_zero_point")},
    {"u8", WHOLE(TENSOR_U8, 128, .columns = 0)},
    {"u8-zeros", WHOLE(TENSOR_U8, 128, .columns = 128, .zeros = "weight_zero_point")},
};

#define FORMAT_COUNT (sizeof(formats) / sizeof(formats[0]))
#define SHAPES (sizeof(shapes) / sizeof(shapes[0]))

bool synthetic_is_null(const char *model)
{
    return strcmp(model, "null") == 0;
}

bool synthetic_is(const char *model)
{
    return synthetic_is_null(model) || strncmp(model, PREFIX, strlen(PREFIX)) == 0;
}

const char *synthetic_name(size_t i)
{
    return i < SHAPES ? shapes[i].name : NULL;
}

const char *synthetic_format(size_t i)
{
    return i < FORMAT_COUNT ? formats[i].name : NULL;
}

static int refuse_format(const char *name, struct error *error)
{
    char known[NAMES_MAX] = "";
    size_t used = 0;
    for (size_t i = 0; i < FORMAT_COUNT && used < sizeof known; i++)
        used += (size_t)snprintf(known + used, sizeof(known) - used, "%s%s", i ? ", " : "",
                                 formats[i].name);
    return error_set(error, ERR_BAD_MODEL, "synthetic format \"%.64s\" is unknown (known: %s)",
                     name, known);
}

/* Every matrix is of one scheme; names are not asked for. */
static int format_set(const char *name, struct model_config *config, struct error *error)
{
    struct quantization *to = &config->quantization;
    for (size_t i = 0; i < FORMAT_COUNT; i++)
        if (!strcmp(name, formats[i].name)) {
            to->groups = 1;
            to->all = true;
            to->rule = NAMES_SEQUENCE; /* which leaves the head out */
            to->schemes[0] = formats[i].scheme;
            return 0;
        }
    return refuse_format(name, error);
}

static int refuse_name(const char *name, struct error *error)
{
    char known[NAMES_MAX] = "";
    size_t used = 0;
    for (size_t i = 0; i < SHAPES && used < sizeof known; i++)
        used += (size_t)snprintf(known + used, sizeof(known) - used, "%s%s", i ? ", " : "",
                                 shapes[i].name);
    return error_set(error, ERR_BAD_MODEL, "synthetic shape \"%.64s\" is unknown (known: %s)", name,
                     known);
}

/* In the order in which they were first numbered: a shape's weights stay what they were. */
static const char *const numbered[] = {
    "model.embed_tokens.weight", "model.norm.weight",       "lm_head.weight",
    "input_layernorm.weight",    "self_attn.q_proj.weight", "self_attn.k_proj.weight",
    "self_attn.v_proj.weight",   "self_attn.o_proj.weight", "self_attn.q_proj.bias",
    "self_attn.k_proj.bias",     "self_attn.v_proj.bias",   "self_attn.o_proj.bias",
    "self_attn.q_norm.weight",   "self_attn.k_norm.weight", "post_attention_layernorm.weight",
    "mlp.gate_proj.weight",      "mlp.up_proj.weight",      "mlp.down_proj.weight",
    "mlp.gate_proj.bias",        "mlp.up_proj.bias",        "mlp.down_proj.bias",
};

#define NUMBERED (uint32_t)(sizeof numbered / sizeof numbered[0])

/* Others by a hash of the name, above all of those. */
uint32_t synthetic_number(const char *tensor, int32_t layer)
{
    for (uint32_t i = 0; i < NUMBERED; i++) {
        if (!strcmp(tensor, numbered[i]))
            return i + (uint32_t)layer * NUMBERED;
    }
    uint32_t hash = 2166136261u;
    for (const char *at = tensor; *at; at++)
        hash = (hash ^ (unsigned char)*at) * 16777619u;
    return (hash + (uint32_t)layer * 40503u) | 1u << 31;
}

/* The model that computes nothing (gpu/kernels/step/null_rule.h). */
static void null_build(struct build *b, const struct model_config *config)
{
    (void)config;
    build_null(b, sizeof(uint64_t));
}

static const struct family null_family = {.type = "null", .build = null_build};

static void null_config(struct model_config *ret)
{
    *ret = (struct model_config)MODEL_CONFIG_EMPTY;
    ret->family = &null_family;
    ret->layers = 1;
    ret->hidden = NULL_HIDDEN;
    ret->vocab = NULL_VOCAB;
    ret->context_max = NULL_CONTEXT;
    ret->eos_count = 1;
    ret->eos_ids[0] = NULL_END;
}

int synthetic_config(const char *model, struct model_config *ret, struct error *error)
{
    assert(synthetic_is(model));
    if (!strcmp(model, PREFIX "null")) {
        null_config(ret);
        return 0;
    }
    const char *name = synthetic_is_null(model) ? "tiny" : model + strlen(PREFIX);
    size_t length = strcspn(name, ":");
    for (size_t i = 0; i < SHAPES; i++) {
        if (strlen(shapes[i].name) != length || memcmp(name, shapes[i].name, length) != 0)
            continue;
        struct model_config made;
        int rc =
            model_config_parse(shapes[i].config, strlen(shapes[i].config), NULL, 0, &made, error);
        if (rc == 0 && name[length])
            rc = format_set(name + length + 1, &made, error);
        if (rc == 0)
            *ret = made;
        return rc;
    }
    return refuse_name(name, error);
}
