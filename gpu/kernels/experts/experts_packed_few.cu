/* Products of few pairs with experts in 8 and 4 bits, in float32, and of any number where nothing
 * else can: a warp has some outputs of a pair, and of two rows at a time, which share their inputs,
 * asks for several turns before it waits for the first. The block's pair is prepared once, in
 * shared memory: put in order, and rounded, which hides behind the weights that come. */
#include "gpu/kernels/common/device_props.cuh"
#include "gpu/kernels/experts/experts_packed.cuh"

#define FEW_WARPS 8
#define FEW_THREADS (FEW_WARPS * WARP)
#define FEW_TURN (WARP * PACKED_UNIT)
#define FEW_GROUP 128        /* columns that are rounded by one scale, where a row has several */
#define FEW_BYTES (40 << 10) /* of shared memory: a row of inputs */
#define FEW_GROUPS_MAX (FEW_BYTES / 2 / FEW_GROUP)
#define FEW_BLOCKS 3 /* of an SM, with as many registers as they may need */
#define FEW_PAIRS_MAX 65535u

/* ---- inputs ---- */

struct few_inputs {
    void *x;       /* [k], of the dtype of x */
    float *scales; /* by which they are rounded: one, or one for each FEW_GROUP columns */
};

/* Eight numbers of x that stand at columns i to i + 7. */
__device__ __forceinline__ float8 few_columns(const struct experts_args &a, size_t x,
                                              const uint32_t *order, uint32_t i)
{
    if (!order)
        return load_whole(a.x, x + i, a.dtype);
    float8 out;
#pragma unroll
    for (int j = 0; j < 8; j++)
        out.v[j] = load_value(a.x, x + order[i + j], a.dtype);
    return out;
}

__device__ __forceinline__ void few_round(const struct few_inputs &to, enum dtype dtype, uint32_t i,
                                          float8 value, float scale)
{
    e4m3_divisor by = e4m3_divide_by(scale);
#pragma unroll
    for (int j = 0; j < 8; j += 2) {
        uint32_t two =
            e4m3_round2(e4m3_quotient(value.v[j], by), e4m3_quotient(value.v[j + 1], by));
        float2 rounded = unpack(e4m3_widen2(two), DTYPE_F16);
        value.v[j] = rounded.x;
        value.v[j + 1] = rounded.y;
    }
    store_whole(to.x, i, dtype, value);
}

/* Whole block. */
__device__ __forceinline__ void few_prepare(const struct experts_args &a, uint32_t pair,
                                            uint32_t expert, const struct few_inputs &to)
{
    __shared__ float scratch[WARP];
    const struct weight_input &input = a.w.input;
    const uint32_t *order = a.w.order ? a.w.order + (size_t)expert * a.w.k : nullptr;
    size_t x = (size_t)packed_row(a, pair) * a.x_stride;
    float greatest = 0;
    for (uint32_t i = threadIdx.x * 8; i < a.w.k; i += FEW_THREADS * 8) {
        float8 value = few_columns(a, x, order, i);
        store_whole(to.x, i, a.dtype, value);
        greatest = fmaxf(greatest, e4m3_greatest(value.v));
    }
    if (input.rounding == ROUNDING_NONE) {
        __syncthreads();
        return;
    }
    float scale = input.scales ? input.scales[expert] : input.scale;
    if (input.rounding == ROUNDING_TOKEN)
        scale = e4m3_scale_to(
            block_reduce(greatest, 0.0f, scratch, [](float of) { return warp_greatest(of); }),
            input.scale);
    for (uint32_t i = threadIdx.x * 8; i < a.w.k; i += FEW_THREADS * 8) { /* the thread's own */
        float8 value = load_whole(to.x, i, a.dtype);
        if (input.rounding == ROUNDING_GROUP) {
            float most = e4m3_greatest(value.v);
            uint32_t lanes = 0xffffu << (threadIdx.x % WARP & 16);
#pragma unroll
            for (int offset = FEW_GROUP / 16; offset; offset /= 2)
                most = fmaxf(most, __shfl_xor_sync(lanes, most, offset));
            scale = e4m3_scale(most);
            to.scales[i / FEW_GROUP] = scale;
        }
        few_round(to, a.dtype, i, value, scale);
    }
    if (input.rounding != ROUNDING_GROUP && threadIdx.x == 0)
        to.scales[0] = scale;
    __syncthreads();
}

