/* Products of few rows with weights in e4m3 (gemv_e4m3.cu): what a block is to do, how weights come
 * to shared memory, and x to registers. */
#pragma once

#include "gpu/kernels/activation/activation.cuh"
#include "gpu/kernels/common/device_props.cuh"
#include "gpu/kernels/common/ring.cuh"
#include "gpu/kernels/common/e4m3.cuh"
#include "gpu/kernels/matmul/matmul.cuh"
#include "gpu/kernels/norm/norm.cuh"

namespace e4m3
{

using f16::mma_half;

#define WARPS 16 /* of eight, each scheduler's two wait for their conversions and products */
#define THREADS (WARPS * WARP)
#define UNIT 8  /* outputs */
#define GROUP 4 /* units summed at a time */
#define CHUNK_MAX 256
#define STEP 64
#define STEPS (CHUNK_MAX / STEP)
#define CHAINS 4
#define EACH 16 /* of k, of a lane in a step, and of a lane that rounds */
#define WORDS (EACH / 2)
#define BLOCK 128 /* of k, that have one scale where not all have */
#define BLOCKS_MAX (CHUNK_MAX / BLOCK)
#define BLOCK_STEPS (BLOCK / STEP)
#define STAGES_MAX 8
#define TURN_BYTES 512 /* of a warp: a row's piece, rounded, on its way to the lanes */
#define NORM_TURNS (MATMUL_PARTS / WARP)

struct shape {
    uint32_t units;         /* where gate and up go together: pairs of them */
    uint32_t paired;        /* 1: slots 2 i and 2 i + 1 of a group are gate and up; else 0 */
    uint32_t chunk, chunks; /* chunk: values of k, whole steps, or blocks */
    uint32_t row_bytes;     /* of a chunk in the ring: 64 modulo 128, against bank conflicts */
    uint32_t stages;
    uint32_t parts; /* sums of squares of a row, where some are owed */
};

struct cursor {
    uint32_t unit_first; /* of the group */
    uint32_t chunk, slot;
};

/* What is not dynamic. */
struct fixed {
    uint64_t barriers[WARPS][STAGES_MAX];
    float norms[GEMV_ROWS_MAX];           /* of each row, what is owed */
    float greatest[GEMV_ROWS_MAX][WARPS]; /* of a row, of each warp's chunks */
    float scales[GEMV_ROWS_MAX];          /* s of whole rows */
    uint4 turns[WARPS][TURN_BYTES / 16];
};
#define FIXED ((sizeof(struct fixed) + 127) / 128 * 128)

__device__ __forceinline__ uint32_t unit_of(const shape &of, uint32_t first, uint32_t slot)
{
    return first + (slot >> of.paired) * gridDim.x;
}

__device__ __forceinline__ bool more(const cursor &at, const shape &of)
{
    return at.unit_first < of.units && at.chunk < of.chunks;
}

__device__ __forceinline__ void next(cursor &at, const shape &of, uint32_t warp)
{
    at.slot++;
    if (at.slot < GROUP && unit_of(of, at.unit_first, at.slot) < of.units)
        return;
    at.slot = 0;
    at.chunk += WARPS;
    if (at.chunk < of.chunks)
        return;
    at.chunk = warp;
    at.unit_first += (GROUP >> of.paired) * gridDim.x;
}

/* The first row of w that the cursor points to. */
__device__ __forceinline__ uint32_t row_at(const struct matmul_args &a, const shape &of,
                                           const cursor &at)
{
    return unit_of(of, at.unit_first, at.slot) * UNIT + (at.slot & of.paired) * (a.w.n / 2);
}

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* ---- weights ---- */

/* Whole warp, as in gemv.cu. */
__device__ __forceinline__ void fetch(const struct matmul_args &a, const shape &of,
                                      const cursor &at, uint32_t to, uint32_t barrier,
                                      uint64_t policy)
{
    uint32_t begin = at.chunk * of.chunk, left = a.w.k - begin;
    uint32_t first = row_at(a, of, at), bytes = left < of.chunk ? left : of.chunk;
    uint32_t rows = a.w.n - first < UNIT ? a.w.n - first : UNIT;
    const uint8_t *from = static_cast<const uint8_t *>(a.w.data) + (size_t)first * a.w.k + begin;
    if (warp_elect()) {
        barrier_expect(barrier, rows * bytes);
        if (rows == UNIT) {
#pragma unroll
            for (uint32_t i = 0; i < UNIT; i++)
                copy_bulk(to + i * of.row_bytes, from + (size_t)i * a.w.k, bytes, barrier, policy);
        } else {
#pragma unroll 1
            for (uint32_t i = 0; i < rows; i++)
                copy_bulk(to + i * of.row_bytes, from + (size_t)i * a.w.k, bytes, barrier, policy);
        }
    }
    __syncwarp();
}

/* The weights' scales where columns have their own: of a unit, of each block of a chunk. */
struct block_scales {
    float of[BLOCKS_MAX];
};

__device__ __forceinline__ block_scales scales_ask(const struct matmul_args &a, const shape &of,
                                                   const cursor &at)
{
    block_scales out;
    uint32_t columns = a.w.scales.k ? (a.w.k + a.w.scales.k - 1) / a.w.scales.k : 0;
    uint32_t n = row_at(a, of, at), row = a.w.scales.n ? n / a.w.scales.n : 0;
    const float *scales = static_cast<const float *>(a.w.scales.data) + (size_t)row * columns;
    bool any = columns && n < a.w.n && more(at, of);
#pragma unroll
    for (uint32_t i = 0; i < BLOCKS_MAX; i++) {
        uint32_t k = at.chunk * of.chunk + i * BLOCK;
        out.of[i] = any && k < a.w.k && i * BLOCK < of.chunk ? scales[k / a.w.scales.k] : 1.0f;
    }
    return out;
}

/* ---- x ---- */

/* Values k .. k + 15 of a row, all inside it; of a norm that is owed, what the norm gives. */
__device__ __forceinline__ void values_load(float (&v)[EACH], const struct matmul_args &a,
                                            uint32_t row, uint32_t k, float norm)
{
    bool owed = a.norm_in.squares;
    const void *from = owed ? static_cast<const void *>(a.norm_in.residual) : a.x;
    enum dtype dtype = owed ? DTYPE_F32 : a.x_dtype;
    size_t at = (size_t)row * (owed ? a.norm_in.residual_stride : a.x_stride) + k;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float8 some = load_whole(from, at + half * 8, dtype);
        if (owed) {
            float8 weight = load_whole(a.norm_in.weight, k + half * 8, a.norm_in.weight_dtype);
#pragma unroll
            for (int i = 0; i < 8; i++)
                weight.v[i] += a.norm_in.offset;
            some = norm_scaled(some, norm, weight);
#pragma unroll
            for (int i = 0; i < 8; i++)
                some.v[i] = round_value(some.v[i], a.x_dtype);
        }
#pragma unroll
        for (int i = 0; i < 8; i++)
            v[half * 8 + i] = some.v[i];
    }
}

