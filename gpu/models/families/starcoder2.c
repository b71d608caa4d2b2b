/* StarCoder2: LayerNorms in place of RMSNorms, an MLP of one product, GELU and another product, and
 * biases everywhere. All layers have one window, where there is one. */
#include "gpu/models/base/decoder.h"

static const struct config_key keys[] = {
    {.name = "use_bias", .kind = KEY_RULE},
    {.name = "norm_epsilon", .kind = KEY_RULE},
    {.name = "sliding_window", .kind = KEY_RULE},
    {.name = "attention_bias", .kind = KEY_IGNORED},
    {.name = "mlp_bias", .kind = KEY_IGNORED},
    {.name = "use_sliding_window", .kind = KEY_IGNORED},
    {.name = "layer_types", .kind = KEY_IGNORED},
    {.name = NULL},
};

static int rules(const struct fields *fields, struct model_config *config)
{
    bool biased = true;
    uint32_t window = 0;
    double eps = 1e-5;
    int rc =
        field_require(fields, "num_key_value_heads"); /* the class has two where none is said */
    if (rc == 0)
        rc = decoder_kv_heads(fields, true, config);
    if (rc == 0)
        rc = decoder_head_dim(fields, 0, config);
    if (rc == 0)
        rc = field_flag(fields, "use_bias", &biased);
    if (rc == 0)
        rc = field_size(fields, "sliding_window", MODEL_CONTEXT_MAX, &window);
    if (rc == 0)
        rc = field_number(fields, "norm_epsilon", 1e-12, 1, &eps);
    for (uint32_t layer = 0; layer < config->layers; layer++)
        config->window[layer] = window;
    config->qkv_bias = config->o_bias = config->mlp_bias = biased;
    config->norm_eps = (float)eps;
    config->tied = config->tied || !field_get(fields, "tie_word_embeddings");
    return rc;
}

static void attention(struct build *b, const struct model_config *c, uint32_t layer)
{
    struct build_attention attention = {.window = c->window[layer],
                                        .heads = c->heads,
                                        .kv_heads = c->kv_heads,
                                        .head_dim = c->head_dim,
                                        .scale = c->attention_scale};
    value_id x = build_norm(b, b->list.residual, "input_layernorm", NORM_LAYER, c->norm_eps);
    value_id qkv = build_matmul(b, x, SPLIT_ROWS, c->qkv_bias,
                                PARTS({"self_attn.q_proj", c->heads * c->head_dim},
                                      {"self_attn.k_proj", c->kv_heads * c->head_dim},
                                      {"self_attn.v_proj", c->kv_heads * c->head_dim}));
    value_id q = build_part(b, qkv, 0), k = build_part(b, qkv, 1), v = build_part(b, qkv, 2);
    build_rope(b, q, k, 0, c->head_dim);
    value_id a = build_attention(b, q, k, v, &attention);
    value_id o =
        build_matmul(b, a, SPLIT_COLUMNS, c->o_bias, PARTS({"self_attn.o_proj", c->hidden}));
    build_add(b, o, 1);
}

static void mlp(struct build *b, const struct model_config *c)
{
    value_id x =
        build_norm(b, b->list.residual, "post_attention_layernorm", NORM_LAYER, c->norm_eps);
    value_id up = build_matmul(b, x, SPLIT_ROWS, c->mlp_bias, PARTS({"mlp.c_fc", c->intermediate}));
    value_id y = build_activation(b, up, c->activation, false);
    value_id down =
        build_matmul(b, y, SPLIT_COLUMNS, c->mlp_bias, PARTS({"mlp.c_proj", c->hidden}));
    build_add(b, down, 1);
}

static void build(struct build *b, const struct model_config *config)
{
    weight_id embed = build_embed(b, "model.embed_tokens", 1);
    build_rope_table(b, &config->rope);
    for (uint32_t i = 0; i < config->layers; i++) {
        build_layer(b, i);
        attention(b, config, i);
        mlp(b, config);
    }
    struct build_head head = {.norm = "model.norm",
                              .kind = NORM_LAYER,
                              .eps = config->norm_eps,
                              .head = config->tied ? NULL : "lm_head",
                              .embed = embed,
                              .scale = 1};
    build_head(b, &head);
}

const struct family family_starcoder2 = {
    .type = "starcoder2",
    .architecture = "Starcoder2ForCausalLM",
    .keys = keys,
    .activation = ACTIVATION_GELU_TANH,
    .rules = rules,
    .build = build,
};
