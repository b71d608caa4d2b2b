/* The arithmetic of op_wide_norm, so that bits are the same wherever it is done. What a thread has
 * of a value: eight columns a turn. */
#pragma once

#include "gpu/kernels/norm/norm.cuh"
#include "gpu/kernels/norm/wide_norm.h"

__device__ __forceinline__ uint32_t wide_at(int turn)
{
    return (turn * blockDim.x + threadIdx.x) * 8;
}

/* Of both values: of the wider one, as a row's sum of the other is the same among more. */
static inline uint32_t wide_size(const struct wide_norm_args *args)
{
    uint32_t a = args->value[0].size, b = args->value[1].size;
    return a > b ? a : b;
}

template <int TURNS>
__device__ __forceinline__ void wide_weights(float8 (&weight)[TURNS],
                                             const struct wide_norm_args &a,
                                             const struct wide_value &of)
{
#pragma unroll
    for (int turn = 0; turn < TURNS; turn++)
        weight[turn] = norm_weights(of.weight, wide_at(turn), of.size, a.weight_dtype, a.offset);
}

template <int TURNS>
__device__ __forceinline__ void wide_load(float8 (&value)[TURNS], const struct wide_norm_args &a,
                                          const struct wide_value &of, uint32_t row)
{
    size_t from = (size_t)row * a.stride + of.first;
#pragma unroll
    for (int turn = 0; turn < TURNS; turn++) {
        uint32_t i = wide_at(turn);
        value[turn] = {};
        if (i < of.size)
            value[turn] = load_float8(a.at, from + i, from + of.size, a.dtype);
    }
}

/* Whole block. */
template <int TURNS>
__device__ __forceinline__ float wide_squares(const float8 (&value)[TURNS], float *scratch)
{
    float squares = 0;
#pragma unroll
    for (int turn = 0; turn < TURNS; turn++)
        squares = norm_squares(squares, value[turn]);
    return block_sum(squares, scratch);
}

/* `squares`: of all ranks' columns. */
template <int TURNS>
__device__ __forceinline__ void wide_store(const float8 (&value)[TURNS],
                                           const float8 (&weight)[TURNS],
                                           const struct wide_norm_args &a,
                                           const struct wide_value &of, uint32_t row, float squares)
{
    size_t to = (size_t)row * a.stride + of.first;
    float scale = norm_scale(squares, of.size * a.ranks, a.eps);
#pragma unroll
    for (int turn = 0; turn < TURNS; turn++) {
        uint32_t i = wide_at(turn);
        if (i < of.size)
            store_float8(a.at, to + i, to + of.size, a.dtype,
                         norm_scaled(value[turn], scale, weight[turn]));
    }
}
