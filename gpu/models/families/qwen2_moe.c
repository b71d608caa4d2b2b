/* Qwen1.5-MoE and Qwen2-MoE: experts, and one MLP that all rows go through, weighted by a gate of
 * its own. q, k and v have biases; layers may be dense. */
#include "gpu/models/base/experts.h"

static const struct config_key keys[] = {
    {.name = "qkv_bias", .kind = KEY_RULE},
    {.name = "use_sliding_window", .kind = KEY_RULE},
    {.name = "sliding_window", .kind = KEY_RULE},
    {.name = "layer_types", .kind = KEY_RULE},
    {.name = "decoder_sparse_step", .kind = KEY_RULE},
    {.name = "mlp_only_layers", .kind = KEY_RULE},
    {.name = "num_experts", .kind = KEY_RULE},
    {.name = "num_experts_per_tok", .kind = KEY_RULE},
    {.name = "moe_intermediate_size",
     .kind = KEY_SIZE,
     .at = CONFIG_AT(experts_intermediate),
     .max = MODEL_INTERMEDIATE_MAX,
     .required = true},
    {.name = "shared_expert_intermediate_size",
     .kind = KEY_SIZE,
     .at = CONFIG_AT(shared_intermediate),
     .max = MODEL_INTERMEDIATE_MAX,
     .required = true},
    {.name = "norm_topk_prob", .kind = KEY_FLAG, .at = CONFIG_AT(experts_normalised)},
    {.name = "attention_bias", .kind = KEY_IGNORED},
    {.name = "mlp_bias", .kind = KEY_IGNORED},
    {.name = NULL},
};

/* Unsaid, the class gives every second layer a window, which no published model has: it must be
 * said by layers. */
static int windows_read(const struct fields *fields, struct model_config *config)
{
    bool use = false;
    int rc = field_flag(fields, "use_sliding_window", &use);
    if (rc == 0 && use && !field_get(fields, "layer_types"))
        return field_refuse(fields, "use_sliding_window", field_get(fields, "use_sliding_window"),
                            "supported without layer_types");
    return rc ? rc : decoder_windows(fields, config);
}

static int rules(const struct fields *fields, struct model_config *config)
{
    int rc = decoder_kv_heads(fields, true, config);
    if (rc == 0)
        rc = decoder_head_dim(fields, 0, config);
    config->qkv_bias = true;
    if (rc == 0)
        rc = field_flag(fields, "qkv_bias", &config->qkv_bias);
    if (rc == 0)
        rc = windows_read(fields, config);
    if (rc == 0)
        rc = experts_read(fields, "num_experts", config);
    return rc ? rc : experts_dense_read(fields, config);
}

static void build(struct build *b, const struct model_config *config)
{
    decoder_build_of(b, config, &experts_decoder);
}

const struct family family_qwen2_moe = {
    .type = "qwen2_moe",
    .architecture = "Qwen2MoeForCausalLM",
    .keys = keys,
    .rules = rules,
    .build = build,
};
