/* Mixtral: Mistral with experts in place of the MLP; a row's weights add up to 1. */
#include "gpu/models/base/experts.h"

static const struct config_key keys[] = {
    {.name = "sliding_window", .kind = KEY_RULE},
    {.name = "num_local_experts", .kind = KEY_RULE},
    {.name = "num_experts_per_tok", .kind = KEY_RULE},
    {.name = "attention_bias", .kind = KEY_IGNORED},
    {.name = "mlp_bias", .kind = KEY_IGNORED},
    {.name = NULL},
};

static int rules(const struct fields *fields, struct model_config *config)
{
    uint32_t window = 0;
    int rc = decoder_kv_heads(fields, true, config);
    if (rc == 0)
        rc = decoder_head_dim(fields, 0, config);
    if (rc == 0)
        rc = field_size(fields, "sliding_window", MODEL_CONTEXT_MAX, &window);
    if (rc == 0)
        rc = experts_read(fields, "num_local_experts", config);
    if (!field_get(fields, "rms_norm_eps"))
        config->norm_eps = 1e-5f;
    for (uint32_t layer = 0; layer < config->layers; layer++)
        config->window[layer] = window;
    config->experts_intermediate = config->intermediate;
    config->experts_normalised = true;
    return rc;
}

static void build(struct build *b, const struct model_config *config)
{
    static const struct experts_names experts = {.router = "block_sparse_moe.gate",
                                                 .gate = "block_sparse_moe.experts.%u.w1",
                                                 .up = "block_sparse_moe.experts.%u.w3",
                                                 .down = "block_sparse_moe.experts.%u.w2"};
    struct decoder_names names = experts_decoder;
    names.experts = &experts;
    decoder_build_of(b, config, &names);
}

const struct family family_mixtral = {
    .type = "mixtral",
    .architecture = "MixtralForCausalLM",
    .keys = keys,
    .rules = rules,
    .build = build,
};
