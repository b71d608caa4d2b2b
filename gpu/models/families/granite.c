/* Granite 3, the dense ones: Llama with multipliers of the embedding, of what is added to the
 * residual, of attention's products, and a divisor of the logits. */
#include "gpu/models/families/granite.h"

static const struct config_key keys[] = {
    GRANITE_KEYS,
    {.name = "mlp_bias", .kind = KEY_FLAG, .at = CONFIG_AT(mlp_bias)},
    {.name = "sliding_window", .kind = KEY_IGNORED},
    {.name = "use_sliding_window", .kind = KEY_IGNORED},
    {.name = "layer_types", .kind = KEY_IGNORED},
    {.name = NULL},
};

int granite_rules(const struct fields *fields, struct model_config *config)
{
    double multiplier = 1; /* absent, it is not that of the heads' size */
    int rc = decoder_kv_heads(fields, false, config);
    if (rc == 0)
        rc = decoder_head_dim(fields, 0, config);
    if (rc == 0)
        rc = field_flag(fields, "attention_bias", &config->qkv_bias);
    if (rc == 0)
        rc = field_number(fields, "attention_multiplier", GRANITE_MULTIPLIER_MIN,
                          GRANITE_MULTIPLIER_MAX, &multiplier);
    config->o_bias = config->qkv_bias;
    config->attention_scale = (float)multiplier;
    return rc;
}

const struct family family_granite = {
    .type = "granite",
    .architecture = "GraniteForCausalLM",
    .keys = keys,
    .rules = granite_rules,
    .build = decoder_build,
};
