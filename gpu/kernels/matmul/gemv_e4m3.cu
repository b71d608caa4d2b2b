/* Products of up to 16 rows with weights in e4m3 on sm_90: bound by reading the weights once, like
 * those of 16 bits, whose pattern this is (gemv.cu): a block per SM, units of eight outputs, warps
 * that share k, sixteen of them here, each with a ring of its own that bulk copies fill ahead. What
 * differs:
 *
 * Weights become F16 in registers, which holds every e4m3 number; so does x: e4m3(x / s) where
 * inputs are rounded, and else x as it is or, of BF16, by a power of two that brings the row's
 * greatest just below 2^15. What is then smaller than 2^-24 is lost, 2^-39 of the greatest. Rows
 * are scaled when they are summed; scales of columns, where there are any, every 128 of k.
 *
 * Each warp rounds its chunk of x itself, a row at a time, 16 values a lane, by the formula of all
 * (e4m3.cuh), and hands the bytes around through shared memory: a kernel in front for it would cost
 * more than it does. Of scales for whole rows the greatest comes first, from all warps. Behind a
 * norm that is owed x is made whole before it is rounded, so it is rounded as if it had been there.
 *
 * The order of k inside a product is permuted to suit 16-byte loads: lane t has values 16t ..
 * 16t + 15 of every 64. What a row gets depends neither on the other rows nor on their number. */
#include "gpu/kernels/matmul/gemv_e4m3.cuh"

