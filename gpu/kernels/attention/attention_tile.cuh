/* How the prefill path divides a step: tiles of `size` queries of a row, numbered through the rows
 * of its kind: those that have more than ATTENTION_DECODE_MAX queries, or the short ones. */
#pragma once

#include "gpu/kernels/attention/attention.cuh"

struct attention_tile {
    attention_row row;
    uint32_t query; /* the first, from the row's first */
    bool found;
};

/* Tiles of a step at most, by the host's bounds: a block without a tile is not free, since it takes
 * an SM's whole shared memory to find out. */
static inline uint32_t tile_bound(const struct batch *batch, uint32_t size, bool shorts)
{
    if (shorts)
        return batch->rows_max * ceil_div(ATTENTION_DECODE_MAX, size);
    return batch->prefill_tokens_max / size + batch->prefill_rows_max;
}

/* Tile `number`; within a row the last tile, which sees the most keys, comes first. Called by whole
 * blocks of a multiple of 32 threads, up to 1024; ends with a barrier. */
__device__ static attention_tile tile_find(const struct batch &batch,
                                           const struct batch_group &group, uint32_t number,
                                           uint32_t size, bool shorts)
{
    __shared__ uint32_t warp_sum_of[WARP];
    __shared__ uint32_t found_row, found_tile;
    uint32_t rows = batch.counts->rows, before = 0;
    uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    if (threadIdx.x == 0)
        found_row = UINT32_MAX;
    __syncthreads();
    for (uint32_t base = 0; base < rows; base += blockDim.x) {
        uint32_t index = base + threadIdx.x;
        uint32_t q_len = index < rows ? batch.rows[index].q_len : 0;
        bool chosen = shorts ? q_len <= ATTENTION_DECODE_MAX : q_len > ATTENTION_DECODE_MAX;
        uint32_t tiles = chosen ? (q_len + size - 1) / size : 0, sum = tiles;
        for (uint32_t offset = 1; offset < WARP; offset *= 2) {
            uint32_t other = __shfl_up_sync(FULL_MASK, sum, offset);
            if (lane >= offset)
                sum += other;
        }
        if (lane == WARP - 1)
            warp_sum_of[warp] = sum;
        __syncthreads();
        for (uint32_t w = 0; w < blockDim.x / WARP; w++) {
            if (w == warp)
                sum += before;
            before += warp_sum_of[w];
        }
        if (number < sum && number >= sum - tiles) {
            found_row = index;
            found_tile = sum - 1 - number;
        }
        __syncthreads();
        if (before > number)
            break;
    }
    attention_tile out = {};
    out.found = found_row != UINT32_MAX;
    if (out.found) {
        out.row = attention_row_at(batch, group, found_row);
        out.query = found_tile * size;
    }
    return out;
}
