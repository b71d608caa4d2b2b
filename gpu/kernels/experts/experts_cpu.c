/* An index of the kernel is a run of outputs of one expert, for all of its pairs. */
#include "gpu/kernels/experts/experts.h"

#include "gpu/kernels/cpu/body.h"

#define EXPERTS_OUTPUTS 64

static uint32_t outputs_of(const struct experts_args *args)
{
    return args->gated ? args->w.n / 2 : args->w.n;
}

static uint32_t runs_of(const struct experts_args *args)
{
    return (outputs_of(args) + EXPERTS_OUTPUTS - 1) / EXPERTS_OUTPUTS;
}

/* `count` outputs from row `first` of the expert's matrix. */
static void experts_panel(const struct experts_args *args, uint32_t expert, uint32_t pair,
                          uint32_t first, uint32_t count, float *y)
{
    enum dtype w_dtype = format_info(args->w.format).dtype;
    struct simd_panel panel = {
        .w = body_at(args->w.data, w_dtype, (size_t)expert * args->w.n + first, args->w.k),
        .x = body_at(args->x, args->dtype, args->spread ? pair / args->top : pair, args->x_stride),
        .y = y,
        .w_stride = args->w.k,
        .x_stride = args->x_stride,
        .y_stride = EXPERTS_OUTPUTS,
        .n = count,
        .rows = 1,
        .k = args->w.k,
        .w_dtype = w_dtype,
        .x_dtype = args->dtype,
    };
    simd_best()->panel(&panel);
}

static void experts_pair(const struct experts_args *args, uint32_t expert, uint32_t pair,
                         uint32_t first, uint32_t count)
{
    const struct simd *simd = simd_best();
    float y[EXPERTS_OUTPUTS], up[EXPERTS_OUTPUTS];
    experts_panel(args, expert, pair, first, count, y);
    if (args->gated) {
        experts_panel(args, expert, pair, args->w.n / 2 + first, count, up);
        (args->activation == ACTIVATE_SILU ? simd->silu : simd->gelu)(y, y, up, count);
    }
    void *to = body_at(args->y, args->dtype, pair, args->y_stride);
    number_round(number_at(to, args->dtype, first), y, args->dtype, count);
}

static void experts_run(const void *params, uint32_t index)
{
    const struct experts_args *args = params;
    const uint32_t *segments = dev(args->segments), *pairs = segments + args->own.count + 1;
    uint32_t expert = index / runs_of(args), first = index % runs_of(args) * EXPERTS_OUTPUTS;
    uint32_t left = outputs_of(args) - first;
    for (uint32_t i = segments[expert]; i < segments[expert + 1]; i++)
        experts_pair(args, expert, pairs[i], first,
                     left < EXPERTS_OUTPUTS ? left : EXPERTS_OUTPUTS);
}

cudaError_t op_experts(const struct experts_args *args, cudaStream_t stream)
{
    if (!experts_can(args))
        return cudaErrorNotSupported;
    return body_launch(stream, "experts", experts_run, args, sizeof *args,
                       args->rows.max ? (uint64_t)args->own.count * runs_of(args) : 0);
}
