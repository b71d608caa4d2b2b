/* The weights of gemv_whole.cu: how they come, with their scales and zeros, and how a warp
 * multiplies a unit's piece of them. */
#pragma once

#include "gpu/kernels/common/ring.cuh"
#include "gpu/kernels/matmul/whole.cuh"
#include "gpu/kernels/matmul/whole_take.cuh"

namespace HALF
{

#define WARPS 8
#define THREADS (WARPS * WARP)
#define UNIT 16 /* outputs */
#define SLOTS 4 /* units summed at a time */
#define CHUNK_MAX 512
#define STEPS (CHUNK_MAX / WHOLE_BLOCK)
#define KNOWN 4 /* steps of a group of 128, whose ends the compiler knows */
#define STAGES_MAX 8
#define STAGES_LEAST 2 /* of a block that has half of an SM */
#define FIXED ((WARPS * STAGES_MAX * 8 + GEMV_ROWS_MAX * (SLOTS + 1) * 4 + 127) / 128 * 128)
#define RESERVED 1024 /* of an SM's shared memory, for each block */
#define PARTS_UNIT 8  /* outputs: whoever reads sums of squares counts the parts by this (gemv.cu) \
                       */

struct whole_shape {
    uint32_t units;         /* where gate and up go together: pairs of them */
    uint32_t paired;        /* 1: slots 2 i and 2 i + 1 are gate and up; else 0 */
    uint32_t chunk, chunks; /* chunk: columns, a multiple of WHOLE_BLOCK */
    uint32_t columns;       /* groups of a row */
    uint32_t groups;        /* that a chunk touches at most */
    uint32_t step_groups;   /* groups that begin with each chunk; 0: they do not end with chunks */
    uint32_t zero_words;    /* of a row's zeros in a stage */
    uint32_t row_bytes;     /* of a chunk in the ring: 16 modulo 128, against bank conflicts */
    uint32_t stages, stage_bytes;
    uint32_t parts;        /* sums of squares of a row, where some are owed */
    uint32_t parts_handed; /* where some are handed on */
    uint32_t rows;         /* the host's bound */
};

struct whole_cursor {
    uint32_t unit_first; /* of the slots */
    uint32_t chunk, slot;
};

__device__ __forceinline__ uint32_t whole_unit(const whole_shape &shape, uint32_t first,
                                               uint32_t slot)
{
    return first + (slot >> shape.paired) * gridDim.x;
}

__device__ __forceinline__ bool whole_more(const whole_cursor &at, const whole_shape &shape)
{
    return at.unit_first < shape.units && at.chunk < shape.chunks;
}

__device__ __forceinline__ void whole_next(whole_cursor &at, const whole_shape &shape,
                                           uint32_t warp)
{
    at.slot++;
    if (at.slot < SLOTS && whole_unit(shape, at.unit_first, at.slot) < shape.units)
        return;
    at.slot = 0;
    at.chunk += WARPS;
    if (at.chunk < shape.chunks)
        return;
    at.chunk = warp;
    at.unit_first += (SLOTS >> shape.paired) * gridDim.x;
}

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* The groups of a chunk. */
struct whole_groups {
    uint32_t first, count;
};

__device__ __forceinline__ whole_groups whole_groups_of(const struct matmul_args &a,
                                                        const whole_shape &shape, uint32_t chunk)
{
    whole_groups out = {0, 1};
    if (!a.w.scales.k)
        return out;
    if (shape.step_groups) {
        out.first = chunk * shape.step_groups;
        out.count = min(shape.step_groups, shape.columns - out.first);
        return out;
    }
    uint32_t begin = chunk * shape.chunk, end = min(begin + shape.chunk, a.w.k);
    out.first = begin / a.w.scales.k;
    out.count = (end - 1) / a.w.scales.k + 1 - out.first;
    return out;
}

/* Of output n, where its scales and zeros of a chunk begin. */
__device__ __forceinline__ size_t whole_scale_at(const struct matmul_args &a,
                                                 const whole_shape &shape, uint32_t n,
                                                 const whole_groups &groups)
{
    return (size_t)(a.w.scales.n ? n : 0) * shape.columns + groups.first;
}

/* Whole warp: a lane has a row's every second group; the words of zeros alike. */
__device__ __forceinline__ void whole_fetch_scales(const struct matmul_args &a,
                                                   const whole_shape &shape, uint32_t chunk,
                                                   uint32_t first, uint32_t rows, uint32_t to)
{
    uint32_t lane = threadIdx.x % WARP, row = lane % UNIT;
    if (row >= rows)
        return;
    whole_groups groups = whole_groups_of(a, shape, chunk);
    size_t at = whole_scale_at(a, shape, first + row, groups);
    const float *scales = static_cast<const float *>(a.w.scales.data) + at;
    for (uint32_t i = lane / UNIT; i < groups.count; i += WARP / UNIT)
        copy_word(to + (row * shape.groups + i) * 4, scales + i, 4);
    if (!a.w.zeros)
        return;
    size_t zeros = (size_t)(a.w.scales.n ? a.w.n : 1) * shape.columns;
    to += UNIT * shape.groups * 4 + row * shape.zero_words * 4;
    for (uint32_t i = lane / UNIT; i < shape.zero_words; i += WARP / UNIT) {
        size_t word = at / 4 * 4 + i * 4;
        if (word < at + groups.count)
            copy_word(to + i * 4, a.w.zeros + word,
                      static_cast<uint32_t>(min(zeros - word, (size_t)4)));
    }
}

/* Whole warp: the sixteen rows of weights that the cursor points to. One lane issues the copies for
 * all, with addresses that are the same in all (gemv.cu). */
template <enum format FORMAT>
__device__ __forceinline__ void whole_fetch(const struct matmul_args &a, const whole_shape &shape,
                                            const whole_cursor &at, uint32_t to, uint32_t barrier,
                                            uint64_t policy)
{
    uint32_t begin = at.chunk * shape.chunk, left = a.w.k - begin;
    uint32_t first =
        whole_unit(shape, at.unit_first, at.slot) * UNIT + (at.slot & shape.paired) * (a.w.n / 2);
    uint32_t bytes = whole_bytes(FORMAT, left < shape.chunk ? left : shape.chunk);
    uint32_t rows = a.w.n - first < UNIT ? a.w.n - first : UNIT;
    uint32_t stride = whole_bytes(FORMAT, a.w.k);
    const char *from =
        static_cast<const char *>(a.w.data) + (size_t)first * stride + whole_bytes(FORMAT, begin);
    if (warp_elect()) {
        barrier_expect(barrier, rows * bytes);
        if (rows == UNIT) {
#pragma unroll
            for (uint32_t i = 0; i < UNIT; i++)
                copy_bulk(to + i * shape.row_bytes, from + (size_t)i * stride, bytes, barrier,
                          policy);
        } else {
#pragma unroll 1
            for (uint32_t i = 0; i < rows; i++)
                copy_bulk(to + i * shape.row_bytes, from + (size_t)i * stride, bytes, barrier,
                          policy);
        }
    }
    __syncwarp();
    whole_fetch_scales(a, shape, at.chunk, first, rows, to + UNIT * shape.row_bytes);
    copies_arrive(barrier);
}

/* Rows up to the host's bound, whether they exist or not (gemv.cu). */
template <int HALVES>
__device__ __forceinline__ void whole_load_x(uint32_t (&x)[STEPS][HALVES][4],
                                             const struct matmul_args &a, uint32_t begin,
                                             uint32_t count)
{
    uint32_t lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int half = 0; half < HALVES; half++) {
        uint32_t row = half * 8 + g;
        const half_t *from =
            static_cast<const half_t *>(a.x) + (size_t)row * a.x_stride + begin + t * 2;
#pragma unroll
        for (int step = 0; step < STEPS; step++)
#pragma unroll
            for (int j = 0; j < 4; j++)
                x[step][half][j] =
                    row < a.rows.max && step * WHOLE_BLOCK < count
                        ? *reinterpret_cast<const uint32_t *>(from + step * WHOLE_BLOCK + j * 8)
                        : 0;
    }
}

