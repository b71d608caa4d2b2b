/* DeepSeekMoE, the first one (deepseek-moe-16b), whose attention is Llama's: experts whose weights
 * are shares of the softmax over all, normalised or not, and MLPs that all rows go through, which
 * are one of their sizes together. The first layers are dense, and with moe_layer_freq those that
 * it does not divide. */
#include <string.h>

#include "gpu/models/base/experts.h"

static const struct config_key keys[] = {
    {.name = "attention_bias", .kind = KEY_FLAG, .at = CONFIG_AT(qkv_bias)},
    {.name = "n_routed_experts", .kind = KEY_RULE},
    {.name = "num_experts_per_tok", .kind = KEY_RULE},
    {.name = "n_shared_experts", .kind = KEY_RULE},
    {.name = "first_k_dense_replace", .kind = KEY_RULE},
    {.name = "moe_layer_freq", .kind = KEY_RULE},
    {.name = "scoring_func", .kind = KEY_RULE},
    {.name = "moe_intermediate_size",
     .kind = KEY_SIZE,
     .at = CONFIG_AT(experts_intermediate),
     .max = MODEL_INTERMEDIATE_MAX,
     .required = true},
    {.name = "norm_topk_prob", .kind = KEY_FLAG, .at = CONFIG_AT(experts_normalised)},
    {.name = NULL},
};

static int dense_read(const struct fields *fields, struct model_config *config)
{
    int64_t dense = 0;
    uint32_t every = 1;
    int rc = field_integer(fields, "first_k_dense_replace", 0, MODEL_LAYERS_MAX, &dense);
    if (rc == 0)
        rc = field_size(fields, "moe_layer_freq", MODEL_LAYERS_MAX, &every);
    for (uint32_t i = 0; i < config->layers; i++)
        config->dense[i] = i < dense || i % every != 0;
    return rc;
}

static int shared_read(const struct fields *fields, struct model_config *config)
{
    int64_t shared = 0; /* of the experts' size each; absent, there is none */
    int rc = field_integer(fields, "n_shared_experts", 0, MODEL_INTERMEDIATE_MAX, &shared);
    if (rc == 0 && (uint64_t)shared * config->experts_intermediate > MODEL_INTERMEDIATE_MAX)
        return field_refuse(fields, "n_shared_experts", field_get(fields, "n_shared_experts"),
                            "supported of that moe_intermediate_size");
    config->shared_intermediate = (uint32_t)shared * config->experts_intermediate;
    return rc;
}

static int rules(const struct fields *fields, struct model_config *config)
{
    const char *score = "softmax";
    int rc = decoder_kv_heads(fields, false, config);
    if (rc == 0)
        rc = decoder_head_dim(fields, 0, config);
    if (rc == 0)
        rc = field_string(fields, "scoring_func", &score);
    if (rc == 0 && strcmp(score, "softmax") != 0)
        return field_refuse(fields, "scoring_func", field_get(fields, "scoring_func"),
                            "supported for deepseek (softmax is)");
    if (rc == 0)
        rc = experts_read(fields, "n_routed_experts", config);
    if (rc == 0)
        rc = dense_read(fields, config);
    config->o_bias = config->qkv_bias;
    if (config->experts_top == 1) /* there is nothing to share out */
        config->experts_normalised = false;
    return rc ? rc : shared_read(fields, config);
}

static void build(struct build *b, const struct model_config *config)
{
    static const struct experts_names experts = {.router = "mlp.gate",
                                                 .gate = "mlp.experts.%u.gate_proj",
                                                 .up = "mlp.experts.%u.up_proj",
                                                 .down = "mlp.experts.%u.down_proj",
                                                 .shared = "mlp.shared_experts"};
    struct decoder_names names = experts_decoder;
    names.experts = &experts;
    decoder_build_of(b, config, &names);
}

const struct family family_deepseek = {
    .type = "deepseek",
    .architecture = "DeepseekForCausalLM",
    .keys = keys,
    .rules = rules,
    .build = build,
};
