/* The norm between two products of few rows, half of it done by each (product.h): of the one before
 * it, what it hands on; of the one behind it, the scale of each row. */
#pragma once

#include "gpu/kernels/narrow.cuh"
#include "gpu/kernels/norm.cuh"
#include "gpu/kernels/product.cuh"

#define NORM_TURNS (PRODUCT_PARTS / WARP)

namespace NARROW
{

/* F16 has not the range for values that are yet to be scaled. */
static inline bool product_norm_can(const struct product_args *a, uint32_t processors)
{
    bool hands = !a->hands.weight || (a->adds && !a->gated);
    return (!a->hands.weight && !a->owed.squares) ||
           (hands && DTYPE_NARROW == DTYPE_BF16 && processors <= PRODUCT_PARTS);
}

/* A lane's part of a row's sums of squares: asked for long before they are added. */
struct norm_parts {
    float part[NORM_TURNS];
};

__device__ __forceinline__ norm_parts norm_ask(const struct product_args &a, uint32_t row,
                                               uint32_t parts)
{
    norm_parts out;
#pragma unroll
    for (uint32_t i = 0; i < NORM_TURNS; i++) {
        uint32_t at = threadIdx.x % WARP + i * WARP;
        out.part[i] = row < a.rows.max && at < parts ? a.owed.squares[row * PRODUCT_PARTS + at] : 0;
    }
    return out;
}

/* Whole warp. */
__device__ __forceinline__ float norm_scale_of(const struct product_args &a,
                                               const norm_parts &parts)
{
    float sum = 0;
#pragma unroll
    for (uint32_t i = 0; i < NORM_TURNS; i++)
        sum += parts.part[i];
    return norm_scale(warp_sum(sum), a.w.k, a.owed.eps);
}

/* One output, as the residual has it now: what the next product reads of it. The square, to be
 * added up. */
__device__ __forceinline__ float norm_hand(const struct product_args &a, uint32_t row, uint32_t n,
                                           float value, float weight)
{
    store_value(a.hands.out, (size_t)row * a.hands.out_stride + n, DTYPE_NARROW, value * weight);
    return value * value;
}

} // namespace NARROW
