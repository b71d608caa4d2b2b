/* An index of the kernel is a run of outputs of one expert, for all of its pairs. Weights in 8 and
 * 4 bits become numbers as they do in a dense product (matmul_dequantized_cpu.c), for some pairs at
 * a time. */
#include "gpu/kernels/experts/experts.h"
#include "gpu/kernels/experts/experts_sum.h"

#include "gpu/kernels/cpu/body.h"
#include "gpu/kernels/matmul/dequantized_cpu.h"

#define EXPERTS_OUTPUTS MATMUL_OUTPUTS

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

/* What is added to outputs from row `first` of an expert on. */
static void bias_add(const struct experts_args *args, uint32_t expert, uint32_t first,
                     uint32_t count, float *y)
{
    float bias[EXPERTS_OUTPUTS];
    size_t at = (size_t)expert * args->w.n + first;
    if (!args->bias)
        return;
    number_widen(bias, number_at(dev(args->bias), args->dtype, at), args->dtype, count);
    for (uint32_t i = 0; i < count; i++)
        y[i] += bias[i];
}

/* What is no number stays so. */
static void clamped(const struct experts_args *args, float *y, const float *up, uint32_t count)
{
    float limit = args->limit;
    for (uint32_t i = 0; i < count; i++) {
        float gate = y[i] > limit ? limit : y[i];
        float held = up[i] > limit ? limit : up[i] < -limit ? -limit : up[i];
        y[i] = gate / (1 + simd_exp(-args->alpha * gate)) * (held + 1);
    }
}

/* Sums of a pair's outputs, `up` of those that are gated. */
static void experts_put(const struct experts_args *args, uint32_t expert, uint32_t pair,
                        uint32_t first, uint32_t count, float *y, float *up)
{
    const struct simd *simd = simd_best();
    bias_add(args, expert, first, count, y);
    if (args->gated)
        bias_add(args, expert, args->w.n / 2 + first, count, up);
    if (args->gated && args->limit != 0)
        clamped(args, y, up, count);
    else if (args->gated)
        (args->activation == ACTIVATE_SILU ? simd->silu : simd->gelu)(y, y, up, count);
    void *to = body_at(args->y, args->dtype, pair, args->y_stride);
    number_round(number_at(to, args->dtype, first), y, args->dtype, count);
}

static void experts_pair(const struct experts_args *args, uint32_t expert, uint32_t pair,
                         uint32_t first, uint32_t count)
{
    float y[EXPERTS_OUTPUTS], up[EXPERTS_OUTPUTS];
    experts_panel(args, expert, pair, first, count, y);
    if (args->gated)
        experts_panel(args, expert, pair, args->w.n / 2 + first, count, up);
    experts_put(args, expert, pair, first, count, y, up);
}

/* Up to DEQUANTIZED_ROWS pairs of one expert, whose matrix `w` is. */
static void experts_dequantized(const struct experts_args *args, uint32_t expert,
                                const struct weight *w, const uint32_t *pairs, uint32_t rows,
                                uint32_t first, uint32_t count)
{
    float y[DEQUANTIZED_ROWS * EXPERTS_OUTPUTS], up[DEQUANTIZED_ROWS * EXPERTS_OUTPUTS];
    struct dequantized of = {
        .w = w, .x_dtype = args->dtype, .rows = rows, .first = first, .outputs = count, .sums = y};
    for (uint32_t r = 0; r < rows; r++)
        of.x[r] = body_at(args->x, args->dtype, args->spread ? pairs[r] / args->top : pairs[r],
                          args->x_stride);
    dequantized_sums(&of);
    of.first += w->n / 2;
    of.sums = up;
    if (args->gated)
        dequantized_sums(&of);
    for (uint32_t r = 0; r < rows; r++)
        experts_put(args, expert, pairs[r], first, count, y + (size_t)r * EXPERTS_OUTPUTS,
                    up + (size_t)r * EXPERTS_OUTPUTS);
}

static void experts_run(const void *params, uint32_t index)
{
    const struct experts_args *args = params;
    const uint32_t *segments = dev(args->segments), *pairs = segments + args->own.count + 1;
    uint32_t expert = index / runs_of(args), first = index % runs_of(args) * EXPERTS_OUTPUTS;
    uint32_t left = outputs_of(args) - first, end = segments[expert + 1];
    uint32_t count = left < EXPERTS_OUTPUTS ? left : EXPERTS_OUTPUTS;
    struct weight w = weight_of_expert(&args->w, expert);
    if (weight_is_plain(&w)) {
        for (uint32_t i = segments[expert]; i < end; i++)
            experts_pair(args, expert, pairs[i], first, count);
        return;
    }
    for (uint32_t i = segments[expert]; i < end; i += DEQUANTIZED_ROWS)
        experts_dequantized(args, expert, &w, pairs + i,
                            end - i < DEQUANTIZED_ROWS ? end - i : DEQUANTIZED_ROWS, first, count);
}

cudaError_t op_experts(const struct experts_args *args, cudaStream_t stream)
{
    if (!experts_can(args) || !dequantized_can(&args->w))
        return cudaErrorNotSupported;
    return body_launch(stream, "experts", experts_run, args, sizeof *args,
                       args->rows.max ? (uint64_t)args->own.count * runs_of(args) : 0);
}

bool experts_takes(const struct weight *w)
{
    return dequantized_can(w);
}

size_t experts_scratch_bytes(const struct weight *w, uint32_t own, uint32_t rows, uint32_t top,
                             bool spread, enum dtype dtype)
{
    (void)w;
    (void)own;
    (void)rows;
    (void)top;
    (void)spread;
    (void)dtype;
    return 0;
}

bool experts_sum_can(const struct experts_sum_args *args)
{
    (void)args;
    return false;
}

cudaError_t op_experts_sum(const struct experts_sum_args *args, cudaStream_t stream)
{
    (void)args;
    (void)stream;
    return cudaErrorNotSupported;
}
