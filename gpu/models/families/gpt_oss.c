/* gpt-oss: every second layer sees a window; each head has a sink; all products have biases.
 * Experts stand in tensors of all, in MXFP4 or as they are, and clamp what they multiply. */
#include "gpu/models/base/experts.h"

#define WINDOW 128
#define HEAD_DIM 64
#define ALPHA 1.702f
#define LIMIT 7.0f
#define CLAMP_MAX 1e6

static const struct config_key keys[] = {
    {.name = "attention_bias", .kind = KEY_RULE},
    {.name = "sliding_window", .kind = KEY_RULE},
    {.name = "layer_types", .kind = KEY_RULE},
    {.name = "num_local_experts", .kind = KEY_RULE},
    {.name = "num_experts_per_tok", .kind = KEY_RULE},
    {.name = "swiglu_alpha",
     .kind = KEY_NUMBER,
     .at = CONFIG_AT(swiglu_alpha),
     .min = 1e-3,
     .max = CLAMP_MAX},
    {.name = "swiglu_limit",
     .kind = KEY_NUMBER,
     .at = CONFIG_AT(swiglu_limit),
     .min = 1e-3,
     .max = CLAMP_MAX},
    {.name = NULL},
};

static void defaults(struct model_config *config)
{
    config->swiglu_alpha = ALPHA;
    config->swiglu_limit = LIMIT;
    config->norm_eps = 1e-5f;
}

/* Absent or null, the first layer has a window, and every second one from there. */
static int windows(const struct fields *fields, struct model_config *config)
{
    uint32_t window = WINDOW;
    if (json_get(fields->object, "sliding_window")) /* null is no default */
        window = 0;
    int rc = field_size(fields, "sliding_window", MODEL_CONTEXT_MAX, &window);
    if (rc == 0 && !window)
        rc = field_require(fields, "sliding_window");
    if (rc || field_get(fields, "layer_types"))
        return rc ? rc : decoder_layer_types(fields, window, config);
    for (uint32_t layer = 0; layer < config->layers; layer++)
        config->window[layer] = layer % 2 ? 0 : window;
    return 0;
}

static int rules(const struct fields *fields, struct model_config *config)
{
    bool bias = true;
    int rc = decoder_kv_heads(fields, false, config);
    if (rc == 0)
        rc = decoder_head_dim(fields, HEAD_DIM, config);
    if (rc == 0)
        rc = field_flag(fields, "attention_bias", &bias);
    if (rc == 0)
        rc = windows(fields, config);
    if (rc == 0)
        rc = experts_read(fields, "num_local_experts", config);
    if (rc == 0 && config->activation != ACTIVATION_SILU)
        rc = field_refuse(fields, "hidden_act", field_get(fields, "hidden_act"),
                          "supported for gpt_oss (silu is)");
    config->qkv_bias = config->o_bias = bias;
    config->experts_intermediate = config->intermediate;
    return rc;
}

/* The class has parameters of its own where config.json has none: files say them. */
static int rope(const struct fields *fields, struct model_config *config)
{
    const char *key = field_get(fields, "rope_parameters") ? "rope_parameters" : "rope_scaling";
    struct fields inner = {field_get(fields, key), fields->file, key, fields->error};
    int rc = field_require(fields, key);
    if (rc == 0 && !(json_is_object(inner.object) && field_get(&inner, "rope_theta")))
        rc = field_require(fields, "rope_theta");
    return rc ? rc : rope_read(fields, config);
}

static void attention(struct build *b, const struct model_config *c, uint32_t layer)
{
    struct build_attention attention = {.window = c->window[layer],
                                        .heads = c->heads,
                                        .kv_heads = c->kv_heads,
                                        .head_dim = c->head_dim,
                                        .scale = c->attention_scale,
                                        .sinks = "self_attn.sinks"};
    struct head_order order = decoder_order(c);
    value_id x = build_norm(b, b->list.residual, "input_layernorm", NORM_RMS, c->norm_eps);
    value_id qkv = build_matmul(b, x, SPLIT_ROWS, c->qkv_bias,
                                PARTS({"self_attn.q_proj", c->heads * c->head_dim, order},
                                      {"self_attn.k_proj", c->kv_heads * c->head_dim, order},
                                      {"self_attn.v_proj", c->kv_heads * c->head_dim}));
    value_id q = build_part(b, qkv, 0), k = build_part(b, qkv, 1), v = build_part(b, qkv, 2);
    build_rope(b, q, k, 0, c->head_dim);
    value_id a = build_attention(b, q, k, v, &attention);
    build_add(
        b, build_matmul(b, a, SPLIT_COLUMNS, c->o_bias, PARTS({"self_attn.o_proj", c->hidden})), 1);
}

/* The softmax of those taken is that of all, normalised. */
static void mixture(struct build *b, const struct model_config *c)
{
    const struct build_routing routing = {.router = "mlp.router",
                                          .bias = ".bias",
                                          .added = true,
                                          .count = c->experts,
                                          .top = c->experts_top,
                                          .scale = 1,
                                          .score = ROUTE_SOFTMAX,
                                          .normalised = true};
    const struct build_gate gate = {
        .alpha = c->swiglu_alpha, .limit = c->swiglu_limit, .bias = true};
    value_id x = build_norm(b, b->list.residual, "post_attention_layernorm", NORM_RMS, c->norm_eps);
    struct build_routes routes = build_route(b, x, &routing);
    value_id y = build_experts_up(b, x, &routes, &gate,
                                  PARTS({"mlp.experts.gate_up_proj", 2 * c->experts_intermediate}));
    value_id pairs =
        build_experts_down(b, y, &routes, true, PARTS({"mlp.experts.down_proj", c->hidden}));
    build_add(b, build_combine(b, pairs, LIST_NONE, &routes), 1);
}

static void build(struct build *b, const struct model_config *config)
{
    weight_id embed = build_embed(b, "model.embed_tokens", 1);
    build_rope_table(b, &config->rope);
    for (uint32_t i = 0; i < config->layers; i++) {
        build_layer(b, i);
        attention(b, config, i);
        mixture(b, config);
    }
    struct build_head head = {.norm = "model.norm",
                              .eps = config->norm_eps,
                              .head = config->tied ? NULL : "lm_head",
                              .embed = embed,
                              .scale = 1};
    build_head(b, &head);
}

const struct family family_gpt_oss = {
    .type = "gpt_oss",
    .architecture = "GptOssForCausalLM",
    .keys = keys,
    .defaults = defaults,
    .rope = rope,
    .rules = rules,
    .build = build,
};
