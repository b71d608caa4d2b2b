/* What experts_e2m1.cu and experts_eight.cu do alike: 16 rows of w on the long side of the tensor
 * cores' instructions (gated: 8 of gate, and the same of up), and the pairs of one expert on the
 * short one, eight a tile; the block's warps share k. */
#pragma once

#include "gpu/kernels/experts/experts_find.cuh"

#define NARROW_WARPS 4
#define NARROW_THREADS (NARROW_WARPS * WARP)
#define NARROW_ROWS 16 /* of w: a set */
#define NARROW_PAIRS 8 /* of a tile */

/* Outputs of a set. */
__host__ __device__ __forceinline__ uint32_t narrow_width(const struct experts_args &a)
{
    return a.gated ? NARROW_ROWS / 2 : NARROW_ROWS;
}

__device__ __forceinline__ uint32_t narrow_word(const uint4 &raw, int i)
{
    return i == 0 ? raw.x : i == 1 ? raw.y : i == 2 ? raw.z : raw.w;
}

/* Sums of a tile, by all warps, from the first to the last; `first`: of the tile's pairs among the
 * segments'. */
__device__ __forceinline__ void narrow_store(const struct experts_args &a, const tile &at,
                                             uint32_t set, uint32_t first, float (&c)[4])
{
    __shared__ float sums[NARROW_WARPS][NARROW_ROWS][NARROW_PAIRS];
    uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        sums[warp][lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2] = c[i];
        c[i] = 0.0f; /* for the next set */
    }
    __syncthreads();
    uint32_t row = threadIdx.x / NARROW_PAIRS, pair = threadIdx.x % NARROW_PAIRS;
    uint32_t width = narrow_width(a), n = set * width + row;
    if (row < width && n < experts_outputs(&a) && first + pair < at.count) {
        float y = 0, up = 0;
#pragma unroll
        for (int i = 0; i < NARROW_WARPS; i++) {
            y += sums[i][row][pair];
            up += sums[i][(row + width) % NARROW_ROWS][pair];
        }
        uint32_t number = a.segments[a.own.count + 1 + at.first + first + pair];
        y += experts_bias(a, at.expert, n);
        if (a.gated)
            y = experts_gated(a, y, up + experts_bias(a, at.expert, a.w.n / 2 + n));
        store_value(a.y, (size_t)number * a.y_stride + n, a.dtype, y);
    }
    __syncthreads(); /* sums are read above and written for the next tile */
}
