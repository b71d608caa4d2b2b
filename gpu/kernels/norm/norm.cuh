/* What all norms do alike, so that a row has the same bits wherever it is normed. */
#pragma once

#include "gpu/kernels/common/device.cuh"
#include "gpu/kernels/norm/norm.h"

#define NORM_THREADS 1024 /* eight values of a row each, and of longer rows eight more per turn */

/* The threads among which the squares of a row are dealt; their sums are added by block_sum(). */
static inline unsigned norm_threads(uint32_t size)
{
    return threads_for(size, NORM_THREADS);
}

/* Weights i .. i + 7 of `size`; ones where there are none. */
__device__ __forceinline__ float8 norm_weights(const void *weight, uint32_t i, uint32_t size,
                                               enum dtype dtype, float offset)
{
    float8 out = {{1, 1, 1, 1, 1, 1, 1, 1}};
    if (!weight || i >= size)
        return out;
    out = load_float8(weight, i, size, dtype);
#pragma unroll
    for (int j = 0; j < 8; j++)
        out.v[j] += offset;
    return out;
}

/* What is added: rounded apart, as the CPU does. */
__device__ __forceinline__ float norm_delta(float delta, const struct norm_args &a)
{
    return a.delta_scale != 0 ? __fmul_rn(delta, a.delta_scale) : delta;
}

__device__ __forceinline__ float norm_squares(float squares, const float8 &value)
{
#pragma unroll
    for (int j = 0; j < 8; j++)
        squares = __fmaf_rn(value.v[j], value.v[j], squares);
    return squares;
}

__device__ __forceinline__ float norm_scale(float squares, uint32_t size, float eps)
{
    return rsqrtf(squares / (float)size + eps);
}

__device__ __forceinline__ float8 norm_scaled(const float8 &value, float scale,
                                              const float8 &weight)
{
    float8 out;
#pragma unroll
    for (int j = 0; j < 8; j++)
        out.v[j] = value.v[j] * scale * weight.v[j];
    return out;
}

/* A delta that was normed: as it is where another op left it. */
__device__ __forceinline__ float8 norm_scaled_delta(const float8 &delta, float scale,
                                                    const float8 &weight, const struct norm_args &a)
{
    float8 out = norm_scaled(delta, scale, weight);
#pragma unroll
    for (int j = 0; j < 8; j++)
        out.v[j] = round_value(out.v[j], a.delta_dtype);
    return out;
}

/* The residual with what is added, as it is stored. */
__device__ __forceinline__ void norm_add(float8 &value, const float8 &delta,
                                         const struct norm_args &a)
{
#pragma unroll
    for (int j = 0; j < 8; j++)
        value.v[j] = round_value(value.v[j] + norm_delta(delta.v[j], a), a.residual_dtype);
}
