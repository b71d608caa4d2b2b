#include "gpu/models/base/decoder.h"
#include "gpu/models/base/experts.h"

#include <math.h>
#include <string.h>

#define DEFAULT_WINDOW 4096
#define WINDOW_LAYERS 28

enum { TABLE_ROPE, TABLE_STILL };

struct head_order decoder_order(const struct model_config *config)
{
    if (config->rotary == config->head_dim && !config->adjacent)
        return (struct head_order){0};
    return (struct head_order){config->head_dim, config->rotary, config->adjacent};
}

void decoder_attention(struct build *b, const struct model_config *c,
                       const struct decoder_names *names, uint32_t layer, value_id x)
{
    const struct head_order order = decoder_order(c);
    const struct build_part qkv_parts[LIST_PARTS_MAX] = {
        {names->q, c->heads * c->head_dim, order},
        {names->k, c->kv_heads * c->head_dim, order},
        {names->v, c->kv_heads * c->head_dim}};
    struct build_attention attention = {.window = c->window[layer],
                                        .heads = c->heads,
                                        .kv_heads = c->kv_heads,
                                        .head_dim = c->head_dim,
                                        .scale = c->attention_scale};
    value_id qkv = build_matmul(b, x, SPLIT_ROWS, c->qkv_bias, qkv_parts);
    value_id q = build_part(b, qkv, 0), k = build_part(b, qkv, 1), v = build_part(b, qkv, 2);
    if (c->qk_norm_wide)
        build_wide_norm(b, q, k, "self_attn.q_norm", "self_attn.k_norm", NORM_RMS, c->norm_eps);
    if (c->qk_norm) {
        build_head_norm(b, q, "self_attn.q_norm", c->head_dim, NORM_RMS, c->norm_eps);
        build_head_norm(b, k, "self_attn.k_norm", c->head_dim, NORM_RMS, c->norm_eps);
    }
    build_rope(b, q, k, c->no_rope[layer] ? TABLE_STILL : TABLE_ROPE, c->head_dim);
    value_id a = build_attention(b, q, k, v, &attention);
    value_id o =
        build_matmul(b, a, SPLIT_COLUMNS, c->o_bias, PARTS({"self_attn.o_proj", c->hidden}));
    if (names->behind_attention)
        build_norm(b, o, names->behind_attention, NORM_RMS, c->norm_eps);
    build_add(b, o, c->residual_multiplier);
}

/* Layers without rope turn by no angle, which leaves every element as it is, to the bit. */
static void still_table(struct build *b, const struct model_config *config)
{
    struct model_rope still = {.pairs = config->rope.pairs, .attention = 1};
    bool any = false;
    for (uint32_t i = 0; i < config->layers; i++)
        any = any || config->no_rope[i];
    if (any)
        build_rope_table(b, &still);
}

void decoder_mlp(struct build *b, const struct model_config *c, const struct decoder_names *names)
{
    const struct build_part halves[LIST_PARTS_MAX] = {{names->gate, c->intermediate},
                                                      {names->up, c->intermediate}};
    value_id x = build_norm(b, b->list.residual, "post_attention_layernorm", NORM_RMS, c->norm_eps);
    value_id up = build_matmul(b, x, SPLIT_ROWS, c->mlp_bias, halves);
    value_id y = build_activation(b, up, c->activation, true);
    value_id down =
        build_matmul(b, y, SPLIT_COLUMNS, c->mlp_bias, PARTS({"mlp.down_proj", c->hidden}));
    if (names->behind_mlp)
        build_norm(b, down, names->behind_mlp, NORM_RMS, c->norm_eps);
    build_add(b, down, c->residual_multiplier);
}

const struct decoder_names decoder_names_plain = {.q = "self_attn.q_proj",
                                                  .k = "self_attn.k_proj",
                                                  .v = "self_attn.v_proj",
                                                  .gate = "mlp.gate_proj",
                                                  .up = "mlp.up_proj"};

void decoder_build(struct build *b, const struct model_config *config)
{
    decoder_build_of(b, config, &decoder_names_plain);
}