/* A power of two that brings the greatest just below 2^15; what is no number stays none. */
__device__ __forceinline__ float power_scale(float greatest)
{
    int exponent = static_cast<int>(__float_as_uint(greatest) >> 23 & 0xff) - 127 - 14;
    exponent = exponent < -100 ? -100 : exponent > 100 ? 100 : exponent;
    return greatest > 0 ? __uint_as_float(static_cast<uint32_t>(exponent + 127) << 23) : 1.0f;
}

/* Whole block: what is owed of each row's norm. A warp has rows of its own. */
__device__ __forceinline__ void norms_take(const struct matmul_args &a, const shape &of, fixed &to,
                                           uint32_t warp)
{
    for (uint32_t row = warp; row < a.rows.max; row += WARPS) {
        float sum = 0;
#pragma unroll
        for (uint32_t i = 0; i < NORM_TURNS; i++) {
            uint32_t at = threadIdx.x % WARP + i * WARP;
            if (at < of.parts)
                sum += a.norm_in.squares[row * MATMUL_PARTS + at];
        }
        to.norms[row] = norm_scale(warp_sum(sum), a.w.k, a.norm_in.eps);
    }
    __syncthreads();
}

/* Whole block: the scale of each row, where it has one. */
__device__ __forceinline__ void scales_take(const struct matmul_args &a, const shape &of, fixed &to,
                                            uint32_t warp, bool rounds)
{
    uint32_t lane = threadIdx.x % WARP;
    for (uint32_t row = 0; row < a.rows.max; row++) {
        float greatest = 0, norm = a.norm_in.squares && rounds ? to.norms[row] : 1.0f;
        for (uint32_t chunk = warp; chunk < of.chunks; chunk += WARPS) {
            uint32_t in = lane * EACH, k = chunk * of.chunk + in;
            if (in >= of.chunk || k >= a.w.k)
                continue;
            float v[EACH];
            if (rounds)
                values_load(v, a, row, k, norm);
            else
                for (int half = 0; half < 2; half++) {
                    float8 some =
                        load_whole(a.x, (size_t)row * a.x_stride + k + half * 8, a.x_dtype);
                    for (int i = 0; i < 8; i++)
                        v[half * 8 + i] = some.v[i];
                }
            greatest = fmaxf(greatest, e4m3_greatest(v));
        }
        greatest = warp_greatest(greatest);
        if (lane == 0)
            to.greatest[row][warp] = greatest;
    }
    __syncthreads();
    if (threadIdx.x < a.rows.max) {
        float greatest = 0;
        for (int i = 0; i < WARPS; i++)
            greatest = fmaxf(greatest, to.greatest[threadIdx.x][i]);
        to.scales[threadIdx.x] =
            rounds ? e4m3_scale_to(greatest, a.w.input.scale) : power_scale(greatest);
    }
    __syncthreads();
}

