#include "gpu/models/base/experts.h"

#include <stdio.h>

#define TENSORS_BESIDE 32      /* of a layer beside those of its experts, at most */
#define TENSORS_MAX UINT16_MAX /* of weights alone: each may come with scales and the like */

static const struct experts_names plain = {.router = "mlp.gate",
                                           .gate = "mlp.experts.%u.gate_proj",
                                           .up = "mlp.experts.%u.up_proj",
                                           .down = "mlp.experts.%u.down_proj",
                                           .shared = "mlp.shared_expert",
                                           .shared_gate = "mlp.shared_expert_gate"};

const struct decoder_names experts_decoder = {.q = "self_attn.q_proj",
                                              .k = "self_attn.k_proj",
                                              .v = "self_attn.v_proj",
                                              .gate = "mlp.gate_proj",
                                              .up = "mlp.up_proj",
                                              .experts = &plain};

static value_id shared(struct build *b, const struct model_config *c,
                       const struct experts_names *names, value_id x)
{
    char gate[LIST_NAME_MAX / 2], up[LIST_NAME_MAX / 2], down[LIST_NAME_MAX / 2];
    const char *name = names->shared;
    uint32_t size = c->shared_intermediate;
    snprintf(gate, sizeof gate, "%s.%s", name, names->upright ? "input_linear" : "gate_proj");
    snprintf(up, sizeof up, "%s.%s", name, names->upright ? "input_linear" : "up_proj");
    snprintf(down, sizeof down, "%s.%s", name, names->upright ? "output_linear" : "down_proj");
    value_id both = build_matmul(b, x, SPLIT_ROWS, false, PARTS({gate, size}, {up, size}));
    value_id y = build_activation(b, both, c->activation, true);
    return build_shared_down(b, y, PARTS({down, c->hidden}));
}

void experts_mlp(struct build *b, const struct model_config *c, const struct experts_names *names)
{
    const uint32_t size = c->experts_intermediate;
    const struct build_part halves[LIST_PARTS_MAX] = {
        {names->gate, size, .upright = names->upright},
        {names->up, size, .upright = names->upright}};
    const struct build_part down[LIST_PARTS_MAX] = {
        {names->down, c->hidden, .upright = names->upright}};
    const struct build_routing routing = {.router = names->router,
                                          .bias = names->biased ? ".e_score_correction_bias" : NULL,
                                          .shared_gate =
                                              c->shared_intermediate ? names->shared_gate : NULL,
                                          .shared = c->shared_intermediate > 0,
                                          .count = c->experts,
                                          .top = c->experts_top,
                                          .scale = c->experts_scale,
                                          .score = names->biased ? ROUTE_SIGMOID : ROUTE_SOFTMAX,
                                          .normalised = c->experts_normalised};
    value_id x = build_norm(b, b->list.residual, "post_attention_layernorm", NORM_RMS, c->norm_eps);
    struct build_routes routes = build_route(b, x, &routing);
    const struct build_gate gate = {.kind = c->activation};
    value_id beside = c->shared_intermediate ? shared(b, c, names, x) : LIST_NONE;
    value_id y = build_experts_up(b, x, &routes, &gate, halves);
    value_id pairs = build_experts_down(b, y, &routes, false, down);
    build_add(b, build_combine(b, pairs, beside, &routes), c->residual_multiplier);
}

/* ---- keys ---- */

int experts_read(const struct fields *fields, const char *count, struct model_config *config)
{
    int rc = field_require(fields, count);
    if (rc == 0)
        rc = field_require(fields, "num_experts_per_tok");
    if (rc == 0)
        rc = field_size(fields, count, MODEL_EXPERTS_MAX, &config->experts);
    if (rc == 0)
        rc = field_size(fields, "num_experts_per_tok", MODEL_EXPERTS_TOP_MAX, &config->experts_top);
    if (rc)
        return rc;
    if ((uint64_t)config->layers * (3 * config->experts + TENSORS_BESIDE) >= TENSORS_MAX)
        return field_refuse(fields, count, field_get(fields, count),
                            "supported in so many layers: experts' tensors are too many");
    if (config->experts_top > config->experts)
        return field_refuse(fields, "num_experts_per_tok", field_get(fields, "num_experts_per_tok"),
                            "at most as many as there are experts");
    return 0;
}

int experts_dense_read(const struct fields *fields, struct model_config *config)
{
    uint32_t step = 1;
    int rc = field_size(fields, "decoder_sparse_step", MODEL_LAYERS_MAX, &step);
    const json *layers = field_get(fields, "mlp_only_layers");
    if (rc)
        return rc;
    if (layers && !json_is_array(layers))
        return field_refuse(fields, "mlp_only_layers", layers, "a list of layers");
    for (uint32_t i = 0; i < config->layers; i++)
        config->dense[i] = (i + 1) % step != 0;
    for (const json *at = layers ? json_child(layers) : NULL; at; at = json_next(at)) {
        double layer = json_is_number(at) ? json_number(at) : -1;
        if (!(layer >= 0 && layer < config->layers) || layer != (uint32_t)layer)
            return field_refuse(fields, "mlp_only_layers", at, "a layer");
        config->dense[(uint32_t)layer] = true;
    }
    return 0;
}
