/* What a stage of matmul_whole_fine.cu holds, and how the ninth warp fills the ring: weights,
 * scales and zeros before the kernel waits for the one before it, x behind that. */
#pragma once

#include "gpu/kernels/matmul/matmul_whole.cuh"

namespace HALF
{

#define ROWS_MAX 128
#define THREADS ((WARPS + 1) * WARP)

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* Where things are in a stage of so many rows. */
template <int N, enum format FORMAT> __device__ __forceinline__ constexpr uint32_t whole_scales_at()
{
    return N * STEP * 2 + OUTPUTS * whole_step<FORMAT>();
}

/* Whole warp: the scales and zeros of a stage, an output for each lane in turns. */
__device__ __forceinline__ void whole_bring_scales(const whole_args &a, const whole_tile &tile,
                                                   uint32_t step, uint32_t to)
{
    const struct weight &w = a.m.w;
    uint32_t begin = step * STEP, end = min(begin + STEP, w.k), first = 0, count = 1;
    if (w.scales.k) {
        first = begin / w.scales.k;
        count = (end - 1) / w.scales.k + 1 - first;
    }
    const float *scales = static_cast<const float *>(w.scales.data);
    size_t zeros = (size_t)(w.scales.n ? w.n : 1) * a.columns;
    for (uint32_t i = threadIdx.x % WARP; i < OUTPUTS; i += WARP) {
        uint32_t n = whole_output_of(a, tile, i);
        if (n >= w.n)
            continue;
        size_t at = (size_t)(w.scales.n ? n : 0) * a.columns + first;
        for (uint32_t j = 0; j < count; j++)
            copy_word(to + (i * a.groups + j) * 4, scales + at + j, 4);
        for (uint32_t j = 0; j < a.zero_words; j++) {
            size_t word = at / 4 * 4 + j * 4;
            if (word < at + count)
                copy_word(to + OUTPUTS * a.groups * 4 + (i * a.zero_words + j) * 4, w.zeros + word,
                          static_cast<uint32_t>(min(zeros - word, (size_t)4)));
        }
    }
}

/* Whole warp: all of a stage but x, and how much there will be. */
template <int N, enum format FORMAT>
__device__ __forceinline__ void whole_bring_weights(const whole_args &a, const whole_ring &ring,
                                                    const whole_tile &tile, uint32_t stage,
                                                    uint32_t step, uint64_t policy)
{
    const uint32_t bytes = whole_step<FORMAT>();
    uint32_t to = ring.stages + stage * a.stage_bytes, barrier = ring.full + stage * 8;
    if (warp_elect()) {
        barrier_expect(barrier, a.block_rows * STEP * 2 + OUTPUTS * bytes);
#pragma unroll
        for (uint32_t i = 0; i < 2; i++)
            copy_box(to + N * STEP * 2 + i * SIDE * bytes, &a.w, step * bytes,
                     tile.output + i * a.second, barrier, policy);
    }
    __syncwarp();
    whole_bring_scales(a, tile, step, to + whole_scales_at<N, FORMAT>());
    copies_arrive(barrier);
}

template <int N>
__device__ __forceinline__ void whole_bring_x(const whole_args &a, const whole_ring &ring,
                                              const whole_tile &tile, uint32_t stage, uint32_t step,
                                              uint64_t policy)
{
    uint32_t to = ring.stages + stage * a.stage_bytes;
    if (warp_elect())
#pragma unroll
        for (uint32_t i = 0; i < 2; i++)
            copy_box(to + i * N * STEP, &a.x, step * STEP + i * (STEP / 2), tile.row,
                     ring.full + stage * 8, policy);
    __syncwarp();
}

template <int N, enum format FORMAT>
__device__ __forceinline__ void whole_bring(const whole_args &a, const whole_ring &ring,
                                            const whole_tile &tile)
{
    uint64_t once = policy_once(), again = policy_again();
    uint32_t count = tile.end - tile.first, ahead = min(count, a.stages);
    for (uint32_t i = 0; i < ahead; i++)
        whole_bring_weights<N, FORMAT>(a, ring, tile, i, tile.first + i,
                                       a.blocks > 1 ? again : once);
    grid_wait();
    grid_trigger();
    for (uint32_t i = 0; i < ahead; i++)
        whole_bring_x<N>(a, ring, tile, i, tile.first + i, again);
    ring_cursor at = {0, 0};
    for (uint32_t i = 0; i < count; i++) {
        if (i >= ahead) {
            ring_wait_empty(ring.empty, at);
            whole_bring_weights<N, FORMAT>(a, ring, tile, at.stage, tile.first + i,
                                           a.blocks > 1 ? again : once);
            whole_bring_x<N>(a, ring, tile, at.stage, tile.first + i, again);
        }
        ring_next(at, a.stages);
    }
}

#endif

} // namespace HALF
