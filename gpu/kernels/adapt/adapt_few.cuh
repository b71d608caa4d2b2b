/* Few rows of many adapters, whose time is that of A and B to come: two kernels, in which each of
 * as many blocks as the device holds has a ring in shared memory, which two warps fill far ahead of
 * the others, who multiply.
 *
 * The first (adapt_shrink.cu) makes A x, the second (adapt_expand.cu) multiplies with B. It starts
 * while the first one runs: which items there are and B depend on nothing that a step computes, nor
 * does A, so that rings are filled before the kernel in front has ended.
 *
 * Rings are filled by threads, 16 bytes each: bulk copies of a row of 512 bytes each were bound by
 * their number. What a row gets depends on k and rank alone: on neither its tile nor the blocks. */
#pragma once

#include "gpu/kernels/adapt/adapt.cuh"
#include "gpu/kernels/common/device_props.cuh"
#include "gpu/kernels/common/ring.cuh"

namespace HALF
{

#define FEW_WARPS 8   /* that multiply */
#define FEW_FILLERS 2 /* warps: for A or B, and for x or y, which come later */
#define FEW_THREADS ((FEW_WARPS + FEW_FILLERS) * WARP)
#define FEW_BLOCKS 2 /* of an SM */
#define STEP_R 16    /* rows of A in one product */
#define PIECE 256    /* values of k of a stage, 32 for each warp; or outputs, one for each thread */
#define THIN 4       /* rows of x that stages have room for, where no tile has more */
#define STAGES_MAX 16
#define ITEMS 32               /* of a block, known at a time */
#define FEW_STATIC (20u << 10) /* bytes of shared memory, beside rings */

cudaError_t adapt_shrink(const struct adapt_args *args, cudaStream_t stream);

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* What a block knows of the step. */
struct few_shared {
    ring_barriers<STAGES_MAX> barriers;
    uint32_t list[1 + 3 * ADAPT_FEW];
    uint32_t count; /* items */
};

struct few_ring {
    uint32_t full, empty, base, stages, stage_bytes;
};

__device__ __forceinline__ uint32_t stage_at(const few_ring &ring, const ring_cursor &at)
{
    return ring.base + at.stage * ring.stage_bytes;
}

/* Whole block: reads the step's list, and says whether no tile is of more than THIN rows. */
__device__ __forceinline__ bool list_read(const struct adapt_args &a, few_shared &s)
{
    for (uint32_t i = threadIdx.x; i < 1 + 3 * a.rows.max; i += FEW_THREADS)
        s.list[i] = a.list[i];
    __syncthreads();
    bool thick = false;
    for (uint32_t i = threadIdx.x; i < s.list[0] >> 16; i += FEW_THREADS)
        thick = thick || (s.list[2 + a.rows.max + 2 * i] & 0xff) > THIN;
    return !__syncthreads_or(thick);
}

__device__ __forceinline__ struct adapt_tile tile_of(const struct adapt_args &a,
                                                     const few_shared &s, uint32_t number)
{
    const uint32_t *words = s.list + 1 + a.rows.max + 2 * number;
    return {words[0], words[1] & 0xff, words[1] >> 8};
}

__device__ __forceinline__ size_t row_of(const few_shared &s, uint32_t first, uint32_t number)
{
    return s.list[1 + first + number];
}

/* Whole block. */
__device__ __forceinline__ few_ring ring_make(few_shared &s, const void *memory, uint32_t bytes,
                                              uint32_t stage_bytes)
{
    few_ring ring = {shared_address(s.barriers.full), shared_address(s.barriers.empty),
                     shared_address(memory), ring_stages(bytes, stage_bytes, STAGES_MAX),
                     stage_bytes};
    if (threadIdx.x == 0) {
        ring_init(ring.full, ring.stages, FEW_FILLERS * WARP);
        ring_init(ring.empty, ring.stages, FEW_WARPS);
        barrier_init_done();
    }
    return ring;
}

enum few_role { MULTIPLIES, FILLS_WEIGHTS, FILLS_ROWS };

__device__ __forceinline__ enum few_role few_role()
{
    uint32_t warp = threadIdx.x / WARP;
    return warp < FEW_WARPS ? MULTIPLIES : warp == FEW_WARPS ? FILLS_WEIGHTS : FILLS_ROWS;
}

/* A warp keeps what its lanes have found, of those that are valid. */
template <class Item>
__device__ __forceinline__ void items_keep(few_shared &s, Item *items, const Item &own, bool valid)
{
    uint32_t all = __ballot_sync(FULL_MASK, valid), lane = threadIdx.x % WARP;
    if (valid)
        items[__popc(all & ((1u << lane) - 1))] = own;
    if (lane == 0)
        s.count = __popc(all);
}
static_assert(ITEMS == WARP, "a lane finds one");

/* A warp that multiplies has read the stage. */
__device__ __forceinline__ void stage_leave(const few_ring &ring, ring_cursor &at)
{
    __syncwarp();
    if (threadIdx.x % WARP == 0)
        ring_give_back(ring.empty, at);
    ring_next(at, ring.stages);
}

/* All of those that multiply. */
__device__ __forceinline__ void multiplying_meet()
{
    asm volatile("bar.sync 1, %0;" ::"n"(FEW_WARPS * WARP) : "memory");
}

#endif

} // namespace HALF