/* Whole block: F16 stays as it is. */
__device__ __forceinline__ void scales_none(fixed &to)
{
    if (threadIdx.x < GEMV_ROWS_MAX)
        to.scales[threadIdx.x] = 1;
    __syncthreads();
}

template <int HALVES> struct inputs {
    uint32_t x[STEPS][HALVES][WORDS]; /* pairs of F16: this lane's of each step */
    float scales[BLOCKS_MAX][HALVES]; /* of its rows' groups; 1 where rows have one */
};

/* Sixteen rounded values are eight pairs. */
__device__ __forceinline__ void widen16(uint32_t (&to)[WORDS], const uint4 &bytes)
{
    const uint32_t words[4] = {bytes.x, bytes.y, bytes.z, bytes.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        to[2 * i] = e4m3_widen2(words[i] & 0xffff);
        to[2 * i + 1] = e4m3_widen2(words[i] >> 16);
    }
}

/* A chunk of all rows, rounded. A row at a time: each lane rounds 16 values, then those lanes that
 * multiply the row take theirs. */
template <int HALVES>
__device__ __forceinline__ void inputs_round(inputs<HALVES> &in, const struct matmul_args &a,
                                             const shape &of, fixed &shared, uint32_t begin,
                                             uint32_t warp)
{
    uint32_t lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4, k = begin + lane * EACH;
    uint32_t turn = shared_address(shared.turns[warp]);
    bool groups = a.w.input.rounding == ROUNDING_GROUP;
    bool mine = lane * EACH < of.chunk && k < a.w.k;
#pragma unroll
    for (int half = 0; half < HALVES; half++)
#pragma unroll 1
        for (uint32_t r = 0; r < 8; r++) {
            uint32_t row = half * 8 + r;
            if (row >= a.rows.max)
                break;
            float v[EACH] = {}, scale = 1;
            if (mine)
                values_load(v, a, row, k, a.norm_in.squares ? shared.norms[row] : 1.0f);
            if (groups) {
                float greatest = e4m3_greatest(v); /* of eight lanes, which have 128 values */
#pragma unroll
                for (int offset = 4; offset; offset /= 2)
                    greatest = fmaxf(greatest, __shfl_xor_sync(FULL_MASK, greatest, offset));
                scale = e4m3_scale(greatest);
            } else {
                scale =
                    a.w.input.rounding == ROUNDING_STATIC ? a.w.input.scale : shared.scales[row];
            }
            store_shared(turn + lane * 16, e4m3_round16(v, e4m3_divide_by(scale)));
#pragma unroll
            for (int i = 0; i < BLOCKS_MAX; i++) {
                float of_block = __shfl_sync(FULL_MASK, scale, i * (BLOCK / EACH));
                if (g == r)
                    in.scales[i][half] = groups ? of_block : 1.0f;
            }
            __syncwarp();
            if (g == r)
#pragma unroll
                for (int step = 0; step < STEPS; step++)
                    widen16(in.x[step][half], load_shared(turn + (step * 4 + t) * 16));
            __syncwarp();
        }
}

/* A chunk of x as it is: each lane reads its own. */
template <int HALVES>
__device__ __forceinline__ void inputs_take(inputs<HALVES> &in, const struct matmul_args &a,
                                            const shape &of, const fixed &shared, uint32_t begin)
{
    uint32_t lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int half = 0; half < HALVES; half++) {
        uint32_t row = half * 8 + g;
        float by = row < a.rows.max ? __fdiv_rn(1.0f, shared.scales[row]) : 1.0f;
#pragma unroll
        for (int step = 0; step < STEPS; step++) {
            uint32_t inside = step * STEP + t * EACH, k = begin + inside;
            if (row >= a.rows.max || inside >= of.chunk || k >= a.w.k)
                continue;
            size_t at = (size_t)row * a.x_stride + k;
#pragma unroll
            for (int part = 0; part < 2; part++) {
                float8 some = load_whole(a.x, at + part * 8, a.x_dtype);
#pragma unroll
                for (int i = 0; i < 4; i++)
                    in.x[step][half][part * 4 + i] =
                        pack(some.v[2 * i] * by, some.v[2 * i + 1] * by, DTYPE_F16);
            }
        }
    }
}

template <int HALVES>
__device__ __forceinline__ void inputs_load(inputs<HALVES> &in, const struct matmul_args &a,
                                            const shape &of, fixed &shared, uint32_t begin,
                                            uint32_t warp)
{
#pragma unroll
    for (int half = 0; half < HALVES; half++) {
#pragma unroll
        for (int step = 0; step < STEPS; step++)
#pragma unroll
            for (int i = 0; i < WORDS; i++)
                in.x[step][half][i] = 0;
#pragma unroll
        for (int i = 0; i < BLOCKS_MAX; i++)
            in.scales[i][half] = 1;
    }
    if (a.w.input.rounding == ROUNDING_NONE)
        inputs_take(in, a, of, shared, begin);
    else
        inputs_round(in, a, of, shared, begin, warp);
}

#endif

} // namespace e4m3