namespace e4m3
{

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* ---- products ---- */

template <int HALVES>
__device__ __forceinline__ void multiply_step(float (&sum)[CHAINS][4],
                                              const uint32_t (&x)[HALVES][WORDS], const uint4 &w)
{
    uint32_t v[WORDS];
    widen16(v, w);
#pragma unroll
    for (int i = 0; i < CHAINS; i++)
        mma_half(sum[i], x[0][2 * i], HALVES > 1 ? x[HALVES - 1][2 * i] : 0, x[0][2 * i + 1],
                 HALVES > 1 ? x[HALVES - 1][2 * i + 1] : 0, v[2 * i], v[2 * i + 1]);
}

__device__ __forceinline__ float chains_sum(const float (&sum)[CHAINS][4], int i)
{
    return (sum[0][i] + sum[1][i]) + (sum[2][i] + sum[3][i]);
}

/* A number of steps that is known, all weights of which are asked for first. */
template <int COUNT, int HALVES>
__device__ __forceinline__ void multiply_all(float (&sum)[CHAINS][4], const inputs<HALVES> &in,
                                             uint32_t weights)
{
    uint4 w[COUNT];
#pragma unroll
    for (int step = 0; step < COUNT; step++)
        w[step] = load_shared(weights + step * STEP);
#pragma unroll
    for (int step = 0; step < COUNT; step++)
        multiply_step<HALVES>(sum, in.x[step], w[step]);
}

/* Weights of a step of which some may be past the end of k: what lies there may be NaN. */
__device__ __forceinline__ uint4 weights_some(uint32_t weights, int step, uint32_t count)
{
    bool inside = step * STEP + threadIdx.x % 4 * EACH < count;
    uint4 w = load_shared(weights + (inside ? step * STEP : 0));
    return inside ? w : make_uint4(0, 0, 0, 0);
}

template <int HALVES>
__device__ __forceinline__ void multiply_some(float (&sum)[CHAINS][4], const inputs<HALVES> &in,
                                              uint32_t weights, uint32_t count)
{
#pragma unroll
    for (int step = 0; step < STEPS; step++) {
        if (step * STEP >= count)
            break;
        multiply_step<HALVES>(sum, in.x[step], weights_some(weights, step, count));
    }
}

template <int COUNT, int HALVES>
__device__ __forceinline__ void multiply(float (&sum)[CHAINS][4], const inputs<HALVES> &in,
                                         uint32_t weights, uint32_t count)
{
    if (count == COUNT * STEP)
        multiply_all<COUNT>(sum, in, weights);
    else if constexpr (COUNT > STEPS / 2)
        multiply<COUNT - 1>(sum, in, weights, count);
    else
        multiply_some(sum, in, weights, count);
}

/* Every 128 of k scaled, and added to what was summed. */
template <int HALVES>
__device__ __forceinline__ void multiply_blocks(float (&sum)[4], const inputs<HALVES> &in,
                                                const block_scales &scales, uint32_t weights,
                                                uint32_t count)
{
#pragma unroll
    for (int block = 0; block < BLOCKS_MAX; block++) {
        if (block * BLOCK >= count)
            break;
        float part[CHAINS][4] = {};
#pragma unroll
        for (int i = 0; i < BLOCK_STEPS; i++) {
            int step = block * BLOCK_STEPS + i;
            multiply_step<HALVES>(part, in.x[step], weights_some(weights, step, count));
        }
#pragma unroll
        for (int i = 0; i < 2 * HALVES; i++)
            sum[i] += chains_sum(part, i) * (scales.of[block] * in.scales[block][i / 2]);
    }
}

/* ---- results ---- */

/* An output of a group, of which each thread has HALVES: [slot][row][output], of pairs [pair]. */
struct output {
    uint32_t row, n;
    uint32_t at; /* in the warps' sums */
    bool valid;
};

template <int HALVES>
__device__ __forceinline__ output own_output(const struct matmul_args &a, const shape &of,
                                             uint32_t rows, uint32_t unit_first, int half)
{
    const uint32_t tile = HALVES * 8 * UNIT;
    uint32_t i = half * THREADS + threadIdx.x, slot = (i / tile) << of.paired;
    uint32_t unit = unit_of(of, unit_first, slot);
    output out;
    out.row = i % tile / UNIT;
    out.n = unit * UNIT + i % UNIT;
    out.at = slot * tile + i % tile;
    out.valid = slot < GROUP && out.row < rows && unit < of.units && out.n < (a.w.n >> of.paired);
    return out;
}

template <int HALVES> __device__ __forceinline__ float warps_sum(const float *merge, uint32_t at)
{
    float y = 0;
#pragma unroll
    for (int w = 0; w < WARPS; w++)
        y += merge[w * GROUP * HALVES * 8 * UNIT + at];
    return y;
}

/* Towards the L2, as in gemv.cu: what a block needs behind all its weights. */
__device__ __forceinline__ void prefetch(const struct matmul_args &a, const shape &of)
{
    for (uint32_t unit = blockIdx.x + threadIdx.x % WARP * gridDim.x; unit < of.units;
         unit += WARP * gridDim.x) {
        size_t first = (size_t)unit * UNIT;
        for (uint32_t up = 0; up <= of.paired; up++) {
            size_t n = first + up * (a.w.n / 2);
            if (a.bias)
                prefetch_l2(static_cast<const char *>(a.bias) +
                            n * (a.bias_dtype == DTYPE_F32 ? 4 : 2));
            if (a.w.scales.n == 1 && !a.w.scales.k)
                prefetch_l2(static_cast<const float *>(a.w.scales.data) + n);
        }
        if (a.norm_out.weight)
            prefetch_l2(static_cast<const char *>(a.norm_out.weight) +
                        first * (a.norm_out.weight_dtype == DTYPE_F32 ? 4 : 2));
    }
}

/* The sums of squares of all that the block handed on, by row, in the order of gemv.cu. */
template <int HALVES>
__device__ __forceinline__ void hand_squares(const struct matmul_args &a, uint32_t rows,
                                             float (&squares)[HALVES], float *merge)
{
    const int tile = HALVES * 8 * UNIT;
    __syncthreads(); /* the last group has been read */
#pragma unroll
    for (int half = 0; half < HALVES; half++) {
        float sum = squares[half];
#pragma unroll
        for (int offset = UNIT / 2; offset; offset /= 2)
            sum += __shfl_xor_sync(FULL_MASK, sum, offset);
        uint32_t i = half * THREADS + threadIdx.x;
        if (i % UNIT == 0)
            merge[i / tile * 8 * HALVES + i % tile / UNIT] = sum; /* [slot][row] */
    }
    __syncthreads();
    if (threadIdx.x >= rows)
        return;
    const float *of = merge + threadIdx.x;
    a.norm_out.squares[threadIdx.x * MATMUL_PARTS + blockIdx.x] =
        (of[0] + of[8 * HALVES]) + (of[16 * HALVES] + of[24 * HALVES]);
}

/* What an output needs beside its sum: asked for early. Of gate and up both. */
struct beside {
    float before, weight, bias[2], scale[2];
};

__device__ __forceinline__ beside beside_ask(const struct matmul_args &a, const shape &of,
                                             const output &own)
{
    beside out = {0, 0, {0, 0}, {1, 1}};
    if (!own.valid)
        return out;
    if (a.adds)
        out.before = static_cast<const float *>(a.y)[(size_t)own.row * a.y_stride + own.n];
    if (a.norm_out.weight)
        out.weight =
            load_value(a.norm_out.weight, own.n, a.norm_out.weight_dtype) + a.norm_out.offset;
#pragma unroll
    for (uint32_t up = 0; up < 2; up++) {
        uint32_t n = own.n + up * (a.w.n / 2);
        if (up > of.paired)
            break;
        if (a.bias)
            out.bias[up] = load_value(a.bias, n, a.bias_dtype);
        if (!a.w.scales.k)
            out.scale[up] = weight_scale(a.w, n, 0);
    }
    return out;
}

/* What sums of a row are multiplied by, all of them. */
__device__ __forceinline__ float row_scale(const struct matmul_args &a, const fixed &shared,
                                           uint32_t row)
{
    switch (a.w.input.rounding) {
    case ROUNDING_GROUP:
        return 1;
    case ROUNDING_STATIC:
        return a.w.input.scale;
    case ROUNDING_TOKEN:
        return shared.scales[row];
    default:
        return a.norm_in.squares ? shared.scales[row] * shared.norms[row] : shared.scales[row];
    }
}

/* A warp's sums of a unit's chunk, added to those of the chunks before it. */
template <int HALVES, bool BLOCKS>
__device__ __forceinline__ void sums_keep(const float (&sum)[BLOCKS ? 1 : CHAINS][4], float *merge,
                                          uint32_t slot, bool adds)
{
    const int size = GROUP * HALVES * 8 * UNIT; /* [unit][row][output] */
    uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int half = 0; half < HALVES; half++) {
        float *to = merge + warp * size + ((slot * HALVES + half) * 8 + g) * UNIT + 2 * t;
        float2 pair, before = adds ? *reinterpret_cast<float2 *>(to) : make_float2(0, 0);
        if constexpr (BLOCKS)
            pair = make_float2(sum[0][half * 2], sum[0][half * 2 + 1]);
        else
            pair = make_float2(chains_sum(sum, half * 2), chains_sum(sum, half * 2 + 1));
        *reinterpret_cast<float2 *>(to) = make_float2(before.x + pair.x, before.y + pair.y);
    }
}

