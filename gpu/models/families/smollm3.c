/* SmolLM3: Llama, of which every fourth layer, or those that no_rope_layers has a 0 for, has no
 * rope. Windows are refused: none that is published has them. */
#include "gpu/models/base/decoder.h"

#define INTERVAL 4

static const struct config_key keys[] = {
    {.name = "no_rope_layers", .kind = KEY_RULE},
    {.name = "attention_bias", .kind = KEY_RULE},
    {.name = "mlp_bias", .kind = KEY_FLAG, .at = CONFIG_AT(mlp_bias)},
    {.name = "sliding_window", .kind = KEY_IGNORED}, /* without use_sliding_window */
    {.name = "layer_types", .kind = KEY_IGNORED},    /* likewise */
    {.name = NULL},
};

static int no_rope_list(const struct fields *fields, const json *list, struct model_config *config)
{
    uint32_t layer = 0;
    if (!json_is_array(list) || json_count(list) != config->layers)
        return field_refuse(fields, "no_rope_layers", list, "a list of num_hidden_layers numbers");
    for (const json *one = json_child(list); one; one = json_next(one), layer++) {
        if (!json_is_number(one) || (json_number(one) != 0 && json_number(one) != 1))
            return field_refuse(fields, "no_rope_layers", one, "0 or 1");
        config->no_rope[layer] = json_number(one) == 0;
    }
    return 0;
}

static int no_rope_read(const struct fields *fields, struct model_config *config)
{
    const json *list = field_get(fields, "no_rope_layers");
    int64_t interval = INTERVAL;
    if (list)
        return no_rope_list(fields, list, config);
    int rc = field_integer(fields, "no_rope_layer_interval", 1, MODEL_LAYERS_MAX, &interval);
    for (uint32_t layer = 0; layer < config->layers; layer++)
        config->no_rope[layer] = (layer + 1) % interval == 0;
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
        rc = no_rope_read(fields, config);
    /* The class has another default of theta than all others. */
    if (rc == 0 && !field_get(fields, "rope_theta") && !field_get(fields, "rope_parameters"))
        rc = field_require(fields, "rope_theta");
    config->o_bias = config->qkv_bias;
    config->tied = config->tied || !field_get(fields, "tie_word_embeddings");
    return rc;
}

const struct family family_smollm3 = {
    .type = "smollm3",
    .architecture = "SmolLM3ForCausalLM",
    .keys = keys,
    .rules = rules,
    .build = decoder_build,
};
