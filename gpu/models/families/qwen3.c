/* Qwen3, the dense ones: each head of q and k is normed before it is rotated. */
#include "gpu/models/base/decoder.h"

#define HEAD_DIM 128 /* where head_dim is absent */

static const struct config_key keys[] = {
    {.name = "attention_bias", .kind = KEY_RULE}, {.name = "use_sliding_window", .kind = KEY_RULE},
    {.name = "sliding_window", .kind = KEY_RULE}, {.name = "layer_types", .kind = KEY_RULE},
    {.name = "mlp_bias", .kind = KEY_IGNORED},    {.name = NULL},
};

static int rules(const struct fields *fields, struct model_config *config)
{
    int rc = decoder_kv_heads(fields, true, config);
    if (rc == 0)
        rc = decoder_head_dim(fields, HEAD_DIM, config);
    if (rc == 0)
        rc = field_flag(fields, "attention_bias", &config->qkv_bias);
    if (rc == 0)
        rc = decoder_windows(fields, config);
    config->o_bias = config->qkv_bias;
    config->qk_norm = true;
    return rc;
}

const struct family family_qwen3 = {
    .type = "qwen3",
    .architecture = "Qwen3ForCausalLM",
    .classifier = "Qwen3ForSequenceClassification",
    .keys = keys,
    .rules = rules,
    .build = decoder_build,
};
