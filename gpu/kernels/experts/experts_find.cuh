/* Which pairs of which expert a block has: tiles of up to ROWS, numbered expert by expert. */
#pragma once

#include "gpu/kernels/experts/experts.cuh"

struct tile {
    uint32_t expert, first, count; /* of the segments' pairs */
};

/* How far a warp that asks for greater and greater numbers has looked: tiles of experts before. */
struct tile_cursor {
    uint32_t expert, tiles;
};

/* A warp; of some of the experts that are here. False: there are fewer tiles. Segments are read out
 * of the L2: some look ahead of their wait, while an SM may still have what was there before. */
template <int ROWS>
__device__ __forceinline__ bool tile_find_behind(const struct experts_args &a,
                                                 const struct expert_range &of, tile_cursor &from,
                                                 uint32_t number, tile &ret)
{
    uint32_t lane = threadIdx.x % WARP, end_expert = of.first + of.count;
    for (; from.expert < end_expert; from.expert += WARP) {
        uint32_t expert = from.expert + lane;
        uint32_t first = expert < end_expert ? __ldcg(a.segments + expert) : 0;
        uint32_t count = expert < end_expert ? __ldcg(a.segments + expert + 1) - first : 0;
        uint32_t tiles = (count + ROWS - 1) / ROWS, end = tiles;
#pragma unroll
        for (int step = 1; step < WARP; step *= 2) {
            uint32_t left = __shfl_up_sync(FULL_MASK, end, step);
            end += lane >= step ? left : 0;
        }
        uint32_t beyond = __ballot_sync(FULL_MASK, number < from.tiles + end);
        if (beyond) {
            int source = __popc(~beyond & (beyond - 1)); /* the first one */
            uint32_t skipped = (number - from.tiles - (end - tiles)) * ROWS;
            skipped = __shfl_sync(FULL_MASK, skipped, source);
            count = __shfl_sync(FULL_MASK, count, source);
            ret = {from.expert + source, __shfl_sync(FULL_MASK, first, source) + skipped,
                   min(count - skipped, (uint32_t)ROWS)};
            return true;
        }
        from.tiles += __shfl_sync(FULL_MASK, end, WARP - 1);
    }
    return false;
}

/* The same of any number. */
template <int ROWS>
__device__ __forceinline__ bool tile_find(const struct experts_args &a,
                                          const struct expert_range &of, uint32_t number, tile &ret)
{
    tile_cursor from = {of.first, 0};
    return tile_find_behind<ROWS>(a, of, from, number, ret);
}

/* The block's tile, known to all of its threads. */
template <int ROWS>
__device__ __forceinline__ bool tile_begin(const struct experts_args &a, tile &ret)
{
    __shared__ tile found;
    __shared__ bool is_there;
    if (threadIdx.x < WARP) {
        tile at = {};
        bool there = tile_find<ROWS>(a, {0, a.own.count}, blockIdx.x, at);
        if (threadIdx.x == 0) {
            found = at;
            is_there = there;
        }
    }
    __syncthreads();
    ret = found;
    return is_there;
}
