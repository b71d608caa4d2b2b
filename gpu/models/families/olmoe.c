/* OLMoE: experts in every layer; q and k are normed over their whole widths. */
#include "gpu/models/base/experts.h"

static const struct config_key keys[] = {
    {.name = "attention_bias", .kind = KEY_FLAG, .at = CONFIG_AT(qkv_bias)},
    {.name = "num_experts", .kind = KEY_RULE},
    {.name = "num_experts_per_tok", .kind = KEY_RULE},
    {.name = "norm_topk_prob", .kind = KEY_FLAG, .at = CONFIG_AT(experts_normalised)},
    {.name = NULL},
};

static int rules(const struct fields *fields, struct model_config *config)
{
    int rc = decoder_kv_heads(fields, false, config);
    if (rc == 0)
        rc = decoder_head_dim(fields, 0, config);
    if (rc)
        return rc;
    if (config->head_dim * config->heads != config->hidden)
        return field_refuse(
            fields, "head_dim", field_get(fields, "head_dim"),
            "hidden_size over num_attention_heads, as the norms of q and k have it");
    if (!field_get(fields, "rms_norm_eps"))
        config->norm_eps = 1e-5f;
    config->o_bias = config->qkv_bias;
    config->qk_norm_wide = true;
    config->experts_intermediate = config->intermediate;
    return experts_read(fields, "num_experts", config);
}

static void build(struct build *b, const struct model_config *config)
{
    decoder_build_of(b, config, &experts_decoder);
}

const struct family family_olmoe = {
    .type = "olmoe",
    .architecture = "OlmoeForCausalLM",
    .keys = keys,
    .rules = rules,
    .build = build,
};