/* Of a warp that has no chunk: nothing, once for all. */
template <int HALVES> __device__ __forceinline__ void sums_none(float *merge)
{
    const int size = GROUP * HALVES * 8 * UNIT;
    for (uint32_t i = threadIdx.x % WARP; i < size; i += WARP)
        merge[threadIdx.x / WARP * size + i] = 0;
}

/* The warps' sums of a group of units, added in the order of the warps. */
template <int HALVES, enum activation KIND>
__device__ __forceinline__ void store(const struct matmul_args &a, const shape &of,
                                      const float *merge, const fixed &shared,
                                      float (&squares)[HALVES], uint32_t rows, uint32_t unit_first)
{
    beside with[HALVES];
#pragma unroll
    for (int half = 0; half < HALVES; half++)
        with[half] = beside_ask(a, of, own_output<HALVES>(a, of, rows, unit_first, half));
    __syncthreads();
#pragma unroll
    for (int half = 0; half < HALVES; half++) {
        output own = own_output<HALVES>(a, of, rows, unit_first, half);
        if (!own.valid)
            continue;
        float scale = row_scale(a, shared, own.row);
        float y = warps_sum<HALVES>(merge, own.at) * (scale * with[half].scale[0]);
        y += with[half].bias[0];
        if (of.paired) {
            float up = warps_sum<HALVES>(merge, own.at + HALVES * 8 * UNIT) *
                       (scale * with[half].scale[1]);
            up += with[half].bias[1];
            y = y / (1.0f + expf(activation_exponent<KIND>(y))) * up;
        } else if (KIND != ACTIVATE_SILU) {
            y = y / (1.0f + expf(activation_exponent<KIND>(y)));
        }
        if (a.adds)
            y += with[half].before;
        store_value(a.y, (size_t)own.row * a.y_stride + own.n, a.y_dtype, y);
        if (a.norm_out.weight) {
            store_value(a.norm_out.out, (size_t)own.row * a.norm_out.out_stride + own.n, a.x_dtype,
                        y * with[half].weight);
            squares[half] += y * y;
        }
    }
    __syncthreads(); /* the next group's sums take the place of these */
}

/* A warp's ring, and what is on its way there. */
struct stream {
    uint32_t ring, full, stage_bytes;
    uint64_t policy;
    cursor ahead;
    ring_cursor now;
};

/* A stage has been read: what comes next takes its place. */
__device__ __forceinline__ void refill(const struct matmul_args &a, const shape &of, stream &s,
                                       uint32_t warp)
{
    if (more(s.ahead, of)) {
        reads_before_copy();
        __syncwarp();
        fetch(a, of, s.ahead, s.ring + s.now.stage * s.stage_bytes, ring_barrier(s.full, s.now),
              s.policy);
        next(s.ahead, of, warp);
    }
    ring_next(s.now, of.stages);
}