/* ---- products ---- */

/* A row of an expert's matrix, and of a unit of it what a lane has asked for. */
struct few_row {
    const uint8_t *w;
    const uint8_t *scales; /* of its first columns */
    const uint8_t *zeros;
};

struct few_unit {
    uint4 raw;
    float scale, zero;
};

template <enum format FORMAT>
__device__ __forceinline__ few_row few_find(const struct weight &w, uint32_t expert, uint32_t n)
{
    size_t at = packed_scales_at(w, expert, n);
    return {packed_row_at(w, FORMAT, expert, n),
            static_cast<const uint8_t *>(w.scales.data) + at * (w.scales.exponents ? 1 : 4),
            w.zeros ? w.zeros + at : nullptr};
}

/* Every 1 << shift columns have a scale. */
template <enum format FORMAT>
__device__ __forceinline__ void few_ask(const struct weight &w, const few_row &row, uint32_t shift,
                                        uint32_t k, few_unit &unit)
{
    bool valid = k < w.k;
    uint32_t column = min(k, w.k - 1) >> shift;
    unit.raw =
        valid ? packed_load<FORMAT>(row.w + packed_bytes(FORMAT, k)) : make_uint4(0, 0, 0, 0);
    unit.scale = w.scales.exponents ? e8m0_value(row.scales[column])
                                    : reinterpret_cast<const float *>(row.scales)[column];
    unit.zero = row.zeros ? whole_number(row.zeros[column]) : 0.0f;
}

template <enum format FORMAT>
__device__ __forceinline__ float few_sum(const few_unit &unit, const float8 (&x)[2])
{
    float sum = 0;
#pragma unroll
    for (int i = 0; i < PACKED_UNIT / 2; i++) {
        float2 pair = packed_pair<FORMAT>(unit.raw, i, unit.zero);
        sum += pair.x * x[i / 4].v[i % 4 * 2];
        sum += pair.y * x[i / 4].v[i % 4 * 2 + 1];
    }
    return sum * unit.scale;
}

/* The scale of the inputs at column k. */
__device__ __forceinline__ float few_scale(const struct experts_args &a,
                                           const struct few_inputs &inputs, uint32_t k)
{
    if (a.w.input.rounding == ROUNDING_NONE)
        return 1.0f;
    return inputs.scales[a.w.input.rounding == ROUNDING_GROUP ? k / FEW_GROUP : 0];
}

/* Turns of both rows, of a lane: asked for, and added to the sums. */
template <enum format FORMAT, int AHEAD> struct few_turns {
    few_unit units[AHEAD][2];

    __device__ void ask(const struct weight &w, const few_row (&rows)[2], uint32_t shift,
                        uint32_t k)
    {
#pragma unroll
        for (int i = 0; i < AHEAD; i++)
#pragma unroll
            for (int j = 0; j < 2; j++)
                few_ask<FORMAT>(w, rows[j], shift, k + i * FEW_TURN, units[i][j]);
    }
    __device__ void add(const struct experts_args &a, const struct few_inputs &inputs, uint32_t k,
                        float (&sums)[2]) const
    {
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            uint32_t at = k + i * FEW_TURN;
            if (at >= a.w.k)
                break;
            float8 x[2] = {load_whole(inputs.x, at, a.dtype),
                           load_whole(inputs.x, at + 8, a.dtype)};
            float scale = few_scale(a, inputs, at);
#pragma unroll
            for (int j = 0; j < 2; j++)
                sums[j] += few_sum<FORMAT>(units[i][j], x) * scale;
        }
    }
};

/* `each`: outputs of a warp, or pairs of them: row n and the one half a matrix further. `shift`: of
 * columns that have one scale. */
