/* GLM, the dense ones of GLM-4's first release: Llama of which half of each head is rotated, by
 * pairs of neighbours, and gate and up are one tensor. */
#include "gpu/models/families/glm.h"

#define HEAD_DIM 128       /* where head_dim is absent */
#define ROTARY_FACTOR 0.5f /* likewise partial_rotary_factor */

const struct config_key glm_keys[] = {
    {.name = "attention_bias", .kind = KEY_RULE},
    {.name = NULL},
};

int glm_rules(const struct fields *fields, struct model_config *config)
{
    int rc = decoder_kv_heads(fields, true, config);
    if (rc == 0)
        rc = decoder_head_dim(fields, HEAD_DIM, config);
    config->qkv_bias = true; /* o has none */
    if (rc == 0)
        rc = field_flag(fields, "attention_bias", &config->qkv_bias);
    if (!field_get(fields, "rms_norm_eps"))
        config->norm_eps = 1.5625e-7f;
    config->rotary_factor = ROTARY_FACTOR;
    config->adjacent = true;
    return rc;
}

static void build(struct build *b, const struct model_config *config)
{
    static const struct decoder_names names = {.q = "self_attn.q_proj",
                                               .k = "self_attn.k_proj",
                                               .v = "self_attn.v_proj",
                                               .gate = "mlp.gate_up_proj",
                                               .up = "mlp.gate_up_proj"};
    decoder_build_of(b, config, &names);
}

const struct family family_glm = {
    .type = "glm",
    .architecture = "GlmForCausalLM",
    .keys = glm_keys,
    .rules = glm_rules,
    .build = build,
};
