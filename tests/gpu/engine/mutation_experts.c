/* Mistakes in mixtures of experts. */
#include <stdio.h>
#include <string.h>

#include "tests/gpu/engine/mutation.h"

static void weights_of_experts(bool normalised)
{
    for (struct op *op = op_next(NULL, OP_ROUTE); op; op = op_next(op + 1, OP_ROUTE))
        op->experts.normalised = normalised;
}

static void experts_not_normalised(void)
{
    weights_of_experts(false);
}

static void experts_normalised(void)
{
    weights_of_experts(true);
}

static void experts_scored_apart(void)
{
    for (struct op *op = op_next(NULL, OP_ROUTE); op; op = op_next(op + 1, OP_ROUTE))
        op->experts.score = ROUTE_SIGMOID;
}

/* Of the weight that has the tensor: a matrix of one expert. */
static uint64_t expert_bytes(const struct weight *w)
{
    return format_bytes(w->format, w->n, w->k);
}

static void first_experts_exchanged(void)
{
    static char from[1 << 16];
    struct weight *w = weight(LAYER "0.mlp.experts.0.gate_proj.weight");
    uint64_t bytes = expert_bytes(w);
    ck_assert_uint_le(2 * bytes, sizeof from);
    rig_fetch(from, w->data, 2 * bytes);
    rig_store((void *)w->data, from + bytes, bytes);
    rig_store((char *)w->data + bytes, from, bytes);
}

/* Each by the matrix of the next; the last one by what stands behind all. */
static void segments_one_off(void)
{
    struct weight *w = weight(LAYER "0.mlp.experts.0.down_proj.weight");
    w->data = (const char *)w->data + expert_bytes(w);
}

static void segments_of_mixtral_one_off(void)
{
    struct weight *w = weight(LAYER "0.block_sparse_moe.experts.0.w2.weight");
    w->data = (const char *)w->data + expert_bytes(w);
}

static void experts_halves_exchanged(void)
{
    struct list_weight *of =
        &list()->weights[op_list_weight(list(), LAYER "1.block_sparse_moe.experts.0.w1.weight")];
    uint16_t tensor = of->parts[0].tensor;
    of->parts[0].tensor = of->parts[1].tensor;
    of->parts[1].tensor = tensor;
}

static void zeros_put(const struct weight *w, uint32_t first, uint32_t rows)
{
    static const char zeros[1 << 16];
    uint64_t row = format_bytes(w->format, 1, w->k);
    ck_assert_uint_le(rows * row, sizeof zeros);
    rig_store((char *)w->data + first * row, zeros, rows * row);
}

static void shared_expert_left_out(void)
{
    const struct weight *w = weight(LAYER "0.mlp.shared_expert.down_proj.weight");
    zeros_put(w, 0, w->n);
}

static void choice_unbiased(void)
{
    for (struct op *op = op_next(NULL, OP_ROUTE); op; op = op_next(op + 1, OP_ROUTE))
        op->bias = LIST_NONE;
}

static void weights_unscaled(void)
{
    for (struct op *op = op_next(NULL, OP_ROUTE); op; op = op_next(op + 1, OP_ROUTE))
        op->experts.scale = 1;
}

static void shared_experts_left_out(void)
{
    const struct weight *w = weight(LAYER "1.mlp.shared_experts.down_proj.weight");
    zeros_put(w, 0, w->n);
}

/* A half for all rows. */
static void shared_gate_left_out(void)
{
    const struct weight *w = weight(LAYER "1.mlp.gate.weight");
    zeros_put(w, w->n - 1, 1);
}

static void sinks_left_out(void)
{
    for (struct op *op = op_next(NULL, OP_ATTENTION); op; op = op_next(op + 1, OP_ATTENTION))
        op->weight = LIST_NONE;
}

static void sinks_one_off(void)
{
    for (uint32_t i = 0; i < list()->layers; i++) {
        float sinks[4], first;
        char name[64];
        snprintf(name, sizeof name, LAYER "%u.self_attn.sinks", i);
        struct weight *w = weight(name);
        ck_assert_uint_eq(w->n, 4);
        rig_fetch(sinks, w->data, sizeof sinks);
        first = sinks[0];
        memmove(sinks, sinks + 1, 3 * sizeof *sinks);
        sinks[3] = first;
        rig_store((void *)w->data, sinks, sizeof sinks);
    }
}

static void router_bias_left_out(void)
{
    for (struct op *op = op_next(NULL, OP_ROUTE); op; op = op_next(op + 1, OP_ROUTE))
        op->bias = LIST_NONE;
}

static void clamp_left_out(void)
{
    for (struct op *op = op_next(NULL, OP_EXPERTS); op; op = op_next(op + 1, OP_EXPERTS))
        op->experts.limit = op->experts.gated ? 1e6f : 0;
}

static void alpha_is_one(void)
{
    for (struct op *op = op_next(NULL, OP_EXPERTS); op; op = op_next(op + 1, OP_EXPERTS))
        op->experts.alpha = 1;
}

static void bias_left_out(bool gated)
{
    for (struct op *op = op_next(NULL, OP_EXPERTS); op; op = op_next(op + 1, OP_EXPERTS))
        if (op->experts.gated == gated)
            op->bias = LIST_NONE;
}