#endif

template <int HALVES, enum activation KIND, bool BLOCKS>
__global__ void __launch_bounds__(THREADS, 1)
    gemv_e4m3_kernel(const __grid_constant__ struct matmul_args a, const shape of)
{
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
    extern __shared__ __align__(128) char memory[];
    __shared__ fixed shared;
    float *merge = reinterpret_cast<float *>(memory);
    /* Of all lanes the same, as the compiler shall know. */
    uint32_t warp = __shfl_sync(FULL_MASK, threadIdx.x / WARP, 0), lane = threadIdx.x % WARP;
    stream s;
    s.stage_bytes = UNIT * of.row_bytes;
    s.ring = shared_address(memory) + WARPS * GROUP * HALVES * 8 * UNIT * 4 +
             warp * of.stages * s.stage_bytes;
    s.full = shared_address(shared.barriers[warp]);
    s.ahead = {blockIdx.x, warp, 0};
    s.now = {0, 0};
    if (warp_elect()) {
        ring_init(s.full, STAGES_MAX, 1);
        barrier_init_done();
    }
    __syncwarp();
    s.policy = __shfl_sync(FULL_MASK, policy_once(), 0);
    cursor at = s.ahead, asked = s.ahead;
    for (uint32_t i = 0; i < of.stages && more(s.ahead, of); i++) {
        fetch(a, of, s.ahead, s.ring + i * s.stage_bytes, s.full + i * 8, s.policy);
        next(s.ahead, of, warp);
    }
    if (warp == WARPS - 1)
        prefetch(a, of);
    block_scales scales, scales_next;
    if (BLOCKS)
        scales_next = scales_ask(a, of, asked);
    grid_wait();
    grid_trigger(); /* the kernel behind may read what those before this one have written */
    uint32_t rows = range_rows(a.rows), loaded = UINT32_MAX;
    const bool rounds = a.w.input.rounding != ROUNDING_NONE;
    if (a.norm_in.squares)
        norms_take(a, of, shared, warp);
    if (a.w.input.rounding == ROUNDING_TOKEN || (!rounds && a.x_dtype == DTYPE_BF16))
        scales_take(a, of, shared, warp, rounds);
    else if (!rounds)
        scales_none(shared);
    if (warp >= of.chunks)
        sums_none<HALVES>(merge);
    inputs<HALVES> in;
    float squares[HALVES] = {};
    for (; at.unit_first < of.units; at.unit_first += (GROUP >> of.paired) * gridDim.x) {
        for (at.chunk = warp; at.chunk < of.chunks; at.chunk += WARPS) {
            uint32_t begin = at.chunk * of.chunk, left = a.w.k - begin;
            uint32_t count = left < of.chunk ? left : of.chunk;
            if (loaded != at.chunk)
                inputs_load(in, a, of, shared, begin, warp);
            loaded = at.chunk;
#pragma unroll 1 /* four times the code would wait for its instructions, a third of the time */
            for (int slot = 0; slot < GROUP; slot++) {
                if (unit_of(of, at.unit_first, slot) >= of.units)
                    break;
                float sum[BLOCKS ? 1 : CHAINS][4] = {};
                if (BLOCKS) {
                    scales = scales_next;
                    next(asked, of, warp);
                    scales_next = scales_ask(a, of, asked);
                }
                ring_wait_full(s.full, s.now);
                uint32_t weights = s.ring + s.now.stage * s.stage_bytes + lane / 4 * of.row_bytes +
                                   lane % 4 * EACH;
                if constexpr (BLOCKS)
                    multiply_blocks(sum[0], in, scales, weights, count);
                else
                    multiply<STEPS>(sum, in, weights, count);
                refill(a, of, s, warp);
                sums_keep<HALVES, BLOCKS>(sum, merge, slot, at.chunk != warp);
            }
        }
        store<HALVES, KIND>(a, of, merge, shared, squares, rows, at.unit_first);
    }
    if (a.norm_out.weight)
        hand_squares<HALVES>(a, rows, squares, merge);
#endif
}

/* ---- launching ---- */

/* Whether scales of k differ; no: rows and columns are scaled when they are summed. */
static bool has_blocks(const struct weight *w)
{
    return w->scales.k || w->input.rounding == ROUNDING_GROUP;
}

static bool scales_can(const struct weight *w, bool gated)
{
    bool blocks = w->scales.k % BLOCK == 0 && w->scales.n % UNIT == 0;
    bool groups = w->input.rounding != ROUNDING_GROUP || w->input.group == BLOCK;
    return !w->zeros && !w->order && groups && (!w->scales.k || blocks) &&
           (!w->scales.data || w->scales.dtype == DTYPE_F32) && (!gated || w->n % (2 * UNIT) == 0);
}

