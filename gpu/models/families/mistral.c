/* Mistral: one window for all layers, 4096 tokens where it is absent, none where it is null. */
#include "gpu/models/base/decoder.h"

#define DEFAULT_WINDOW 4096

static const struct config_key keys[] = {
    {.name = "sliding_window", .kind = KEY_RULE},
    {.name = "attention_bias", .kind = KEY_IGNORED},
    {.name = "mlp_bias", .kind = KEY_IGNORED},
    {.name = "use_sliding_window", .kind = KEY_IGNORED},
    {.name = "layer_types", .kind = KEY_IGNORED},
    {.name = NULL},
};

static int rules(const struct fields *fields, struct model_config *config)
{
    uint32_t window = json_get(fields->object, "sliding_window") ? 0 : DEFAULT_WINDOW;
    int rc = decoder_kv_heads(fields, true, config);
    if (rc == 0)
        rc = decoder_head_dim(fields, 0, config);
    if (rc == 0)
        rc = field_size(fields, "sliding_window", MODEL_CONTEXT_MAX, &window);
    for (uint32_t layer = 0; layer < config->layers; layer++)
        config->window[layer] = window;
    return rc;
}

const struct family family_mistral = {
    .type = "mistral",
    .architecture = "MistralForCausalLM",
    .classifier = "MistralForSequenceClassification",
    .keys = keys,
    .rules = rules,
    .build = decoder_build,
};
