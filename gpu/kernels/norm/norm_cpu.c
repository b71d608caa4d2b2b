#include "gpu/kernels/norm/norm_cpu.h"

#include <math.h>

#include "gpu/kernels/cpu/body.h"

/* Adds delta and returns the sum of squares of the residual as it is stored. */
static float norm_add(const struct norm_args *args, uint32_t row, void *residual, norm_delta *delta,
                      const void *context)
{
    const struct simd *simd = simd_best();
    float lanes[SIMD_LANES] = {0}, sum[NORM_PIECE], other[NORM_PIECE];
    float scale = args->delta_scale != 0 ? args->delta_scale : 1;
    for (uint32_t i = 0; i < args->size; i += NORM_PIECE) {
        uint32_t count = args->size - i < NORM_PIECE ? args->size - i : NORM_PIECE;
        void *at = number_at(residual, args->residual_dtype, i);
        number_widen(sum, at, args->residual_dtype, count);
        if (delta) {
            delta(context, row, i, count, other);
            for (uint32_t j = 0; j < count; j++)
                sum[j] += other[j] * scale;
            number_round(at, sum, args->residual_dtype, count);
            number_widen(sum, at, args->residual_dtype, count);
        }
        simd->squares(lanes, sum, count);
    }
    return simd_add_lanes(lanes);
}

void norm_row(const struct norm_args *args, uint32_t row, norm_delta *delta, const void *context)
{
    void *residual = body_at(args->residual, args->residual_dtype, row, args->residual_stride);
    float squares = norm_add(args, row, residual, delta, context);
    if (!args->out)
        return;
    void *out = body_at(args->out, args->out_dtype, row, args->out_stride);
    float scale = 1.0f / sqrtf(squares / (float)args->size + args->eps);
    float value[NORM_PIECE], weight[NORM_PIECE];
    for (uint32_t i = 0; i < args->size; i += NORM_PIECE) {
        uint32_t count = args->size - i < NORM_PIECE ? args->size - i : NORM_PIECE;
        number_widen(value, number_at(residual, args->residual_dtype, i), args->residual_dtype,
                     count);
        for (uint32_t j = 0; j < count; j++)
            value[j] *= scale;
        if (args->weight) {
            number_widen(weight, number_at(dev(args->weight), args->weight_dtype, i),
                         args->weight_dtype, count);
            for (uint32_t j = 0; j < count; j++)
                value[j] *= weight[j];
        }
        number_round(number_at(out, args->out_dtype, i), value, args->out_dtype, count);
    }
}

static void norm_own(const void *context, uint32_t row, uint32_t first, uint32_t count, float *ret)
{
    const struct norm_args *args = context;
    const void *delta = body_at(args->delta, args->delta_dtype, row, args->delta_stride);
    number_widen(ret, number_at(delta, args->delta_dtype, first), args->delta_dtype, count);
}

static void norm_share(const void *params, uint32_t index)
{
    const struct norm_args *args = params;
    uint32_t share = body_share(args->size), rows = body_rows(&args->rows);
    for (uint32_t i = 0; i < share && index * share + i < rows; i++)
        norm_row(args, index * share + i, args->delta ? norm_own : NULL, args);
}

cudaError_t op_norm(const struct norm_args *args, cudaStream_t stream)
{
    return body_launch(stream, "norm", norm_share, args, sizeof *args,
                       body_shares(args->rows.max, args->size));
}
