#include "gpu/program/mix.h"

#include "gpu/base/cuda_error.h"
#include "gpu/kernels/experts/combine.h"
#include "gpu/kernels/experts/experts_sum.h"
#include "gpu/kernels/experts/norm_route.h"

static cudaStream_t stream_of(const struct walk *walk)
{
    return walk->program->stream;
}

static uint32_t width_of(const struct walk *walk, value_id value)
{
    return walk_list(walk)->values[value].width;
}

static struct route_args route_of(const struct walk *walk, const struct op *op)
{
    const float *bias = op->bias == LIST_NONE ? NULL : walk_weight(walk, op->bias)->data;
    return (struct route_args){
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
}

int mix_route(struct walk *walk, const struct op *const *ops, struct error *error)
{
    struct route_args args = route_of(walk, ops[0]);
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

static struct segments_args segments_of(const struct walk *walk, const struct op *op)
{
    return (struct segments_args){
        .rows = walk->rows,
        .routes = walk_value(walk, op->in[0]),
        .stride = width_of(walk, op->in[0]) / 2,
        .own = own_of(walk, op),
        .top = op->experts.top,
        .segments = walk_value(walk, op->out),
    };
}

int mix_segments(struct walk *walk, const struct op *const *ops, struct error *error)
{
    struct segments_args args = segments_of(walk, ops[0]);
    CUDA_TRY(op_segments(&args, stream_of(walk)), error);
    return 0;
}

int mix_route_segments(struct walk *walk, const struct op *const *ops, struct error *error)
{
    struct route_args route = route_of(walk, ops[0]);
    struct segments_args segments = segments_of(walk, ops[1]);
    CUDA_TRY(op_norm_route(NULL, &route, &segments, stream_of(walk)), error);
    return 0;
}

/* Bits of a row that is normed on the way are not those of op_norm. */
bool mix_norm_route_can(const struct walk *walk, const struct op *const *ops)
{
    return !walk->program->invariant && ops[1]->in[0] == ops[0]->out;
}

int mix_norm_route(struct walk *walk, const struct op *const *ops, struct error *error)
{
    struct norm_args norm = walk_norm(walk, NULL, ops[0]);
    struct route_args route = route_of(walk, ops[1]);
    struct segments_args segments = segments_of(walk, ops[2]);
    CUDA_TRY(op_norm_route(&norm, &route, &segments, stream_of(walk)), error);
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

static struct experts_args experts_of(const struct walk *walk, const struct op *op)
{
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
    return args;
}

int mix_experts(struct walk *walk, const struct op *const *ops, struct error *error)
{
    struct experts_args args = experts_of(walk, ops[0]);
    CUDA_TRY(op_experts(&args, stream_of(walk)), error);
    return 0;
}

static struct combine_args combine_of(const struct walk *walk, const struct op *op)
{
    return (struct combine_args){
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
}

int mix_combine(struct walk *walk, const struct op *const *ops, struct error *error)
{
    struct combine_args args = combine_of(walk, ops[0]);
    CUDA_TRY(op_combine(&args, stream_of(walk)), error);
    return 0;
}

bool mix_combine_norm_can(const struct walk *walk, const struct op *const *ops)
{
    (void)walk;
    return ops[1]->in[0] == ops[0]->out && ops[2]->in[0] == ops[1]->out;
}

int mix_combine_norm(struct walk *walk, const struct op *const *ops, struct error *error)
{
    struct combine_args combine = combine_of(walk, ops[0]);
    struct norm_args norm = walk_norm(walk, ops[1], ops[2]);
    CUDA_TRY(op_combine_norm(&combine, &norm, stream_of(walk)), error);
    return 0;
}

/* ---- pairs that become one as they are multiplied ---- */

/* `add`, `norm`: NULL: not that part. */
static struct experts_sum_args sum_of(const struct walk *walk, const struct op *const *ops,
                                      const struct op *add, const struct op *norm)
{
    struct experts_sum_args args = {.experts = experts_of(walk, ops[0]),
                                    .combine = combine_of(walk, ops[1])};
    struct matmul_args handed = {.norm_out = {.weight = NULL}};
    if (add) {
        args.adds = true;
        args.combine.out = walk_value(walk, add->out);
        args.combine.out_dtype = scratch_dtype(walk->program, add->out);
    }
    if (norm)
        walk_norm_out(walk, norm, &handed);
    args.norm_out = handed.norm_out;
    return args;
}

static int sum_run(const struct walk *walk, const struct experts_sum_args *args,
                   struct error *error)
{
    CUDA_TRY(op_experts_sum(args, stream_of(walk)), error);
    return 0;
}

bool mix_sum_can(const struct walk *walk, const struct op *const *ops)
{
    struct experts_sum_args args = sum_of(walk, ops, NULL, NULL);
    return ops[1]->in[0] == ops[0]->out && experts_sum_can(&args);
}

int mix_sum(struct walk *walk, const struct op *const *ops, struct error *error)
{
    struct experts_sum_args args = sum_of(walk, ops, NULL, NULL);
    return sum_run(walk, &args, error);
}

bool mix_sum_add_can(const struct walk *walk, const struct op *const *ops)
{
    struct experts_sum_args args = sum_of(walk, ops, ops[2], NULL);
    return ops[1]->in[0] == ops[0]->out && ops[2]->in[0] == ops[1]->out && ops[2]->scale.by == 1 &&
           experts_sum_can(&args);
}

int mix_sum_add(struct walk *walk, const struct op *const *ops, struct error *error)
{
    struct experts_sum_args args = sum_of(walk, ops, ops[2], NULL);
    return sum_run(walk, &args, error);
}

bool mix_hands(const struct walk *walk, const struct op *const *ops, const struct op *norm)
{
    struct experts_sum_args args = sum_of(walk, ops, ops[2], norm);
    return mix_sum_add_can(walk, ops) && experts_sum_can(&args);
}

int mix_sum_add_norm_out(struct walk *walk, const struct op *const *ops, struct error *error)
{
    struct experts_sum_args args = sum_of(walk, ops, ops[2], ops[3]);
    return sum_run(walk, &args, error);
}
