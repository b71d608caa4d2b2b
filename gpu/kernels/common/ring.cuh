/* A ring of stages in shared memory, which copies fill ahead of those who read.
 *
 * Each stage has a barrier that ends a phase when the stage is full and, where others fill it than
 * read it, one that does when all who read it have given it back. Both end one phase in a turn of
 * the ring; so a cursor is a stage and the parity of its turn, and whoever fills the ring and each
 * who reads it has one of its own. Barriers are told by their address in shared memory, the first
 * of [stages].
 *
 * Who fills: ring_wait_empty(), barrier_expect() of the bytes on ring_barrier() of the full ones,
 * copies that count there, ring_next(). Who reads: ring_wait_full(), then reads_before_copy() and
 * ring_give_back(), ring_next(). (Products of the tensor cores read the way that copies write:
 * behind them no fence is needed.) A warp that fills its own ring again has __syncwarp() instead of
 * a barrier. */
#pragma once

#include "gpu/kernels/common/mma.cuh"

struct ring_cursor {
    uint32_t stage, phase;
};

/* Of up to MOST stages; next to each other, so that one register finds both. */
template <uint32_t MOST> struct ring_barriers {
    uint64_t full[MOST], empty[MOST];
};

/* How many stages fit, of `most` that are of use. */
__host__ __device__ __forceinline__ uint32_t ring_stages(uint32_t bytes, uint32_t stage_bytes,
                                                         uint32_t most)
{
    uint32_t stages = bytes / stage_bytes;
    return stages < most ? stages : most;
}

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* One thread, before barrier_init_done(). `arrivals` end a phase of each: 1 where stages get full,
 * else of those who give a stage back all. */
__device__ __forceinline__ void ring_init(uint32_t barriers, uint32_t stages, uint32_t arrivals)
{
    for (uint32_t i = 0; i < stages; i++)
        barrier_init(barriers + i * 8, arrivals);
}

__device__ __forceinline__ void ring_next(ring_cursor &at, uint32_t stages)
{
    if (++at.stage == stages)
        at.stage = 0, at.phase ^= 1;
}

__device__ __forceinline__ uint32_t ring_barrier(uint32_t barriers, const ring_cursor &at)
{
    return barriers + at.stage * 8;
}

__device__ __forceinline__ void ring_wait_full(uint32_t full, const ring_cursor &at)
{
    barrier_wait(ring_barrier(full, at), at.phase);
}

/* In the first turn it does not wait: a barrier that is new is past the phase before its first. */
__device__ __forceinline__ void ring_wait_empty(uint32_t empty, const ring_cursor &at)
{
    barrier_wait(ring_barrier(empty, at), at.phase ^ 1);
}

__device__ __forceinline__ void ring_give_back(uint32_t empty, const ring_cursor &at)
{
    barrier_arrive(ring_barrier(empty, at));
}

#endif
