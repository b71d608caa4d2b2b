/* Products of up to 16 rows with weights in whole numbers, on sm_90: bound by reading the weights
 * once, as gemv.cu is, whose plan this is.
 *
 * A unit is sixteen outputs, dealt to blocks of eight warps in turns; the warps share k, and each
 * keeps the rows' values of a chunk of up to 512 columns in registers. Weights are the left operand
 * of m16n8k16 (rows of x the columns of the right one), so that a warp changes a number to 16 bits
 * once for eight rows. They come by bulk copies into a ring of the warp's own, with their scales
 * and zeros, which are too short for such copies and come beside them by copies of four bytes; both
 * count on the stage's barrier. A group's sum is multiplied by its scale in float32.
 *
 * What a warp does with a number takes longer than the number takes to come, so up to eight rows
 * have two blocks on an SM, whose warps fill each other's waits; but where sums of squares are
 * handed on, of which there is one for each SM (MATMUL_PARTS). What a row gets depends neither on
 * the other rows nor on their number. */
#include "gpu/kernels/activation/activation.cuh"
#include "gpu/kernels/common/device_props.cuh"
#include "gpu/kernels/matmul/gemv_whole.cuh"
#include "gpu/kernels/matmul/matmul_norm.cuh"

namespace HALF
{

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* An output of the slots: [slot][row][output], of pairs [pair]. */
struct whole_output {
    uint32_t row, n;
    uint32_t at;     /* in the warps' sums */
    uint32_t square; /* where the sum of its unit's squares is */
    bool valid;
};

__device__ __forceinline__ whole_output whole_own(const struct matmul_args &a,
                                                  const whole_shape &shape, uint32_t rows,
                                                  uint32_t unit_first, uint32_t item)
{
    const uint32_t tile = shape.rows * UNIT;
    uint32_t i = item * THREADS + threadIdx.x, slot = (i / tile) << shape.paired;
    uint32_t unit = whole_unit(shape, unit_first, slot);
    whole_output out;
    out.row = i % tile / UNIT;
    out.n = unit * UNIT + i % UNIT;
    out.at = slot * tile + i % tile;
    out.square = slot * GEMV_ROWS_MAX + out.row;
    out.valid =
        slot < SLOTS && out.row < rows && unit < shape.units && out.n < (a.w.n >> shape.paired);
    return out;
}

__device__ __forceinline__ float whole_added(const whole_shape &shape, const float *merge,
                                             uint32_t at)
{
    float y = 0;
#pragma unroll
    for (int w = 0; w < WARPS; w++)
        y += merge[w * SLOTS * shape.rows * UNIT + at];
    return y;
}

__device__ __forceinline__ float whole_activated(const struct matmul_args &a, float y)
{
    float exponent = a.activation == ACTIVATE_SILU ? activation_exponent<ACTIVATE_SILU>(y)
                                                   : activation_exponent<ACTIVATE_GELU_TANH>(y);
    return y / (1.0f + expf(exponent));
}

/* A warp's sums of a unit's chunk, [warp][slot][row][output], added to those of the chunks before
 * it: of rows up to the host's bound. */
template <int HALVES>
__device__ __forceinline__ void whole_keep(const whole_shape &shape,
                                           const float (&total)[HALVES][4], float *merge,
                                           uint32_t slot, bool adds)
{
    uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
    float *to = merge + (warp * SLOTS + slot) * shape.rows * UNIT;
#pragma unroll
    for (int half = 0; half < HALVES; half++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            uint32_t row = half * 8 + 2 * t + i % 2;
            float *at = to + row * UNIT + g + i / 2 * 8;
            if (row < shape.rows)
                *at = adds ? *at + total[half][i] : total[half][i];
        }
}

/* Of a warp that has no chunk: nothing, once for all. */
__device__ __forceinline__ void whole_keep_none(const whole_shape &shape, float *merge)
{
    uint32_t size = SLOTS * shape.rows * UNIT;
    for (uint32_t i = threadIdx.x % WARP; i < size; i += WARP)
        merge[threadIdx.x / WARP * size + i] = 0;
}

/* What an output's sum becomes; in the order of gemv.cu. */
struct whole_beside {
    float before, weight, bias, up_bias;
};

__device__ __forceinline__ whole_beside whole_ask(const struct matmul_args &a,
                                                  const whole_shape &shape, const whole_output &own)
{
    whole_beside out = {};
    if (!own.valid)
        return out;
    if (a.adds)
        out.before = static_cast<const float *>(a.y)[(size_t)own.row * a.y_stride + own.n];
    if (a.norm_out.weight)
        out.weight =
            load_value(a.norm_out.weight, own.n, a.norm_out.weight_dtype) + a.norm_out.offset;
    if (!a.bias)
        return out;
    out.bias = load_value(a.bias, own.n, a.bias_dtype);
    if (shape.paired)
        out.up_bias = load_value(a.bias, a.w.n / 2 + own.n, a.bias_dtype);
    return out;
}

__device__ __forceinline__ float whole_finish(const struct matmul_args &a, const whole_shape &shape,
                                              const whole_output &own, const whole_beside &beside,
                                              const float *merge, const float *scales)
{
    float scale = a.norm_in.squares ? scales[own.row] : 1.0f;
    float y = whole_added(shape, merge, own.at) * scale;
    if (a.bias)
        y += beside.bias;
    if (shape.paired) {
        float up = whole_added(shape, merge, own.at + shape.rows * UNIT) * scale;
        if (a.bias)
            up += beside.up_bias;
        y = whole_activated(a, y) * up;
    } else if (a.activates) {
        y = whole_activated(a, y);
    }
    if (a.adds)
        y += beside.before;
    store_value(a.y, (size_t)own.row * a.y_stride + own.n, a.y_dtype, y);
    return y;
}

/* The warps' sums of the slots, added in the order of the warps. `squares`: of what is handed on,
 * by slot and row; a sum is always the same thread's, and its order does not depend on how many
 * rows there are. */
template <int HALVES>
__device__ __forceinline__ void whole_store(const struct matmul_args &a, const whole_shape &shape,
                                            const float *merge, const float *scales,
                                            float *squares, uint32_t rows, uint32_t unit_first)
{
    const int items = SLOTS * UNIT * 8 * HALVES / THREADS;
    whole_beside beside[items];
#pragma unroll
    for (int i = 0; i < items; i++) /* asked for here, needed below */
        beside[i] = whole_ask(a, shape, whole_own(a, shape, rows, unit_first, i));
    __syncthreads();
#pragma unroll
    for (int i = 0; i < items; i++) {
        whole_output own = whole_own(a, shape, rows, unit_first, i);
        float square = 0;
        if (own.valid) {
            float y = whole_finish(a, shape, own, beside[i], merge, scales);
            if (a.norm_out.weight)
                square = norm_hand(a, own.row, own.n, y, beside[i].weight);
        }
        if (!a.norm_out.weight)
            continue;
#pragma unroll
        for (int offset = UNIT / 2; offset; offset /= 2)
            square += __shfl_xor_sync(FULL_MASK, square, offset);
        if (own.valid && threadIdx.x % UNIT == 0)
            squares[own.square] += square;
    }
    __syncthreads(); /* the next slots' sums take the place of these */
}

/* The sums of squares of all that the block handed on, by row; and zeros for parts that a product
 * of smaller units would have. */
__device__ __forceinline__ void whole_hand_squares(const struct matmul_args &a,
                                                   const whole_shape &shape, uint32_t rows,
                                                   const float *squares)
{
    __syncthreads();
    uint32_t row = threadIdx.x;
    if (row >= rows)
        return;
    float *to = a.norm_out.squares + row * MATMUL_PARTS;
    const float *of = squares + row;
    to[blockIdx.x] = (of[0] + of[GEMV_ROWS_MAX]) + (of[2 * GEMV_ROWS_MAX] + of[3 * GEMV_ROWS_MAX]);
    for (uint32_t i = blockIdx.x + gridDim.x; i < shape.parts_handed; i += gridDim.x)
        to[i] = 0;
}

/* The biases, and the weights of the norm that is handed on, towards the L2 (gemv.cu). */
__device__ __forceinline__ void whole_prefetch(const struct matmul_args &a,
                                               const whole_shape &shape)
{
    uint32_t lane = threadIdx.x % WARP;
    for (uint32_t unit = blockIdx.x + lane * gridDim.x; unit < shape.units;
         unit += WARP * gridDim.x) {
        size_t first = (size_t)unit * UNIT;
        if (a.norm_out.weight)
            prefetch_l2(static_cast<const char *>(a.norm_out.weight) +
                        first * (a.norm_out.weight_dtype == DTYPE_F32 ? 4 : 2));
        if (!a.bias)
            continue;
        const uint32_t bytes = a.bias_dtype == DTYPE_F32 ? 4 : 2;
        prefetch_l2(static_cast<const char *>(a.bias) + first * bytes);
        if (shape.paired)
            prefetch_l2(static_cast<const char *>(a.bias) + (first + a.w.n / 2) * bytes);
    }
}

#endif

template <int HALVES, enum format FORMAT, bool GROUPED>
__global__ void __launch_bounds__(THREADS, HALVES == 1 ? 2 : 1)
    whole_kernel(const __grid_constant__ struct matmul_args a, const whole_shape shape)
{
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
    extern __shared__ __align__(128) char memory[];
    __shared__ uint64_t barriers[WARPS][STAGES_MAX];
    __shared__ float scales[GEMV_ROWS_MAX], squares[SLOTS * GEMV_ROWS_MAX];
    float *merge = reinterpret_cast<float *>(memory);
    uint32_t warp = __shfl_sync(FULL_MASK, threadIdx.x / WARP, 0);
    uint32_t ring = shared_address(memory) + WARPS * SLOTS * shape.rows * UNIT * 4 +
                    warp * shape.stages * shape.stage_bytes;
    uint32_t full = shared_address(barriers[warp]);
    if (warp_elect()) {
        ring_init(full, STAGES_MAX, 1 + WARP); /* who asks, and each lane's copies of its own */
        barrier_init_done();
    }
    if (threadIdx.x < SLOTS * GEMV_ROWS_MAX) /* others read it behind barriers of the block */
        squares[threadIdx.x] = 0;
    __syncwarp();
    uint64_t policy = __shfl_sync(FULL_MASK, policy_once(), 0);
    whole_cursor ahead = {blockIdx.x, warp, 0}, at = ahead;
    for (uint32_t i = 0; i < shape.stages && whole_more(ahead, shape); i++) {
        whole_fetch<FORMAT>(a, shape, ahead, ring + i * shape.stage_bytes, full + i * 8, policy);
        whole_next(ahead, shape, warp);
    }
    if (warp == WARPS - 1 && (a.bias || a.norm_out.weight))
        whole_prefetch(a, shape);
    grid_wait();
    grid_trigger();
    norm_parts norm_in[HALVES];
#pragma unroll
    for (int half = 0; half < HALVES; half++)
        if (a.norm_in.squares)
            norm_in[half] = norm_ask(a, half * 8 + warp, shape.parts);
    uint32_t rows = range_rows(a.rows), loaded = UINT32_MAX;
    ring_cursor now = {0, 0};
    uint32_t x[STEPS][HALVES][4];
    whole_stage stage = {};
    if (warp >= shape.chunks)
        whole_keep_none(shape, merge);
    for (; at.unit_first < shape.units; at.unit_first += (SLOTS >> shape.paired) * gridDim.x) {
        for (at.chunk = warp; at.chunk < shape.chunks; at.chunk += WARPS) {
            uint32_t begin = at.chunk * shape.chunk, left = a.w.k - begin;
            uint32_t count = left < shape.chunk ? left : shape.chunk;
            if (loaded != at.chunk) {
                whole_load_x(x, a, begin, count);
                stage.steps = count / WHOLE_BLOCK;
                stage.ends = GROUPED ? 0 : whole_ends(a, begin, stage.steps);
            }
            loaded = at.chunk;
#pragma unroll 1 /* four times the code would wait for its instructions (gemv_e4m3.cu) */
            for (int slot = 0; slot < SLOTS; slot++) {
                float total[HALVES][4] = {};
                uint32_t unit = whole_unit(shape, at.unit_first, slot);
                if (unit >= shape.units)
                    break;
                uint32_t from = ring + now.stage * shape.stage_bytes;
                whole_stage_find(stage, a, shape, at.chunk,
                                 unit * UNIT + (slot & shape.paired) * (a.w.n / 2), from);
                ring_wait_full(full, now);
                if constexpr (GROUPED)
                    whole_multiply_known<HALVES, FORMAT>(total, x, stage);
                else
                    whole_multiply_any<HALVES, FORMAT>(total, x, stage);
                if (whole_more(ahead, shape)) {
                    reads_before_copy();
                    __syncwarp();
                    whole_fetch<FORMAT>(a, shape, ahead, from, ring_barrier(full, now), policy);
                    whole_next(ahead, shape, warp);
                }
                ring_next(now, shape.stages);
                whole_keep<HALVES>(shape, total, merge, slot, at.chunk != warp);
            }
        }
        if (a.norm_in.squares && at.unit_first == blockIdx.x) {
#pragma unroll
            for (int half = 0; half < HALVES; half++)
                scales[half * 8 + warp] = norm_scale_of(a, norm_in[half]);
        }
        whole_store<HALVES>(a, shape, merge, scales, squares, rows, at.unit_first);
    }
    if (a.norm_out.weight)
        whole_hand_squares(a, shape, rows, squares);
#endif
}

bool gemv_whole_can(const struct matmul_args *a)
{
    bool aligned = a->x_stride % 2 == 0 && reinterpret_cast<uintptr_t>(a->x) % 4 == 0;
    bool gated = !a->gated || a->w.n % 2 == 0;
    bool alone = !a->activates || (!a->gated && !a->adds);
    return device_props()->major == 9 && whole_regular(&a->w) && aligned && gated && alone &&
           a->rows.max <= GEMV_ROWS_MAX && a->x_dtype == DTYPE_HALF &&
           (!a->adds || a->y_dtype == DTYPE_F32) && matmul_norm_can(a, device_props()->processors);
}

static uint32_t whole_blocks(uint32_t units, uint32_t per_processor = 1)
{
    uint32_t most = device_props()->processors * per_processor;
    return units < most ? units : most;
}

/* Groups of 128, all of them whole. */
static bool whole_grouped(const struct weight &w)
{
    return w.scales.k == KNOWN * WHOLE_BLOCK && w.k % (KNOWN * WHOLE_BLOCK) == 0;
}

static void whole_chunks(const struct weight &w, struct whole_shape *shape)
{
    uint32_t turns = ceil_div(w.k, WARPS * CHUNK_MAX);
    uint32_t step = whole_grouped(w) ? KNOWN * WHOLE_BLOCK : WHOLE_BLOCK;
    shape->chunk = ceil_div(ceil_div(w.k, WARPS * turns), step) * step;
    shape->chunks = ceil_div(w.k, shape->chunk);
    shape->columns = whole_columns(w);
    shape->groups = 1;
    shape->step_groups = 0;
    if (w.scales.k && shape->chunk % w.scales.k == 0)
        shape->groups = shape->step_groups = shape->chunk / w.scales.k;
    else if (w.scales.k)
        shape->groups = shape->chunk / w.scales.k + 2;
    /* Of a row's in a chunk, which begin anywhere in a word, or with one. */
    bool words =
        w.scales.n && shape->columns % 4 == 0 && shape->step_groups && shape->step_groups % 4 == 0;
    shape->zero_words = !w.zeros ? 0 : words ? shape->groups / 4 : (shape->groups + 6) / 4;
}

template <int HALVES, enum format FORMAT, bool GROUPED>
static cudaError_t whole_launch(const struct matmul_args *args, cudaStream_t stream)
{
    const struct device_props *device = device_props();
    struct whole_shape shape = {};
    whole_chunks(args->w, &shape);
    shape.paired = args->gated;
    shape.units = ceil_div(args->gated ? args->w.n / 2 : args->w.n, UNIT);
    shape.rows = args->rows.max;
    shape.row_bytes = (whole_bytes(FORMAT, shape.chunk) + 111) / 128 * 128 + 16;
    shape.stage_bytes =
        (UNIT * (shape.row_bytes + shape.groups * 4 + shape.zero_words * 4) + 15) / 16 * 16;
    uint32_t merge = WARPS * SLOTS * shape.rows * UNIT * 4;
    uint32_t each = WARPS * shape.stage_bytes;
    uint32_t half = (device->shared_max + RESERVED) / 2 - RESERVED - FIXED - 128;
    bool two = HALVES == 1 && !args->norm_out.weight && half >= merge + STAGES_LEAST * each;
    uint32_t most = two ? half : device->shared_max - FIXED - 128;
    shape.stages = ring_stages(most - merge, each, STAGES_MAX);
    static struct device_once once;
    cudaError_t result = device_allow(&once, whole_kernel<HALVES, FORMAT, GROUPED>, device, FIXED);
    if (result != cudaSuccess)
        return result;
    shape.parts = whole_blocks(ceil_div(args->w.k, PARTS_UNIT));
    shape.parts_handed = whole_blocks(ceil_div(args->w.n, PARTS_UNIT));
    return launch(whole_kernel<HALVES, FORMAT, GROUPED>,
                  dim3(whole_blocks(shape.units, two ? 2 : 1)), THREADS,
                  merge + shape.stages * each, stream, *args, shape);
}

template <enum format FORMAT, bool GROUPED>
static cudaError_t whole_rows(const struct matmul_args *args, cudaStream_t stream)
{
    return args->rows.max <= 8 ? whole_launch<1, FORMAT, GROUPED>(args, stream)
                               : whole_launch<2, FORMAT, GROUPED>(args, stream);
}

cudaError_t gemv_whole(const struct matmul_args *args, cudaStream_t stream)
{
    bool grouped = whole_grouped(args->w);
    if (args->w.format == FORMAT_U4)
        return grouped ? whole_rows<FORMAT_U4, true>(args, stream)
                       : whole_rows<FORMAT_U4, false>(args, stream);
    return grouped ? whole_rows<FORMAT_U8, true>(args, stream)
                   : whole_rows<FORMAT_U8, false>(args, stream);
}

} // namespace HALF
