#include "gpu/program/draft.h"

#include "gpu/base/cuda_error.h"
#include "gpu/kernels/draft/spread.h"
#include "gpu/kernels/draft/state.h"
#include "gpu/program/walk.h"

static const struct draft_memory *memory_of(const struct walk *walk)
{
    return walk->program->draft_memory;
}

int draft_capture(struct walk *walk, const struct op *const *ops, struct error *error)
{
    const struct features *features = &memory_of(walk)->features;
    uint32_t size = walk_list(walk)->hidden;
    struct norm_args args = {
        .rows = walk->rows,
        .residual = walk_value(walk, ops[0]->in[0]),
        .out = (char *)features->step +
               (size_t)ops[0]->capture.part * size * dtype_bytes(features->dtype),
        .size = size,
        .residual_stride = size,
        .out_stride = features->width,
        .residual_dtype = scratch_dtype(walk->program, ops[0]->in[0]),
        .out_dtype = features->dtype,
        .form = NORM_ROUNDED,
    };
    CUDA_TRY(op_norm(&args, walk->program->stream), error);
    return 0;
}

int draft_keep(struct walk *walk, const struct op *const *ops, struct error *error)
{
    (void)ops;
    struct keep_args args = {.batch = walk->launch->batch, .features = memory_of(walk)->features};
    CUDA_TRY(op_keep(&args, walk->program->stream), error);
    return 0;
}

int draft_features(struct walk *walk, const struct op *const *ops, struct error *error)
{
    struct features_args args = {.batch = walk->launch->batch,
                                 .features = memory_of(walk)->features,
                                 .step = walk->launch->takes == TAKES_STEP,
                                 .out = walk_value(walk, ops[0]->out)};
    CUDA_TRY(op_features(&args, walk->program->stream), error);
    return 0;
}

static struct state_args state_of(const struct walk *walk, value_id residual)
{
    uint32_t size = walk_list(walk)->hidden;
    return (struct state_args){.batch = walk->launch->batch,
                               .carried = memory_of(walk)->carried,
                               .residual = walk_value(walk, residual),
                               .size = size};
}

int draft_state(struct walk *walk, const struct op *const *ops, struct error *error)
{
    const struct list_value *values = walk_list(walk)->values, *in = &values[ops[0]->in[0]];
    struct state_args args = state_of(walk, ops[0]->out);
    if (!ops[0]->state.own || walk->launch->takes != TAKES_OWN) {
        args.in = walk_value(walk, ops[0]->in[0]);
        args.in_stride = in->of == LIST_NONE ? in->width : values[in->of].width;
        args.in_dtype = scratch_dtype(walk->program, ops[0]->in[0]);
    }
    CUDA_TRY(op_state(&args, walk->program->stream), error);
    return 0;
}

int draft_carry(struct walk *walk, const struct op *const *ops, struct error *error)
{
    struct state_args args = state_of(walk, ops[0]->in[0]);
    CUDA_TRY(op_carry(&args, walk->program->stream), error);
    return 0;
}

int draft_spread(struct walk *walk, const struct op *const *ops, struct error *error)
{
    struct spread_args args = {.rows = walk->rows,
                               .in = walk_value(walk, ops[0]->in[0]),
                               .places = memory_of(walk)->places,
                               .out = walk_value(walk, ops[0]->out),
                               .known = walk_list(walk)->draft_vocab,
                               .size = walk_list(walk)->vocab};
    CUDA_TRY(op_spread(&args, walk->program->stream), error);
    return 0;
}
