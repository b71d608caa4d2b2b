/* OLMo 2: no norm before attention and the MLP, which read the residual as it is, but one behind
 * each; and q and k are normed over their whole widths before they are rotated. */
#include "gpu/models/base/decoder.h"

static const struct config_key keys[] = {
    {.name = "attention_bias", .kind = KEY_FLAG, .at = CONFIG_AT(qkv_bias)},
    {.name = NULL},
};

static int rules(const struct fields *fields, struct model_config *config)
{
    int rc = decoder_kv_heads(fields, false, config);
    if (rc == 0)
        rc = decoder_head_dim(fields, 0, config);
    if (!field_get(fields, "rms_norm_eps"))
        config->norm_eps = 1e-5f;
    config->o_bias = config->qkv_bias;
    return rc;
}

static void attention(struct build *b, const struct model_config *c)
{
    const struct build_part qkv_parts[LIST_PARTS_MAX] = {
        {"self_attn.q_proj", c->heads * c->head_dim},
        {"self_attn.k_proj", c->kv_heads * c->head_dim},
        {"self_attn.v_proj", c->kv_heads * c->head_dim}};
    struct build_attention attention = {.heads = c->heads,
                                        .kv_heads = c->kv_heads,
                                        .head_dim = c->head_dim,
                                        .scale = c->attention_scale};
    value_id qkv = build_matmul(b, build_round(b), SPLIT_ROWS, c->qkv_bias, qkv_parts);
    value_id q = build_part(b, qkv, 0), k = build_part(b, qkv, 1), v = build_part(b, qkv, 2);
    build_wide_norm(b, q, k, "self_attn.q_norm", "self_attn.k_norm", NORM_RMS, c->norm_eps);
    build_rope(b, q, k, 0, c->head_dim);
    value_id a = build_attention(b, q, k, v, &attention);
    value_id o =
        build_matmul(b, a, SPLIT_COLUMNS, c->o_bias, PARTS({"self_attn.o_proj", c->hidden}));
    build_norm(b, o, "post_attention_layernorm", NORM_RMS, c->norm_eps);
    build_add(b, o, 1);
}

static void mlp(struct build *b, const struct model_config *c)
{
    value_id up =
        build_matmul(b, build_round(b), SPLIT_ROWS, false,
                     PARTS({"mlp.gate_proj", c->intermediate}, {"mlp.up_proj", c->intermediate}));
    value_id y = build_activation(b, up, c->activation, true);
    value_id down = build_matmul(b, y, SPLIT_COLUMNS, false, PARTS({"mlp.down_proj", c->hidden}));
    build_norm(b, down, "post_feedforward_layernorm", NORM_RMS, c->norm_eps);
    build_add(b, down, 1);
}

static void build(struct build *b, const struct model_config *config)
{
    weight_id embed = build_embed(b, "model.embed_tokens", 1);
    build_rope_table(b, &config->rope);
    for (uint32_t i = 0; i < config->layers; i++) {
        build_layer(b, i);
        attention(b, config);
        mlp(b, config);
    }
    struct build_head head = {.norm = "model.norm",
                              .eps = config->norm_eps,
                              .head = config->tied ? NULL : "lm_head",
                              .embed = embed,
                              .scale = 1};
    build_head(b, &head);
}

const struct family family_olmo2 = {
    .type = "olmo2",
    .architecture = "Olmo2ForCausalLM",
    .keys = keys,
    .rules = rules,
    .build = build,
};
