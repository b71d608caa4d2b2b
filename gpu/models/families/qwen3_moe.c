/* Qwen3's mixtures of experts; layers may be dense, and a window is all layers' or none's. */
#include "gpu/models/base/experts.h"

#define DEFAULT_WINDOW 4096

static const struct config_key keys[] = {
    {.name = "attention_bias", .kind = KEY_RULE},
    {.name = "use_sliding_window", .kind = KEY_RULE},
    {.name = "sliding_window", .kind = KEY_RULE},
    {.name = "decoder_sparse_step", .kind = KEY_RULE},
    {.name = "mlp_only_layers", .kind = KEY_RULE},
    {.name = "num_experts", .kind = KEY_RULE},
    {.name = "num_experts_per_tok", .kind = KEY_RULE},
    {.name = "moe_intermediate_size",
     .kind = KEY_SIZE,
     .at = CONFIG_AT(experts_intermediate),
     .max = MODEL_INTERMEDIATE_MAX,
     .required = true},
    {.name = "norm_topk_prob", .kind = KEY_FLAG, .at = CONFIG_AT(experts_normalised)},
    {.name = "mlp_bias", .kind = KEY_IGNORED},
    {.name = NULL},
};

static int window_read(const struct fields *fields, struct model_config *config)
{
    bool use = false;
    uint32_t window = json_get(fields->object, "sliding_window") ? 0 : DEFAULT_WINDOW;
    int rc = field_flag(fields, "use_sliding_window", &use);
    if (rc == 0 && use)
        rc = field_size(fields, "sliding_window", MODEL_CONTEXT_MAX, &window);
    for (uint32_t layer = 0; layer < config->layers; layer++)
        config->window[layer] = use ? window : 0;
    return rc;
}

static int rules(const struct fields *fields, struct model_config *config)
{
    int rc = decoder_kv_heads(fields, true, config);
    if (rc == 0)
        rc = decoder_head_dim(fields, 0, config);
    if (rc == 0)
        rc = field_flag(fields, "attention_bias", &config->qkv_bias);
    if (rc == 0)
        rc = window_read(fields, config);
    if (rc == 0)
        rc = experts_read(fields, "num_experts", config);
    if (rc == 0)
        rc = experts_dense_read(fields, config);
    config->o_bias = config->qkv_bias;
    config->qk_norm = true;
    return rc;
}

static void build(struct build *b, const struct model_config *config)
{
    decoder_build_of(b, config, &experts_decoder);
}

const struct family family_qwen3_moe = {
    .type = "qwen3_moe",
    .architecture = "Qwen3MoeForCausalLM",
    .keys = keys,
    .rules = rules,
    .build = build,
};
