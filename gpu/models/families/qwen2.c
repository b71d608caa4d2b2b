/* Qwen2 and Qwen2.5: q, k and v have biases, and the last layers may have windows. */
#include "gpu/models/base/decoder.h"

static const struct config_key keys[] = {
    {.name = "use_sliding_window", .kind = KEY_RULE},
    {.name = "sliding_window", .kind = KEY_RULE},
    {.name = "layer_types", .kind = KEY_RULE},
    {.name = "attention_bias", .kind = KEY_IGNORED},
    {.name = "mlp_bias", .kind = KEY_IGNORED},
    {.name = NULL},
};

static int rules(const struct fields *fields, struct model_config *config)
{
    int rc = decoder_kv_heads(fields, true, config);
    if (rc == 0)
        rc = decoder_head_dim(fields, 0, config);
    if (rc == 0)
        rc = decoder_windows(fields, config);
    config->qkv_bias = true;
    return rc;
}

const struct family family_qwen2 = {
    .type = "qwen2",
    .architecture = "Qwen2ForCausalLM",
    .classifier = "Qwen2ForSequenceClassification",
    .keys = keys,
    .rules = rules,
    .build = decoder_build,
};
