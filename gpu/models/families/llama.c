/* Llama 2 and 3, and what is published as such. */
#include "gpu/models/base/decoder.h"

static const struct config_key keys[] = {
    {.name = "attention_bias", .kind = KEY_RULE},
    {.name = "mlp_bias", .kind = KEY_FLAG, .at = CONFIG_AT(mlp_bias)},
    {.name = "sliding_window", .kind = KEY_IGNORED},
    {.name = "use_sliding_window", .kind = KEY_IGNORED},
    {.name = "layer_types", .kind = KEY_IGNORED},
    {.name = NULL},
};

static int rules(const struct fields *fields, struct model_config *config)
{
    int rc = decoder_kv_heads(fields, false, config);
    if (rc == 0)
        rc = decoder_head_dim(fields, 0, config);
    if (rc == 0)
        rc = field_flag(fields, "attention_bias", &config->qkv_bias);
    config->o_bias = config->qkv_bias;
    return rc;
}

const struct family family_llama = {
    .type = "llama",
    .architecture = "LlamaForCausalLM",
    .classifier = "LlamaForSequenceClassification",
    .keys = keys,
    .rules = rules,
    .build = decoder_build,
};