template <enum format FORMAT>
__global__ void __launch_bounds__(FEW_THREADS, FEW_BLOCKS)
    packed_few_kernel(const __grid_constant__ struct experts_args a, uint32_t each, uint32_t shift)
{
    constexpr int AHEAD = format_halves(FORMAT) ? 6 : 4;
    extern __shared__ __align__(16) unsigned char memory[];
    __shared__ float scales[FEW_GROUPS_MAX];
    grid_wait();
    grid_trigger();
    const struct few_inputs inputs = {memory, scales};
    uint32_t pairs = range_rows(a.rows) * a.top, half = (a.w.n + 1) / 2;
    uint32_t first = (blockIdx.x * FEW_WARPS + threadIdx.x / WARP) * each;
    uint32_t lane = threadIdx.x % WARP * PACKED_UNIT;
    few_turns<FORMAT, AHEAD> turns;
    for (uint32_t pair = blockIdx.y; pair < pairs; pair += gridDim.y) {
        uint32_t expert =
            a.routes[(size_t)(pair / a.top) * a.route_stride + pair % a.top].expert - a.own.first;
        if (expert >= a.own.count)
            continue;
        bool prepared = false;
        for (uint32_t i = 0; i < each; i++) {
            uint32_t n = min(first + i, half - 1), other = half + n;
            bool both = other < a.w.n, valid = first + i < half;
            few_row rows[2] = {few_find<FORMAT>(a.w, expert, n),
                               few_find<FORMAT>(a.w, expert, both ? other : n)};
            float sums[2] = {0, 0};
            turns.ask(a.w, rows, shift, lane);
            if (!prepared)
                few_prepare(a, pair, expert, inputs);
            prepared = true;
            for (uint32_t k = lane; k < a.w.k; k += AHEAD * FEW_TURN) {
                if (k != lane)
                    turns.ask(a.w, rows, shift, k);
                turns.add(a, inputs, k, sums);
            }
            if (!valid)
                break;
            experts_put(a, expert, pair, n, sums[0], sums[1]);
            if (!a.gated && both)
                experts_put(a, expert, pair, other, sums[1], 0);
        }
        __syncthreads(); /* inputs have been read */
    }
}

bool experts_packed_few_can(const struct experts_args *args)
{
    const struct weight *w = &args->w;
    bool grouped = w->input.rounding == ROUNDING_GROUP;
    bool regular = w->scales.exponents || !(w->scales.k & (w->scales.k - 1));
    return regular && (size_t)w->k * dtype_bytes(args->dtype) <= FEW_BYTES &&
           args->x_stride % 8 == 0 && reinterpret_cast<uintptr_t>(args->x) % 16 == 0 &&
           (!grouped || (w->input.group == FEW_GROUP && w->k % FEW_GROUP == 0 && !w->order));
}

/* As many blocks as the device takes at once, where there is so much to do: inputs are prepared by
 * each. */
template <enum format FORMAT>
static cudaError_t few_launch(const struct experts_args *args, cudaStream_t stream)
{
    uint64_t pairs = (uint64_t)args->rows.max * args->top;
    uint32_t half = (args->w.n + 1) / 2, blocks = ceil_div(half, FEW_WARPS);
    uint64_t room = (uint64_t)device_props()->processors * FEW_BLOCKS;
    uint32_t each = static_cast<uint32_t>(pairs * blocks / room);
    each = each < 1 ? 1 : each > 8 ? 8 : each;
    uint32_t columns = args->w.scales.exponents ? PACKED_EXPONENT : args->w.scales.k, shift = 31;
    while (columns && columns >> shift == 0) /* 31: all columns have one */
        shift--;
    dim3 grid(ceil_div(half, FEW_WARPS * each),
              static_cast<unsigned>(pairs < FEW_PAIRS_MAX ? pairs : FEW_PAIRS_MAX));
    return launch(packed_few_kernel<FORMAT>, grid, FEW_THREADS,
                  args->w.k * dtype_bytes(args->dtype), stream, *args, each, shift);
}

cudaError_t experts_packed_few(const struct experts_args *args, cudaStream_t stream)
{
    return args->w.format == FORMAT_E4M3   ? few_launch<FORMAT_E4M3>(args, stream)
           : args->w.format == FORMAT_U4   ? few_launch<FORMAT_U4>(args, stream)
           : args->w.format == FORMAT_E2M1 ? few_launch<FORMAT_E2M1>(args, stream)
                                           : few_launch<FORMAT_U8>(args, stream);
}