/* What a lane needs of a stage: its rows are g and g + 8 of the unit. */
struct whole_stage {
    uint32_t words[2];    /* of the weights */
    uint32_t scales[2];   /* shared addresses */
    uint32_t zeros[2];    /* 0: there are none */
    uint32_t steps, ends; /* ends: a bit for each step with which a group, or the chunk, ends */
};

template <enum format FORMAT>
__device__ __forceinline__ void whole_words(uint32_t (&out)[2][2], const whole_stage &from,
                                            int step)
{
#pragma unroll
    for (int row = 0; row < 2; row++) {
        const uint32_t at = from.words[row] + step * (FORMAT == FORMAT_U4 ? 16 : 32);
        out[row][0] = load_shared_word(at);
        out[row][1] = FORMAT == FORMAT_U4 ? 0 : load_shared_word(at + 16);
    }
}

/* Of the two rows. */
template <enum format FORMAT>
__device__ __forceinline__ void whole_zeros(uint32_t (&out)[2], const whole_stage &from,
                                            uint32_t group)
{
#pragma unroll
    for (int row = 0; row < 2; row++)
        out[row] =
            whole_zero<FORMAT>(from.zeros[row] ? load_shared_byte(from.zeros[row] + group) : 0);
}

/* A group's sums so far, in two chains: a product waits for the one before it in its chain. */
template <int HALVES> struct whole_sum {
    float of[2][HALVES][4];
};

template <int HALVES, enum format FORMAT>
__device__ __forceinline__ void whole_step(whole_sum<HALVES> &sum, const uint32_t (&x)[HALVES][4],
                                           const uint32_t (&words)[2][2],
                                           const uint32_t (&zeros)[2])
{
    uint32_t pairs[2][4];
#pragma unroll
    for (int row = 0; row < 2; row++)
#pragma unroll
        for (int j = 0; j < 4; j++)
            pairs[row][j] = FORMAT == FORMAT_U4
                                ? whole_pair<FORMAT>(words[row][0], j, zeros[row])
                                : whole_pair<FORMAT>(words[row][j / 2], j % 2, zeros[row]);
#pragma unroll
    for (int half = 0; half < HALVES; half++)
#pragma unroll
        for (int chain = 0; chain < 2; chain++)
            mma_half(sum.of[chain][half], pairs[0][2 * chain], pairs[1][2 * chain],
                     pairs[0][2 * chain + 1], pairs[1][2 * chain + 1], x[half][2 * chain],
                     x[half][2 * chain + 1]);
}

