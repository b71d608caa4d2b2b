/* The bodies of op_adapt, and the list of rows that they share. */
#pragma once

#include "gpu/kernels/adapt/adapt.h"
#include "gpu/kernels/common/device.cuh"

#define ADAPT_TILE 16 /* rows of one adapter that are worked on together, at most */

/* `list`: a word that counts; rows, those of an adapter side by side, those without one last; and
 * tiles of them, of two words each. */
struct adapt_tile {
    uint32_t first, count, adapter; /* adapter 0: none */
};

/* Tiles of rows with an adapter; or of all. */
__device__ __forceinline__ uint32_t adapt_tiles(const struct adapt_args &a, bool all)
{
    return all ? a.list[0] >> 16 : a.list[0] & 0xffff;
}

__device__ __forceinline__ struct adapt_tile adapt_tile_get(const struct adapt_args &a,
                                                            uint32_t number)
{
    const uint32_t *words = a.list + 1 + a.rows.max + 2 * (size_t)number;
    return {words[0], words[1] & 0xff, words[1] >> 8};
}

__device__ __forceinline__ void adapt_tile_put(const struct adapt_args &a, uint32_t number,
                                               const struct adapt_tile &tile)
{
    uint32_t *words = a.list + 1 + a.rows.max + 2 * (size_t)number;
    words[0] = tile.first;
    words[1] = tile.adapter << 8 | tile.count;
}

__device__ __forceinline__ uint32_t part_begin(const struct adapt_args &a, uint32_t p)
{
    return p ? a.ends[p - 1] : 0;
}

/* The number of the last ADAPT whose x is there, and all else that the step made before; of those
 * that the kernels of adapted.h do. */
__device__ __forceinline__ uint32_t *adapt_x_word(const struct adapt_args &a)
{
    return reinterpret_cast<uint32_t *>(a.sums + ADAPT_FLOATS(a.rank_max));
}

/* Parts whose outputs are counted: gate and up are counted once. */
__device__ __forceinline__ uint32_t counted_parts(const struct adapt_args &a)
{
    return a.gated ? 1 : a.part_count;
}

/* Makes the step's list. */
cudaError_t adapt_list(const struct adapt_args *args, cudaStream_t stream);

/* Of the namespace's dtype on sm_90, where A and B have it as well. */
#define ADAPT_OF_HALF                                                                              \
    bool adapt_tiled_can(const struct adapt_args *args);                                           \
    cudaError_t adapt_tiled(const struct adapt_args *args, cudaStream_t stream);                   \
    bool adapt_few_can(const struct adapt_args *args);                                             \
    cudaError_t adapt_few(const struct adapt_args *args, cudaStream_t stream);
namespace bf16
{
ADAPT_OF_HALF
}
namespace f16
{
ADAPT_OF_HALF
}