void decoder_build_of(struct build *b, const struct model_config *config,
                      const struct decoder_names *names)
{
    weight_id embed = build_embed(b, "model.embed_tokens", config->embedding_multiplier);
    build_rope_table(b, &config->rope);
    still_table(b, config);
    for (uint32_t i = 0; i < config->layers; i++) {
        build_layer(b, i);
        value_id x = build_norm(b, b->list.residual, "input_layernorm", NORM_RMS, config->norm_eps);
        decoder_attention(b, config, names, i, x);
        if (names->experts && !config->dense[i])
            experts_mlp(b, config, names->experts);
        else
            decoder_mlp(b, config, names);
    }
    struct build_head head = {.norm = "model.norm",
                              .eps = config->norm_eps,
                              .head = config->tied ? NULL : "lm_head",
                              .embed = embed,
                              .scale = 1 / config->logits_scaling};
    build_head(b, &head);
}

/* ---- keys ---- */

int decoder_kv_heads(const struct fields *fields, bool required, struct model_config *config)
{
    /* The classes differ in what they take for an absent field; null is the number of heads in all.
     */
    if (!json_get(fields->object, "num_key_value_heads") && required)
        return field_require(fields, "num_key_value_heads");
    config->kv_heads = config->heads;
    int rc = field_size(fields, "num_key_value_heads", config->heads, &config->kv_heads);
    if (rc)
        return rc;
    if (config->heads % config->kv_heads)
        return field_refuse(fields, "num_key_value_heads", field_get(fields, "num_key_value_heads"),
                            "a divisor of num_attention_heads");
    return 0;
}

int decoder_head_dim(const struct fields *fields, uint32_t otherwise, struct model_config *config)
{
    if (!otherwise && !field_get(fields, "head_dim") && config->hidden % config->heads)
        return error_set(fields->error, ERR_BAD_MODEL,
                         "%s: hidden_size: %u is not a multiple of num_attention_heads, %u, and "
                         "head_dim is missing",
                         fields->file, config->hidden, config->heads);
    config->head_dim = otherwise ? otherwise : config->hidden / config->heads;
    int rc = field_size(fields, "head_dim", MODEL_HEAD_DIM_MAX, &config->head_dim);
    if (rc)
        return rc;
    if (config->head_dim % 2 || config->head_dim > MODEL_HEAD_DIM_MAX || config->head_dim == 0 ||
        config->head_dim * config->heads > MODEL_HIDDEN_MAX)
        return error_set(fields->error, ERR_BAD_MODEL,
                         "%s: head_dim: %u is not even, over %u, or with %u heads over %u in all",
                         fields->file, config->head_dim, MODEL_HEAD_DIM_MAX, config->heads,
                         MODEL_HIDDEN_MAX);
    config->attention_scale = (float)(1 / sqrt(config->head_dim));
    return 0;
}

int decoder_layer_types(const struct fields *fields, uint32_t window, struct model_config *config)
{
    const json *types = field_get(fields, "layer_types");
    if (!json_is_array(types) || json_count(types) != config->layers)
        return field_refuse(fields, "layer_types", types, "a list of num_hidden_layers names");
    uint32_t layer = 0;
    for (const json *type = json_child(types); type; type = json_next(type), layer++) {
        const char *name = json_string(type);
        bool sliding = strcmp(name, "sliding_attention") == 0;
        if (!sliding && strcmp(name, "full_attention") != 0)
            return field_refuse(fields, "layer_types", type,
                                "supported (full_attention and sliding_attention are)");
        if (sliding && window == 0)
            return field_refuse(fields, "layer_types", type,
                                "possible without use_sliding_window and sliding_window");
        config->window[layer] = sliding ? window : 0;
    }
    return 0;
}

int decoder_windows(const struct fields *fields, struct model_config *config)
{
    bool use = false;
    uint32_t window = 0;
    int64_t first = WINDOW_LAYERS;
    int rc = field_flag(fields, "use_sliding_window", &use);
    if (!rc && use) {
        /* An absent window is 4096 tokens, as in transformers; null is none. */
        window = json_get(fields->object, "sliding_window") ? 0 : DEFAULT_WINDOW;
        rc = field_size(fields, "sliding_window", MODEL_CONTEXT_MAX, &window);
    }
    if (rc)
        return rc;
    if (field_get(fields, "layer_types"))
        return decoder_layer_types(fields, window, config);
    rc = field_integer(fields, "max_window_layers", 0, UINT32_MAX, &first);
    for (uint32_t layer = 0; layer < config->layers; layer++)
        config->window[layer] = layer >= first ? window : 0;
    return rc;
}