static void up_bias_left_out(void)
{
    bias_left_out(true);
}

static void down_bias_left_out(void)
{
    bias_left_out(false);
}

/* Halves one behind the other, where they take turns. */
static void turns_left_out(void)
{
    for (struct op *op = op_next(NULL, OP_EXPERTS); op; op = op_next(op + 1, OP_EXPERTS))
        list()->weights[op->weight].parts[0].order.head_dim = 0;
}

static void segments_of_granite_one_off(void)
{
    struct weight *w = weight(LAYER "0.block_sparse_moe.output_linear.weight");
    w->data = (const char *)w->data + expert_bytes(w);
}

/* Of the tensor that has both. */
static void granite_halves_exchanged(void)
{
    struct list_weight *of =
        &list()->weights[op_list_weight(list(), LAYER "1.block_sparse_moe.input_linear.weight")];
    uint32_t row = of->parts[0].row;
    of->parts[0].row = of->parts[1].row;
    of->parts[1].row = row;
}

/* As gpt-oss has them. */
static void granite_halves_take_turns(void)
{
    for (struct op *op = op_next(NULL, OP_EXPERTS); op; op = op_next(op + 1, OP_EXPERTS))
        if (op->experts.gated) {
            struct list_part *part = &list()->weights[op->weight].parts[0];
            part->order = (struct head_order){part->rows, part->rows, true};
        }
}

static void shared_mlp_left_out(void)
{
    const struct weight *w = weight(LAYER "2.shared_mlp.output_linear.weight");
    zeros_put(w, 0, w->n);
}

static void granite_residual_unscaled(void)
{
    for (struct op *op = op_next(NULL, OP_ADD); op; op = op_next(op + 1, OP_ADD))
        op->scale.by = 1;
}

static const struct mutation all[] = {
    {"weights of Mixtral's experts not normalised", "mixtral-default-bf16", experts_not_normalised,
     nothing},
    {"segments of Mixtral one off", "mixtral-window-f16", nothing, segments_of_mixtral_one_off},
    {"gate and up of experts exchanged", "mixtral-default-bf16", experts_halves_exchanged, nothing},
    {"weights of experts not normalised", "qwen3-moe-norm-bf16", experts_not_normalised, nothing},
    {"weights of experts normalised", "qwen3-moe-dense-f16", experts_normalised, nothing},
    {"a wrong expert", "qwen3-moe-norm-bf16", nothing, first_experts_exchanged},
    {"segments one off", "qwen3-moe-dense-f16", nothing, segments_one_off},
    {"experts scored apart", "olmoe-default-bf16", experts_scored_apart, nothing},
    {"shared expert left out", "qwen2-moe-shared-bf16", nothing, shared_expert_left_out},
    {"choice of experts without its bias", "glm4-moe-shared-bf16", choice_unbiased, nothing},
    {"weights of experts not scaled", "glm4-moe-shared-bf16", weights_unscaled, nothing},
    {"shared experts left out", "glm4-moe-shared-bf16", nothing, shared_experts_left_out},
    {"weights of GLM's experts normalised", "glm4-moe-dense-f16", experts_normalised, nothing},
    {"gate of the shared expert left out", "qwen2-moe-step-f16", nothing, shared_gate_left_out},
    {"sinks left out", "gpt-oss-yarn-bf16", sinks_left_out, nothing},
    {"sinks of the next", "gpt-oss-yarn-bf16", nothing, sinks_one_off},
    {"bias of the router left out", "gpt-oss-yarn-bf16", router_bias_left_out, nothing},
    {"clamp left out", "gpt-oss-clamp-f16", clamp_left_out, nothing},
    {"alpha is 1", "gpt-oss-clamp-f16", alpha_is_one, nothing},
    {"bias of gate and up left out", "gpt-oss-yarn-bf16", up_bias_left_out, nothing},
    {"bias of down left out", "gpt-oss-yarn-bf16", down_bias_left_out, nothing},
    {"gate and up do not take turns", "gpt-oss-yarn-bf16", turns_left_out, nothing},
    {"weights of Granite's experts not normalised", "granite-moe-bias-bf16", experts_not_normalised,
     nothing},
    {"segments of Granite one off", "granite-moe-tied-f16", nothing, segments_of_granite_one_off},
    {"gate and up of Granite exchanged", "granite-moe-bias-bf16", granite_halves_exchanged,
     nothing},
    {"gate and up of Granite take turns", "granite-moe-tied-f16", granite_halves_take_turns,
     nothing},
    {"Granite's mixtures added unscaled", "granite-moe-bias-bf16", granite_residual_unscaled,
     nothing},
    {"Granite's shared MLP left out", "granite-moe-shared-bf16", nothing, shared_mlp_left_out},
    {"weights of DeepSeek's experts normalised", "deepseek-shared-bf16", experts_normalised,
     nothing},
    {"weights of DeepSeek's experts not normalised", "deepseek-norm-f16", experts_not_normalised,
     nothing},
    {"DeepSeek's shared experts left out", "deepseek-shared-bf16", nothing,
     shared_experts_left_out},
    {"DeepSeek's experts scored apart", "deepseek-shared-bf16", experts_scored_apart, nothing},
};

const struct mutations mutations_experts = {all, sizeof all / sizeof all[0]};
