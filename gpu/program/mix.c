#include "gpu/program/mix.h"

#include "gpu/base/cuda_error.h"
#include "gpu/kernels/experts/combine.h"
#include "gpu/kernels/experts/experts.h"

static cudaStream_t stream_of(const struct walk *walk)
{
    return walk->program->stream;
}

static uint32_t width_of(const struct walk *walk, value_id value)
{
    return walk_list(walk)->values[value].width;
}

int mix_route(struct walk *walk, const struct op *const *ops, struct error *error)
{
    const struct op *op = ops[0];
    const float *bias = op->bias == LIST_NONE ? NULL : walk_weight(walk, op->bias)->data;
    struct route_args args = {
        .rows = walk->rows,
        .w = *walk_weight(walk, op->weight),
        .bias = op->experts.added ? NULL : bias,
        .added = op->experts.added ? bias : NULL,
        .x = walk_value(walk, op->in[0]),
        .routes = walk_value(walk, op->out),
        .x_stride = width_of(walk, op->in[0]),
        .x_dtype = scratch_dtype(walk->program, op->in[0]),
        .count = op->experts.count,
        .top = op->experts.top,
        .scores = op->experts.score == ROUTE_SOFTMAX ? ROUTE_SCORES_SOFTMAX : ROUTE_SCORES_SIGMOID,
        .normalised = op->experts.normalised,
        .shared = op->experts.shared,
        .scale = op->experts.scale,
    };
    CUDA_TRY(op_route(&args, stream_of(walk)), error);
    return 0;
}

/* Those whose matrices, or parts of them, this rank has. */
static struct expert_range own_of(const struct walk *walk, const struct op *op)
{
    const struct comm *comm = walk->program->comm;
    bool whole = op->experts.own < op->experts.count;
    return (struct expert_range){.first = whole && comm ? comm->rank * op->experts.own : 0,
                                 .count = op->experts.own};
}

int mix_segments(struct walk *walk, const struct op *const *ops, struct error *error)
{
    const struct op *op = ops[0];
    struct segments_args args = {
        .rows = walk->rows,
        .routes = walk_value(walk, op->in[0]),
        .stride = width_of(walk, op->in[0]) / 2,
        .own = own_of(walk, op),
        .top = op->experts.top,
        .segments = walk_value(walk, op->out),
    };
    CUDA_TRY(op_segments(&args, stream_of(walk)), error);
    return 0;
}

/* Of sums that ranks have parts of it is rank 0's to add. */
static const void *bias_of(const struct walk *walk, const struct op *op)
{
    const struct comm *comm = walk->program->comm;
    bool parts = !op->experts.gated && op->experts.own == op->experts.count;
    if (op->bias == LIST_NONE || (parts && comm && comm->rank))
        return NULL;
    return walk_weight(walk, op->bias)->data;
}

int mix_experts(struct walk *walk, const struct op *const *ops, struct error *error)
{
    const struct op *op = ops[0];
    uint32_t top = op->experts.top;
    struct experts_args args = {
        .rows = walk->rows,
        .w = *walk_weight(walk, op->weight),
        .segments = walk_value(walk, op->in[2]),
        .routes = walk_value(walk, op->in[1]),
        .route_stride = width_of(walk, op->in[1]) / 2,
        .own = own_of(walk, op),
        .top = top,
        .x = walk_value(walk, op->in[0]),
        .y = walk_value(walk, op->out),
        .x_stride = width_of(walk, op->in[0]) / (op->experts.spread ? 1 : top),
        .y_stride = width_of(walk, op->out) / top,
        .dtype = scratch_dtype(walk->program, op->out),
        .spread = op->experts.spread,
        .gated = op->experts.gated,
        .invariant = walk->program->invariant,
        .activation =
            op->experts.activation == ACTIVATION_SILU ? ACTIVATE_SILU : ACTIVATE_GELU_TANH,
        .alpha = op->experts.alpha,
        .limit = op->experts.limit,
        .bias = bias_of(walk, op),
    };
    if (!weight_is_plain(&args.w)) {
        args.scratch = (char *)walk->launch->scratch + walk->layout.product;
        args.scratch_bytes = walk->layout.product_bytes;
    }
    CUDA_TRY(op_experts(&args, stream_of(walk)), error);
    return 0;
}

int mix_combine(struct walk *walk, const struct op *const *ops, struct error *error)
{
    const struct op *op = ops[0];
    struct combine_args args = {
        .rows = walk->rows,
        .routes = walk_value(walk, op->in[1]),
        .x = walk_value(walk, op->in[0]),
        .shared = walk_value(walk, op->in[2]),
        .out = walk_value(walk, op->out),
        .own = own_of(walk, op),
        .size = width_of(walk, op->out),
        .top = op->experts.top,
        .dtype = scratch_dtype(walk->program, op->in[0]),
        .out_dtype = scratch_dtype(walk->program, op->out),
    };
    CUDA_TRY(op_combine(&args, stream_of(walk)), error);
    return 0;
}
