/* How a warp of gemv_whole.cu multiplies what it has of a stage, and adds it up by groups. */
#pragma once

#include "gpu/kernels/matmul/matmul_whole.cuh"

namespace HALF
{

#define FEW_WARPS 12 /* that multiply */
#define WARP_OUTPUTS 32
#define MULTIPLIERS (FEW_WARPS * WARP)
#define THREADS (MULTIPLIERS + 2 * WARP) /* with one that fills the ring, and one for the norm */
#define PER_PROCESSOR 2 /* blocks: two of this kernel, or one and one of the next */
#define FEW_STAGES_MAX 12

/* Of a tile of so many outputs: the warps that take a step together, and how many take turns. */
__host__ __device__ constexpr uint32_t few_together(int height)
{
    return height / WARP_OUTPUTS;
}

__host__ __device__ constexpr uint32_t few_parts(int height)
{
    return FEW_WARPS / few_together(height);
}

/* ---- scales ---- */

/* Of an output and a step: of its one group, or of each of its blocks of columns. Zeros come as the
 * words that they are in. */
template <bool FINE> struct few_scales {
    static constexpr int COUNT = FINE ? BLOCKS : 1, AHEAD = FINE ? 2 : 4; /* AHEAD: steps */
    float scale[COUNT];
    uint32_t zero[COUNT];
};

/* Those of a warp's next steps, [step][lane]: a lane copies those of one output. */
template <bool FINE> struct few_slots {
    few_scales<FINE> of[few_scales<FINE>::AHEAD][WARP];
};

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* Where a lane's output has its first ones, in both arrays. */
template <int HEIGHT>
__device__ __forceinline__ uint32_t few_scales_of(const whole_args &a, const whole_tile &tile)
{
    uint32_t of = threadIdx.x % (HEIGHT / WARP_OUTPUTS * WARP) / WARP * WARP_OUTPUTS;
    of += threadIdx.x % WARP;
    uint32_t n = min(whole_output_of(a, tile, of), a.m.w.n - 1);
    return (a.m.w.scales.n ? n : 0) * a.columns;
}

template <bool FINE>
__device__ __forceinline__ uint32_t few_group(const whole_args &a, uint32_t step, uint32_t block)
{
    return FINE ? min((step * STEP + block * WHOLE_BLOCK) / a.m.w.scales.k, a.columns - 1)
                : step >> a.group_shift;
}

/* Asks for those of a step, if there is one; `slot` is the lane's place for it. */
template <bool FINE>
__device__ __forceinline__ void few_scales_ask(const whole_args &a, uint32_t from,
                                               const whole_tile &tile, uint32_t step, uint32_t slot)
{
    const struct weight &w = a.m.w;
#pragma unroll
    for (uint32_t i = 0; i < few_scales<FINE>::COUNT && step < tile.end; i++) {
        const uint32_t at = from + few_group<FINE>(a, step, i), word = at / 4 * 4;
        copy_word(slot + i * 4, static_cast<const float *>(w.scales.data) + at, 4);
        if (w.zeros)
            copy_word(slot + (few_scales<FINE>::COUNT + i) * 4, w.zeros + word,
                      min(a.zero_bytes - word, 4u));
    }
    copy_async_commit();
}

/* Waits for those that the lane asked for first. */
template <bool FINE>
__device__ __forceinline__ few_scales<FINE> few_scales_take(const whole_args &a, uint32_t from,
                                                            uint32_t step, uint32_t slot)
{
    few_scales<FINE> out;
    copy_async_wait<few_scales<FINE>::AHEAD - 1>();
#pragma unroll
    for (uint32_t i = 0; i < few_scales<FINE>::COUNT; i++) {
        out.scale[i] = __uint_as_float(load_shared_word(slot + i * 4));
        out.zero[i] = 0;
        if (a.m.w.zeros)
            out.zero[i] = load_shared_byte(slot + (few_scales<FINE>::COUNT + i) * 4 +
                                           (from + few_group<FINE>(a, step, i)) % 4);
    }
    return out;
}

/* A warp's scales: what its lane goes by. */
struct few_ahead {
    uint32_t from, slots; /* slots: the lane's place for the first step */
};

/* Asks for as many as there is room for; those are of weights, and no kernel writes them. */
template <int HEIGHT, bool FINE>
__device__ __forceinline__ few_ahead few_ahead_of(const whole_args &a, const whole_tile &tile,
                                                  uint32_t memory)
{
    const uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const few_ahead out = {few_scales_of<HEIGHT>(a, tile),
                           memory + warp * static_cast<uint32_t>(sizeof(few_slots<FINE>)) +
                               lane * static_cast<uint32_t>(sizeof(few_scales<FINE>))};
#pragma unroll
    for (uint32_t i = 0; i < few_scales<FINE>::AHEAD; i++)
        few_scales_ask<FINE>(a, out.from, tile,
                             tile.first + warp / few_together(HEIGHT) + i * few_parts(HEIGHT),
                             out.slots + i * WARP * sizeof(few_scales<FINE>));
    return out;
}

/* ---- a step ---- */

/* Where a lane's things are in a stage. */
struct few_lane {
    uint32_t words, turn; /* words: of the first of four outputs, eight apart */
    uint32_t x;           /* as load_matrices() asks for them: of the first block of columns */
};

template <int N, int HEIGHT, enum format FORMAT>
__device__ __forceinline__ few_lane few_lane_of()
{
    few_lane out;
    const uint32_t lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const uint32_t of = warp % few_together(HEIGHT) * WARP_OUTPUTS + lane / 4, row = lane % 8;
    out.turn = (FORMAT == FORMAT_U4 ? of / 2 % 4 : of % 8) << 4;
    out.words = N * STEP * 2 + of * whole_step<FORMAT>() + lane % 4 * 4;
    out.x = row * STEP + ((lane / 8 ^ row) << 4);
    asm volatile("" : "+r"(out.words), "+r"(out.turn), "+r"(out.x)); /* not made anew each time */
    return out;
}

/* Words of a block of 32 columns, of two outputs. */
template <enum format FORMAT> struct few_words {
    uint32_t of[2][FORMAT == FORMAT_U4 ? 1 : 2];
};

/* Of the first two of a lane's four outputs, or the others. */
template <enum format FORMAT>
__device__ __forceinline__ void few_words_load(few_words<FORMAT> &out, const few_lane &lane,
                                               uint32_t stage, int block, int pair)
{
    constexpr int EACH = FORMAT == FORMAT_U4 ? 1 : 2;
#pragma unroll
    for (int j = 0; j < EACH; j++) {
        uint32_t at = stage + lane.words + ((block * EACH + j) << 4 ^ lane.turn);
#pragma unroll
        for (int i = 0; i < 2; i++)
            out.of[i][j] = load_shared_word(at + (2 * pair + i) * 8 * whole_step<FORMAT>());
    }
}

/* Sums of 32 outputs, [sixteen of them][eight rows of x]. */
template <int N> struct few_sums {
    float of[2][N / 8][4];
};

/* sums += the products of a block of columns; words of the next take the place of its own as soon
 * as these are changed. */
template <int N, enum format FORMAT>
__device__ __forceinline__ void few_block(few_sums<N> &sums, few_words<FORMAT> (&words)[2],
                                          const uint32_t (&zeros)[4], const few_lane &lane,
                                          uint32_t stage, int block)
{
    uint32_t x[N / 8][4];
#pragma unroll
    for (int i = 0; i < N / 8; i++)
        load_matrices(x[i], stage + block / 2 * (N * STEP) + i * (8 * STEP) +
                                (lane.x ^ (block % 2 * 64)));
#pragma unroll
    for (int m = 0; m < 2; m++) {
        uint32_t pairs[2][4];
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
            for (int j = 0; j < 4; j++)
                pairs[i][j] =
                    FORMAT == FORMAT_U4
                        ? whole_pair<FORMAT>(words[m].of[i][0], j, zeros[2 * m + i])
                        : whole_pair<FORMAT>(words[m].of[i][FORMAT == FORMAT_U4 ? 0 : j / 2], j % 2,
                                             zeros[2 * m + i]);
        if (block + 1 < BLOCKS)
            few_words_load(words[m], lane, stage, block + 1, m);
#pragma unroll
        for (int half = 0; half < 2; half++)
#pragma unroll
            for (int i = 0; i < N / 8; i++)
                mma_half(sums.of[m][i], pairs[0][2 * half], pairs[1][2 * half],
                         pairs[0][2 * half + 1], pairs[1][2 * half + 1], x[i][2 * half],
                         x[i][2 * half + 1]);
    }
}

/* Of a lane's four outputs, what other lanes have. */
template <enum format FORMAT>
__device__ __forceinline__ void few_zeros(uint32_t (&out)[4], uint32_t own)
{
    own = whole_zero<FORMAT>(own);
#pragma unroll
    for (int i = 0; i < 4; i++)
        out[i] = __shfl_sync(FULL_MASK, own, threadIdx.x % WARP / 4 + i * 8);
}

/* A group has ended: total += its sums, times its scale. */
template <int N>
__device__ __forceinline__ void few_end(few_sums<N> &total, const few_sums<N> &sums, float own)
{
    float scales[4];
#pragma unroll
    for (int i = 0; i < 4; i++)
        scales[i] = __shfl_sync(FULL_MASK, own, threadIdx.x % WARP / 4 + i * 8);
#pragma unroll
    for (int m = 0; m < 2; m++)
#pragma unroll
        for (int i = 0; i < N / 8; i++)
#pragma unroll
            for (int j = 0; j < 4; j++)
                total.of[m][i][j] =
                    __fmaf_rn(sums.of[m][i][j], scales[2 * m + j / 2], total.of[m][i][j]);
}

template <int N, enum format FORMAT, bool FINE>
__device__ __forceinline__ void few_step(few_sums<N> &total, const few_scales<FINE> &scales,
                                         const few_lane &lane, uint32_t stage)
{
    few_words<FORMAT> words[2];
    few_sums<N> sums = {};
    uint32_t zeros[4];
    for (int pair = 0; pair < 2; pair++)
        few_words_load(words[pair], lane, stage, 0, pair);
    few_zeros<FORMAT>(zeros, scales.zero[0]);
#pragma unroll
    for (int block = 0; block < BLOCKS; block++) {
        few_block<N, FORMAT>(sums, words, zeros, lane, stage, block);
        if (!FINE)
            continue;
        few_end(total, sums, scales.scale[block % (FINE ? BLOCKS : 1)]);
        sums = {};
        if (block + 1 < BLOCKS)
            few_zeros<FORMAT>(zeros, scales.zero[(block + 1) % (FINE ? BLOCKS : 1)]);
    }
    if (!FINE)
        few_end(total, sums, scales.scale[0]);
}

/* A warp: total = the products of its outputs with all rows, of its part of the steps. */
template <int N, int HEIGHT, enum format FORMAT, bool FINE>
__device__ __forceinline__ void few_multiply(few_sums<N> &total, const whole_args &a,
                                             const whole_ring &ring, const whole_tile &tile,
                                             const few_ahead &ahead)
{
    constexpr uint32_t AHEAD = few_scales<FINE>::AHEAD, PARTS = few_parts(HEIGHT);
    const few_lane lane = few_lane_of<N, HEIGHT, FORMAT>();
    ring_cursor at = {threadIdx.x / WARP / few_together(HEIGHT), 0};
    uint32_t turn = 0;
    for (uint32_t step = tile.first + at.stage; step < tile.end; step += PARTS) {
        const uint32_t slot = ahead.slots + turn * (WARP * sizeof(few_scales<FINE>));
        const few_scales<FINE> scales = few_scales_take<FINE>(a, ahead.from, step, slot);
        few_scales_ask<FINE>(a, ahead.from, tile, step + AHEAD * PARTS, slot);
        ring_wait_full(ring.full, at);
        few_step<N, FORMAT, FINE>(total, scales, lane, ring.stages + at.stage * a.stage_bytes);
        whole_give_back(ring, at);
        turn = (turn + 1) % AHEAD;
        at.stage += PARTS;
        if (at.stage >= a.stages)
            at.stage -= a.stages, at.phase ^= 1;
    }
}

#endif

} // namespace HALF
