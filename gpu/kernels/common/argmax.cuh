/* The greatest of (value, id) pairs, ties to the lowest id, NaN below everything; and the log of a
 * sum of exponentials. Both over a block, in an order that depends on the row's length alone. */
#pragma once

#include <math.h>

#include "gpu/kernels/common/device.cuh"

struct best {
    float value;
    uint32_t id;
};

__device__ __forceinline__ best best_none()
{
    return {-INFINITY, UINT32_MAX};
}

__device__ __forceinline__ best best_of(best a, best b)
{
    return b.value > a.value || (b.value == a.value && b.id < a.id) ? b : a;
}

__device__ __forceinline__ best warp_best(best mine)
{
#pragma unroll
    for (int offset = WARP / 2; offset; offset /= 2) {
        best other = {__shfl_xor_sync(FULL_MASK, mine.value, offset),
                      __shfl_xor_sync(FULL_MASK, mine.id, offset)};
        mine = best_of(mine, other);
    }
    return mine;
}

/* For all threads of the block; scratch holds one per warp. */
__device__ __forceinline__ best block_best(best mine, best *scratch)
{
    return block_reduce(mine, best_none(), scratch, [](best of) { return warp_best(of); });
}

/* Maximum m and sum of exp(x - m), merged pairwise. */
struct mass {
    float top, sum;
};

__device__ __forceinline__ mass mass_join(mass a, mass b)
{
    float top = fmaxf(a.top, b.top);
    if (top == -INFINITY)
        return {top, 0.0f};
    return {top, a.sum * expf(a.top - top) + b.sum * expf(b.top - top)};
}

__device__ __forceinline__ mass warp_mass(mass mine)
{
#pragma unroll
    for (int offset = WARP / 2; offset; offset /= 2) {
        mass other = {__shfl_down_sync(FULL_MASK, mine.top, offset),
                      __shfl_down_sync(FULL_MASK, mine.sum, offset)};
        mine = mass_join(mine, other);
    }
    return {__shfl_sync(FULL_MASK, mine.top, 0), __shfl_sync(FULL_MASK, mine.sum, 0)};
}

__device__ __forceinline__ mass block_mass(mass mine, mass *scratch)
{
    return block_reduce(mine, mass{-INFINITY, 0.0f}, scratch,
                        [](mass of) { return warp_mass(of); });
}
