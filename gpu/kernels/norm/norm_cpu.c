#include "gpu/kernels/norm/norm_cpu.h"

#include <math.h>

#include "gpu/kernels/cpu/body.h"

static uint32_t piece(uint32_t size, uint32_t first)
{
    return size - first < NORM_PIECE ? size - first : NORM_PIECE;
}

float norm_scale(float squares, uint32_t size, float eps)
{
    return 1.0f / sqrtf(squares / (float)size + eps);
}

void norm_scaled(float *value, uint32_t first, uint32_t count, float scale, const void *weight,
                 enum dtype dtype, float offset)
{
    float wide[NORM_PIECE];
    for (uint32_t j = 0; j < count; j++)
        value[j] *= scale;
    if (!weight)
        return;
    number_widen(wide, number_at(dev(weight), dtype, first), dtype, count);
    for (uint32_t j = 0; j < count; j++)
        value[j] *= offset + wide[j];
}

/* Of a delta that is normed. */
static float delta_scale(const struct norm_args *args, uint32_t row, norm_delta *delta,
                         const void *context)
{
    float lanes[SIMD_LANES] = {0}, value[NORM_PIECE];
    for (uint32_t i = 0; i < args->size; i += NORM_PIECE) {
        delta(context, row, i, piece(args->size, i), false, value);
        simd_best()->squares(lanes, value, piece(args->size, i));
    }
    return norm_scale(simd_add_lanes(lanes), args->size, args->delta_eps);
}

/* A piece of it: as it is where another op left it. */
static void delta_normed(const struct norm_args *args, uint32_t first, uint32_t count, float scale,
                         float *value)
{
    float stored[NORM_PIECE];
    norm_scaled(value, first, count, scale, args->delta_weight, args->weight_dtype,
                args->delta_offset);
    number_round(stored, value, args->delta_dtype, count);
    number_widen(value, stored, args->delta_dtype, count);
}

static void norm_add(const struct norm_args *args, uint32_t row, void *residual, norm_delta *delta,
                     const void *context)
{
    float sum[NORM_PIECE], other[NORM_PIECE], by = 1;
    float scale = args->delta_scale != 0 ? args->delta_scale : 1;
    if (args->delta_normed)
        by = delta_scale(args, row, delta, context);
    for (uint32_t i = 0; i < args->size; i += NORM_PIECE) {
        uint32_t count = piece(args->size, i);
        void *at = number_at(residual, args->residual_dtype, i);
        number_widen(sum, at, args->residual_dtype, count);
        delta(context, row, i, count, true, other);
        if (args->delta_normed)
            delta_normed(args, i, count, by, other);
        for (uint32_t j = 0; j < count; j++)
            sum[j] += other[j] * scale;
        number_round(at, sum, args->residual_dtype, count);
    }
}

static float norm_mean(const struct norm_args *args, const void *residual)
{
    float lanes[SIMD_LANES] = {0}, value[NORM_PIECE];
    for (uint32_t i = 0; i < args->size; i += NORM_PIECE) {
        uint32_t count = piece(args->size, i);
        number_widen(value, number_at((void *)residual, args->residual_dtype, i),
                     args->residual_dtype, count);
        for (uint32_t j = 0; j < count; j++)
            lanes[j % SIMD_LANES] += value[j];
    }
    return simd_add_lanes(lanes) / (float)args->size;
}

/* Values of the residual as it is stored, without the mean. */
static void centered(const struct norm_args *args, void *residual, uint32_t first, uint32_t count,
                     float mean, float *ret)
{
    number_widen(ret, number_at(residual, args->residual_dtype, first), args->residual_dtype,
                 count);
    for (uint32_t j = 0; args->form == NORM_CENTERED && j < count; j++)
        ret[j] -= mean;
}

static float squares_of(const struct norm_args *args, void *residual, float mean)
{
    float lanes[SIMD_LANES] = {0}, value[NORM_PIECE];
    for (uint32_t i = 0; i < args->size; i += NORM_PIECE) {
        centered(args, residual, i, piece(args->size, i), mean, value);
        simd_best()->squares(lanes, value, piece(args->size, i));
    }
    return simd_add_lanes(lanes);
}

static void bias_add(const struct norm_args *args, uint32_t first, uint32_t count, float *value)
{
    float bias[NORM_PIECE];
    number_widen(bias, number_at(dev(args->bias), args->weight_dtype, first), args->weight_dtype,
                 count);
    for (uint32_t j = 0; j < count; j++)
        value[j] += bias[j];
}

void norm_row(const struct norm_args *args, uint32_t row, norm_delta *delta, const void *context)
{
    void *residual = body_at(args->residual, args->residual_dtype, row, args->residual_stride);
    float value[NORM_PIECE], mean = 0, scale = 1;
    if (delta)
        norm_add(args, row, residual, delta, context);
    if (!args->out)
        return;
    void *out = body_at(args->out, args->out_dtype, row, args->out_stride);
    if (args->form == NORM_CENTERED)
        mean = norm_mean(args, residual);
    if (args->form != NORM_ROUNDED)
        scale = norm_scale(squares_of(args, residual, mean), args->size, args->eps);
    for (uint32_t i = 0; i < args->size; i += NORM_PIECE) {
        uint32_t count = piece(args->size, i);
        centered(args, residual, i, count, mean, value);
        if (args->form != NORM_ROUNDED)
            norm_scaled(value, i, count, scale, args->weight, args->weight_dtype, args->offset);
        if (args->form == NORM_CENTERED && args->bias)
            bias_add(args, i, count, value);
        number_round(number_at(out, args->out_dtype, i), value, args->out_dtype, count);
    }
}

static void norm_own(const void *context, uint32_t row, uint32_t first, uint32_t count, bool last,
                     float *ret)
{
    const struct norm_args *args = context;
    const void *delta = body_at(args->delta, args->delta_dtype, row, args->delta_stride);
    (void)last;
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
    if (norm_refused(args))
        return cudaErrorInvalidValue;
    return body_launch(stream, "norm", norm_share, args, sizeof *args,
                       body_shares(args->rows.max, args->size));
}