static bool norms_can(const struct matmul_args *a, uint32_t processors)
{
    bool rounds = a->w.input.rounding != ROUNDING_NONE;
    bool whole = !rounds || (a->norm_in.residual_stride % 8 == 0 &&
                             reinterpret_cast<uintptr_t>(a->norm_in.residual) % 16 == 0 &&
                             reinterpret_cast<uintptr_t>(a->norm_in.weight) % 16 == 0);
    bool out = !a->norm_out.weight || (a->adds && !a->gated && !a->activates);
    return (!a->norm_out.weight && !a->norm_in.squares) ||
           (out && a->x_dtype == DTYPE_BF16 && processors <= MATMUL_PARTS &&
            (!a->norm_in.squares || whole));
}

} // namespace e4m3

bool gemv_e4m3_can(const struct matmul_args *a)
{
    bool aligned = a->w.k % 16 == 0 && a->w.k > 0 && a->x_stride % 8 == 0 &&
                   reinterpret_cast<uintptr_t>(a->x) % 16 == 0 &&
                   reinterpret_cast<uintptr_t>(a->w.data) % 16 == 0;
    bool alone = !a->activates || (!a->gated && !a->adds && a->activation != ACTIVATE_SILU);
    bool rounds = a->w.input.rounding != ROUNDING_NONE;
    uint32_t rows = rounds ? MATMUL_ROUNDS_MAX : GEMV_ROWS_MAX; /* each block rounds all of x */
    return device_props()->major == 9 && aligned && alone && a->rows.max <= rows &&
           a->x_dtype != DTYPE_F32 && (!a->adds || a->y_dtype == DTYPE_F32) &&
           e4m3::scales_can(&a->w, a->gated) && e4m3::norms_can(a, device_props()->processors);
}

namespace e4m3
{

/* One per SM, where there are so many units. */
static uint32_t blocks_of(uint32_t units)
{
    uint32_t most = device_props()->processors;
    return units < most ? units : most;
}

template <int HALVES, enum activation KIND, bool BLOCKS>
static cudaError_t small_launch(const struct matmul_args *args, cudaStream_t stream)
{
    const struct device_props *device = device_props();
    struct shape of;
    uint32_t k = args->w.k, turns = ceil_div(k, WARPS * CHUNK_MAX), whole = BLOCKS ? BLOCK : STEP;
    of.paired = args->gated;
    of.units = args->gated ? args->w.n / (2 * UNIT) : ceil_div(args->w.n, UNIT);
    of.chunk = ceil_div(ceil_div(k, WARPS * turns), whole) * whole;
    of.chunks = ceil_div(k, of.chunk);
    of.row_bytes = of.chunk + (of.chunk % 128 ? 0 : 64);
    uint32_t merge = WARPS * GROUP * HALVES * 8 * UNIT * 4;
    of.stages = ring_stages(device->shared_max - merge - FIXED - 128, WARPS * UNIT * of.row_bytes,
                            STAGES_MAX);
    static struct device_once once;
    cudaError_t result = device_allow(&once, gemv_e4m3_kernel<HALVES, KIND, BLOCKS>, device, FIXED);
    if (result != cudaSuccess)
        return result;
    of.parts = blocks_of(ceil_div(k, UNIT)); /* of the product that handed x on */
    return launch(gemv_e4m3_kernel<HALVES, KIND, BLOCKS>, dim3(blocks_of(of.units)), THREADS,
                  merge + of.stages * WARPS * UNIT * of.row_bytes, stream, *args, of);
}

template <enum activation KIND, bool BLOCKS>
static cudaError_t small_rows(const struct matmul_args *args, cudaStream_t stream)
{
    return args->rows.max <= 8 ? small_launch<1, KIND, BLOCKS>(args, stream)
                               : small_launch<2, KIND, BLOCKS>(args, stream);
}

template <enum activation KIND>
static cudaError_t small_scales(const struct matmul_args *args, cudaStream_t stream)
{
    return has_blocks(&args->w) ? small_rows<KIND, true>(args, stream)
                                : small_rows<KIND, false>(args, stream);
}

} // namespace e4m3

cudaError_t gemv_e4m3(const struct matmul_args *args, cudaStream_t stream)
{
    bool silu = args->activation == ACTIVATE_SILU || !(args->gated || args->activates);
    return silu ? e4m3::small_scales<ACTIVATE_SILU>(args, stream)
                : e4m3::small_scales<ACTIVATE_GELU_TANH>(args, stream);
}