/* A group has ended: its sums, times the scales of the lane's rows. */
template <int HALVES>
__device__ __forceinline__ void whole_end(float (&total)[HALVES][4], whole_sum<HALVES> &sum,
                                          const whole_stage &from, uint32_t group)
{
    float low = __uint_as_float(load_shared_word(from.scales[0] + group * 4));
    float high = __uint_as_float(load_shared_word(from.scales[1] + group * 4));
#pragma unroll
    for (int half = 0; half < HALVES; half++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float both = sum.of[0][half][i] + sum.of[1][half][i];
            total[half][i] = __fmaf_rn(both, i < 2 ? low : high, total[half][i]);
            sum.of[0][half][i] = sum.of[1][half][i] = 0;
        }
}

/* Groups of 128 that end with chunks: nothing is asked but how many there are, and the next one's
 * words are loaded while one is multiplied. */
template <int HALVES, enum format FORMAT>
__device__ __forceinline__ void whole_multiply_known(float (&total)[HALVES][4],
                                                     const uint32_t (&x)[STEPS][HALVES][4],
                                                     const whole_stage &from)
{
    uint32_t words[2][KNOWN][2][2], zeros[2];
    whole_sum<HALVES> sum = {};
#pragma unroll
    for (int i = 0; i < KNOWN; i++)
        whole_words<FORMAT>(words[0][i], from, i);
#pragma unroll
    for (int group = 0; group < STEPS / KNOWN; group++) {
        if (group * KNOWN >= from.steps)
            break;
        whole_zeros<FORMAT>(zeros, from, group);
        const bool more = group + 1 < STEPS / KNOWN;
#pragma unroll
        for (int i = 0; i < KNOWN; i++) {
            if (more && (group + 1) * KNOWN < from.steps)
                whole_words<FORMAT>(words[(group + 1) % 2][i], from, (group + 1) * KNOWN + i);
            whole_step<HALVES, FORMAT>(sum, x[group * KNOWN + i], words[group % 2][i], zeros);
        }
        whole_end<HALVES>(total, sum, from, group);
    }
}

/* Any groups. */
template <int HALVES, enum format FORMAT>
__device__ __forceinline__ void whole_multiply_any(float (&total)[HALVES][4],
                                                   const uint32_t (&x)[STEPS][HALVES][4],
                                                   const whole_stage &from)
{
    uint32_t words[2][2][2], zeros[2], group = 0;
    whole_sum<HALVES> sum = {};
    whole_zeros<FORMAT>(zeros, from, 0);
    whole_words<FORMAT>(words[0], from, 0);
#pragma unroll
    for (int step = 0; step < STEPS; step++) {
        if (step >= from.steps)
            break;
        if (step + 1 < STEPS && step + 1 < from.steps)
            whole_words<FORMAT>(words[(step + 1) % 2], from, step + 1);
        whole_step<HALVES, FORMAT>(sum, x[step], words[step % 2], zeros);
        if (!(from.ends >> step & 1))
            continue;
        whole_end<HALVES>(total, sum, from, group);
        group++;
        if (step + 1 < from.steps)
            whole_zeros<FORMAT>(zeros, from, group);
    }
}

/* Which steps of a chunk end a group. */
__device__ __forceinline__ uint32_t whole_ends(const struct matmul_args &a, uint32_t begin,
                                               uint32_t steps)
{
    uint32_t out = 1u << (steps - 1), group = a.w.scales.k / WHOLE_BLOCK;
    if (!group)
        return out;
    uint32_t at = begin / WHOLE_BLOCK % group;
    for (uint32_t i = 0; i < steps; i++)
        if (++at == group) {
            out |= 1u << i;
            at = 0;
        }
    return out;
}

__device__ __forceinline__ void whole_stage_find(whole_stage &out, const struct matmul_args &a,
                                                 const whole_shape &shape, uint32_t chunk,
                                                 uint32_t first, uint32_t stage)
{
    uint32_t lane = threadIdx.x % WARP, scales = stage + UNIT * shape.row_bytes;
    whole_groups groups = {0, 0};
    if (a.w.zeros)
        groups = whole_groups_of(a, shape, chunk);
#pragma unroll
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t row = lane / 4 + i * 8;
        out.words[i] = stage + row * shape.row_bytes + lane % 4 * 4;
        out.scales[i] = scales + row * shape.groups * 4;
        out.zeros[i] = 0;
        if (a.w.zeros)
            out.zeros[i] = scales + UNIT * shape.groups * 4 + row * shape.zero_words * 4 +
                           static_cast<uint32_t>(whole_scale_at(a, shape, first + row, groups) % 4);
    }
}

#endif

} // namespace HALF
