/* Phi-3 and Phi-4: q, k and v are one tensor, as are gate and up, all layers have one window, where
 * there is one, and of each head a part may be rotated (Phi-4-mini). */
#include <string.h>

#include "gpu/models/base/decoder.h"

static const struct config_key keys[] = {
    {.name = "sliding_window", .kind = KEY_RULE},
    {.name = "attention_bias", .kind = KEY_IGNORED},
    {.name = "mlp_bias", .kind = KEY_IGNORED},
    {.name = "use_sliding_window", .kind = KEY_IGNORED},
    {.name = "layer_types", .kind = KEY_IGNORED},
    {.name = NULL},
};

/* The class has longrope, which its files also call "su" and "yarn", and no other scaling. Its
 * original length is 4096 where no file says it; who publishes longrope says it, at the top. */
static int longrope(const struct fields *fields, struct model_config *config)
{
    const char *name = field_get(fields, "rope_scaling") ? "rope_scaling" : "rope_parameters";
    struct fields rope = {field_get(fields, name), fields->file, name, fields->error};
    config->longrope_by_names = true;
    config->rotary_factor = 1;
    if (!rope.object || !json_is_object(rope.object))
        return 0;
    const char *key = field_get(&rope, "rope_type") ? "rope_type" : "type";
    const json *kind = field_get(&rope, key);
    if (!json_is_string(kind) || !strcmp(json_string(kind), "default"))
        return 0;
    if (!strcmp(json_string(kind), "linear") || !strcmp(json_string(kind), "llama3"))
        return field_refuse(&rope, key, kind, "supported for phi3 (default and longrope are)");
    return field_require(fields, "original_max_position_embeddings");
}

static int rules(const struct fields *fields, struct model_config *config)
{
    uint32_t window = 0;
    int rc = decoder_kv_heads(fields, false, config);
    if (rc == 0)
        rc = decoder_head_dim(fields, 0, config);
    if (rc == 0)
        rc = field_size(fields, "sliding_window", MODEL_CONTEXT_MAX, &window);
    if (rc == 0)
        rc = longrope(fields, config);
    for (uint32_t layer = 0; layer < config->layers; layer++)
        config->window[layer] = window;
    if (!field_get(fields, "rms_norm_eps"))
        config->norm_eps = 1e-5f;
    return rc;
}

static void build(struct build *b, const struct model_config *config)
{
    static const struct decoder_names names = {.q = "self_attn.qkv_proj",
                                               .k = "self_attn.qkv_proj",
                                               .v = "self_attn.qkv_proj",
                                               .gate = "mlp.gate_up_proj",
                                               .up = "mlp.gate_up_proj"};
    decoder_build_of(b, config, &names);
}

const struct family family_phi3 = {
    .type = "phi3",
    .architecture = "Phi3ForCausalLM",
    .keys = keys,
    .rules = rules,
    .build = build,
};
