/* The norm between two products of few rows, half of it done by each (matmul.h): of the one before
 * it, what it hands on; of the one behind it, the scale of each row. */
#pragma once

#include "gpu/kernels/common/half.cuh"
#include "gpu/kernels/matmul/matmul.cuh"
#include "gpu/kernels/norm/norm.cuh"

#define NORM_TURNS (MATMUL_PARTS / WARP)

namespace HALF
{

/* F16 has not the range for values that are yet to be scaled. */
static inline bool matmul_norm_can(const struct matmul_args *a, uint32_t processors)
{
    bool norm_out = !a->norm_out.weight || (a->adds && !a->gated && !a->activates);
    return (!a->norm_out.weight && !a->norm_in.squares) ||
           (norm_out && DTYPE_HALF == DTYPE_BF16 && processors <= MATMUL_PARTS);
}

/* A lane's part of a row's sums of squares: asked for long before they are added. */
struct norm_parts {
    float part[NORM_TURNS];
};

__device__ __forceinline__ norm_parts norm_ask(const struct matmul_args &a, uint32_t row,
                                               uint32_t parts)
{
    norm_parts out;
#pragma unroll
    for (uint32_t i = 0; i < NORM_TURNS; i++) {
        uint32_t at = threadIdx.x % WARP + i * WARP;
        out.part[i] =
            row < a.rows.max && at < parts ? a.norm_in.squares[row * MATMUL_PARTS + at] : 0;
    }
    return out;
}

/* Whole warp. */
__device__ __forceinline__ float norm_scale_of(const struct matmul_args &a, const norm_parts &parts)
{
    float sum = 0;
#pragma unroll
    for (uint32_t i = 0; i < NORM_TURNS; i++)
        sum += parts.part[i];
    return norm_scale(warp_sum(sum), a.w.k, a.norm_in.eps);
}

/* One output, as the residual has it now: what the next product reads of it. The square, to be
 * added up. */
__device__ __forceinline__ float norm_hand(const struct matmul_args &a, uint32_t row, uint32_t n,
                                           float value, float weight)
{
    store_value(a.norm_out.out, (size_t)row * a.norm_out.out_stride + n, DTYPE_HALF,
                value * weight);
    return value * value;
}

} // namespace HALF
