#include "gpu/models/families/gemma.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "gpu/models/base/decoder.h"

#define DEFAULT_WINDOW 4096
#define CAP_MIN 1e-3
#define CAP_MAX 1e6
#define SCALAR_MAX 65536

enum { TABLE_ROPE, TABLE_LOCAL };

static void behind(struct build *b, value_id x, const char *norm, const struct model_config *c)
{
    if (!c->norms_before)
        build_norm(b, x, norm, NORM_RMS_PLUS_ONE, c->norm_eps);
    build_add(b, x, 1);
}

static void attention(struct build *b, const struct model_config *c, uint32_t layer)
{
    struct build_attention attention = {.window = c->window[layer],
                                        .heads = c->heads,
                                        .kv_heads = c->kv_heads,
                                        .head_dim = c->head_dim,
                                        .scale = c->attention_scale,
                                        .softcap = c->attention_softcap};
    uint16_t table = c->window[layer] && c->rope_local.pairs ? TABLE_LOCAL : TABLE_ROPE;
    value_id x = build_norm(b, b->list.residual, "input_layernorm", NORM_RMS_PLUS_ONE, c->norm_eps);
    value_id qkv = build_matmul(b, x, SPLIT_ROWS, c->qkv_bias,
                                PARTS({"self_attn.q_proj", c->heads * c->head_dim},
                                      {"self_attn.k_proj", c->kv_heads * c->head_dim},
                                      {"self_attn.v_proj", c->kv_heads * c->head_dim}));
    value_id q = build_part(b, qkv, 0), k = build_part(b, qkv, 1), v = build_part(b, qkv, 2);
    if (c->qk_norm) {
        build_head_norm(b, q, "self_attn.q_norm", c->head_dim, NORM_RMS_PLUS_ONE, c->norm_eps);
        build_head_norm(b, k, "self_attn.k_norm", c->head_dim, NORM_RMS_PLUS_ONE, c->norm_eps);
    }
    build_rope(b, q, k, table, c->head_dim);
    value_id a = build_attention(b, q, k, v, &attention);
    value_id o =
        build_matmul(b, a, SPLIT_COLUMNS, c->o_bias, PARTS({"self_attn.o_proj", c->hidden}));
    behind(b, o, "post_attention_layernorm", c);
}

static void mlp(struct build *b, const struct model_config *c)
{
    const char *norm = c->norms_before ? "post_attention_layernorm" : "pre_feedforward_layernorm";
    value_id x = build_norm(b, b->list.residual, norm, NORM_RMS_PLUS_ONE, c->norm_eps);
    value_id up =
        build_matmul(b, x, SPLIT_ROWS, false,
                     PARTS({"mlp.gate_proj", c->intermediate}, {"mlp.up_proj", c->intermediate}));
    value_id y = build_activation(b, up, c->activation, true);
    value_id down = build_matmul(b, y, SPLIT_COLUMNS, false, PARTS({"mlp.down_proj", c->hidden}));
    behind(b, down, "post_feedforward_layernorm", c);
}

void gemma_build(struct build *b, const struct model_config *config)
{
    char embed[LIST_NAME_MAX], norm[LIST_NAME_MAX];
    snprintf(embed, sizeof embed, "%sembed_tokens", config->names->model);
    snprintf(norm, sizeof norm, "%snorm", config->names->model);
    b->prefix = config->names->layers;
    weight_id table = build_embed(b, embed, config->embedding_multiplier);
    build_rope_table(b, &config->rope);
    if (config->rope_local.pairs)
        build_rope_table(b, &config->rope_local);
    for (uint32_t i = 0; i < config->layers; i++) {
        build_layer(b, i);
        attention(b, config, i);
        mlp(b, config);
    }
    struct build_head head = {.norm = norm,
                              .kind = NORM_RMS_PLUS_ONE,
                              .eps = config->norm_eps,
                              .head = config->tied ? NULL : config->names->head,
                              .embed = table,
                              .scale = 1,
                              .softcap = config->logits_softcap};
    build_head(b, &head);
}

/* ---- keys ---- */

int gemma_softcap(const struct fields *fields, const char *key, float otherwise, float *ret)
{
    double cap = json_get(fields->object, key) ? 0 : (double)otherwise;
    int rc = field_number(fields, key, CAP_MIN, CAP_MAX, &cap);
    *ret = (float)cap;
    return rc;
}

/* Absent, it is the class's own, however many heads there are. */
static int kv_heads(const struct fields *fields, struct model_config *config)
{
    const char *key = "num_key_value_heads";
    int rc = field_size(fields, key, config->heads, &config->kv_heads);
    if (rc || config->heads % config->kv_heads == 0)
        return rc;
    return field_get(fields, key) ? field_refuse(fields, key, field_get(fields, key),
                                                 "a divisor of num_attention_heads")
                                  : field_require(fields, key);
}

static int layers_named(const struct fields *fields, const json *types, uint32_t window,
                        struct model_config *config)
{
    uint32_t layer = 0;
    if (!json_is_array(types) || json_count(types) != config->layers)
        return field_refuse(fields, "layer_types", types, "a list of num_hidden_layers names");
    for (const json *type = json_child(types); type; type = json_next(type), layer++) {
        const char *name = json_is_string(type) ? json_string(type) : "";
        if (strcmp(name, "sliding_attention") && strcmp(name, "full_attention"))
            return field_refuse(fields, "layer_types", type,
                                "supported (full_attention and sliding_attention are)");
        config->window[layer] = *name == 's' ? window : 0;
    }
    return 0;
}

static int windows(const struct fields *fields, uint32_t pattern, struct model_config *config)
{
    const json *types = field_get(fields, "layer_types");
    uint32_t window = DEFAULT_WINDOW;
    if (json_get(fields->object, "sliding_window")) /* null is no default */
        window = 0;
    int rc = field_size(fields, "sliding_window", MODEL_CONTEXT_MAX, &window);
    if (rc == 0 && !window)
        rc = field_require(fields, "sliding_window");
    if (rc || types)
        return rc ? rc : layers_named(fields, types, window, config);
    for (uint32_t layer = 0; layer < config->layers; layer++)
        config->window[layer] = (layer + 1) % pattern ? window : 0;
    return 0;
}

/* The square root of the size, rounded to the dtype that the checkpoint is kept in: transformers
 * multiplies by it there. */
static float embedding_scale(const struct model_config *config)
{
    static const int bits[] = {[MODEL_F32] = 24, [MODEL_F16] = 11, [MODEL_BF16] = 8};
    int exponent;
    double part = frexp(sqrt(config->hidden), &exponent);
    return (float)ldexp(rint(ldexp(part, bits[config->dtype])), exponent - bits[config->dtype]);
}

int gemma_rules_plain(const struct fields *fields, struct model_config *config)
{
    int rc = kv_heads(fields, config);
    if (rc == 0)
        rc = decoder_head_dim(fields, config->head_dim, config);
    if (rc == 0)
        rc = field_flag(fields, "attention_bias", &config->qkv_bias);
    config->o_bias = config->qkv_bias;
    config->embedding_multiplier = embedding_scale(config);
    return rc;
}

int gemma_rules(const struct fields *fields, uint32_t pattern, struct model_config *config)
{
    double scalar = 256;
    int rc = gemma_rules_plain(fields, config);
    if (rc == 0)
        rc = field_number(fields, "query_pre_attn_scalar", 1, SCALAR_MAX, &scalar);
    if (rc == 0)
        rc = windows(fields, pattern, config);
    config->attention_scale = (float)(1 / sqrt(scalar));
    return rc;
}
