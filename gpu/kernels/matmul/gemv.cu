/* Products of up to 16 rows on sm_90: bound by reading the weights once.
 *
 * One block per SM; a unit is eight outputs, and the units are dealt to the blocks in turns. The
 * eight warps share k: each has chunks of up to 512 values of it, and keeps the rows' values of a
 * chunk in registers, as the left operand of m16n8k16 (rows of x) while the weights of a unit are
 * the right one. Weights come by bulk copies, eight rows of a chunk at a time, into a ring of the
 * warp's own; the first ones come before the kernel waits for the one before it. Four
 * units are summed at a time, then the warps' sums are added in their order through shared memory.
 *
 * What a warp does with weights that have come, and how soon it asks for more, adds to the time of
 * every one of a step's 129 products, though for most of it the block waits for memory.
 *
 * What is lost: the end of each kernel, where nothing streams, and with more rows the bringing of x
 * to all SMs, which costs like weights. Figures: tests/bench/EXPERIMENTS.md.
 *
 * The order of k inside a product is permuted to suit 16-byte loads: lane t has values 8t .. 8t + 7
 * of every 32. What a row gets depends neither on the other rows nor on their number. */
#include "gpu/kernels/activation/activation.cuh"
#include "gpu/kernels/common/device_props.cuh"
#include "gpu/kernels/common/ring.cuh"
#include "gpu/kernels/matmul/matmul_norm.cuh"

namespace HALF
{

#define SMALL_WARPS 8
#define SMALL_THREADS (SMALL_WARPS * WARP)
#define UNIT 8  /* outputs */
#define GROUP 4 /* units summed at a time */
#define CHUNK_MAX 512
#define CHAINS 4 /* sums side by side: a product waits for the one before it in its chain */
#define STEPS (CHUNK_MAX / 32)
#define LOADS 8    /* of weights ahead, where the number of steps is known */
#define TOGETHER 4 /* steps, where it is not */
#define GEMV_STAGES_MAX 8
/* What is not dynamic, up to where the dynamic part may begin. */
#define SMALL_FIXED ((SMALL_WARPS * GEMV_STAGES_MAX * 8 + GEMV_ROWS_MAX * 4 + 127) / 128 * 128)

struct small_shape {
    uint32_t units;         /* where gate and up go together: pairs of them */
    uint32_t paired;        /* 1: slots 2 i and 2 i + 1 of a group are gate and up; else 0 */
    uint32_t chunk, chunks; /* chunk: values of k, a multiple of 32 */
    uint32_t row_bytes;     /* of a chunk in the ring: 64 modulo 128, against bank conflicts */
    uint32_t stages;
    uint32_t parts; /* sums of squares of a row, where some are owed */
};

/* Where a warp is in its sequence: for each group of units, for each of its chunks, each unit. */
struct small_cursor {
    uint32_t unit_first; /* of the group */
    uint32_t chunk, slot;
};

__device__ __forceinline__ uint32_t small_unit(const small_shape &shape, uint32_t first,
                                               uint32_t slot)
{
    return first + (slot >> shape.paired) * gridDim.x;
}

__device__ __forceinline__ bool small_more(const small_cursor &at, const small_shape &shape)
{
    return at.unit_first < shape.units && at.chunk < shape.chunks;
}

__device__ __forceinline__ void small_next(small_cursor &at, const small_shape &shape,
                                           uint32_t warp)
{
    at.slot++;
    if (at.slot < GROUP && small_unit(shape, at.unit_first, at.slot) < shape.units)
        return;
    at.slot = 0;
    at.chunk += SMALL_WARPS;
    if (at.chunk < shape.chunks)
        return;
    at.chunk = warp;
    at.unit_first += (GROUP >> shape.paired) * gridDim.x;
}

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* Whole warp: the eight rows of weights that the cursor points to. One lane issues for all, with
 * addresses that are the same in all, so that they stay in uniform registers: the lanes' own take
 * several times as long, and what is asked for first has to wait for it. */
__device__ __forceinline__ void small_fetch(const struct matmul_args &a, const small_shape &shape,
                                            const small_cursor &at, uint32_t to, uint32_t barrier,
                                            uint64_t policy)
{
    uint32_t begin = at.chunk * shape.chunk, left = a.w.k - begin;
    uint32_t first =
        small_unit(shape, at.unit_first, at.slot) * UNIT + (at.slot & shape.paired) * (a.w.n / 2);
    uint32_t bytes = (left < shape.chunk ? left : shape.chunk) * 2;
    uint32_t rows = a.w.n - first < UNIT ? a.w.n - first : UNIT;
    const half_t *from = static_cast<const half_t *>(a.w.data) + (size_t)first * a.w.k + begin;
    if (warp_elect()) {
        barrier_expect(barrier, rows * bytes);
        if (rows == UNIT) {
#pragma unroll
            for (uint32_t i = 0; i < UNIT; i++)
                copy_bulk(to + i * shape.row_bytes, from + (size_t)i * a.w.k, bytes, barrier,
                          policy);
        } else {
#pragma unroll 1
            for (uint32_t i = 0; i < rows; i++)
                copy_bulk(to + i * shape.row_bytes, from + (size_t)i * a.w.k, bytes, barrier,
                          policy);
        }
    }
    __syncwarp();
}

/* Rows up to the host's bound, whether they exist or not: waiting for the count costs more, and
 * what comes of them is not stored. */
template <int HALVES>
__device__ __forceinline__ void small_load_x(uint4 (&x)[STEPS][HALVES], const struct matmul_args &a,
                                             uint32_t begin, uint32_t count)
{
    uint32_t lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int half = 0; half < HALVES; half++) {
        uint32_t row = half * 8 + g;
        const half_t *from =
            static_cast<const half_t *>(a.x) + (size_t)row * a.x_stride + begin + t * 8;
#pragma unroll
        for (int step = 0; step < STEPS; step++)
            x[step][half] = row < a.rows.max && step * 32 + t * 8 < count
                                ? *reinterpret_cast<const uint4 *>(from + step * 32)
                                : make_uint4(0, 0, 0, 0);
    }
}

/* One step: 32 values of k. */
template <int HALVES>
__device__ __forceinline__ void small_step(float (&sum)[CHAINS][4], const uint4 (&x)[HALVES],
                                           const uint4 &w, int chain)
{
    uint4 high = HALVES > 1 ? x[HALVES - 1] : make_uint4(0, 0, 0, 0);
    mma_half(sum[chain], x[0].x, high.x, x[0].y, high.y, w.x, w.y);
    mma_half(sum[chain + 1], x[0].z, high.z, x[0].w, high.w, w.z, w.w);
}

/* A number of steps that is known: nothing but loads, LOADS of them ahead, and products. Where a
 * warp asks at each step whether it was the last, every load is waited for by itself; a product
 * whose weights are there already, as a short one's are, then waits for that. */
template <int COUNT, int HALVES>
__device__ __forceinline__ void
small_multiply_all(float (&sum)[CHAINS][4], const uint4 (&x)[STEPS][HALVES], uint32_t weights)
{
    uint4 w[LOADS];
#pragma unroll
    for (int step = 0; step < LOADS; step++)
        w[step] = load_shared(weights + step * 64);
#pragma unroll
    for (int step = 0; step < COUNT; step++) {
        uint4 now = w[step % LOADS];
        if (step + LOADS < COUNT)
            w[step % LOADS] = load_shared(weights + (step + LOADS) * 64);
        small_step<HALVES>(sum, x[step], now, step % (CHAINS / 2) * 2);
    }
}

/* Any number. */
template <int HALVES>
__device__ __forceinline__ void small_multiply_some(float (&sum)[CHAINS][4],
                                                    const uint4 (&x)[STEPS][HALVES],
                                                    uint32_t weights, uint32_t count)
{
    uint32_t t = threadIdx.x % 4;
#pragma unroll
    for (int first = 0; first < STEPS; first += TOGETHER) {
        if (first * 32 >= count)
            break;
        uint4 w[TOGETHER];
#pragma unroll
        for (int i = 0; i < TOGETHER; i++) {
            uint32_t at = (first + i) * 32 + t * 8;
            w[i] = load_shared(weights + (at < count ? (first + i) * 64 : 0));
            if (at >= count) /* past the end of k: what lies there may be NaN */
                w[i] = make_uint4(0, 0, 0, 0);
        }
#pragma unroll
        for (int i = 0; i < TOGETHER; i++)
            small_step<HALVES>(sum, x[first + i], w[i], i % (CHAINS / 2) * 2);
    }
}

/* A chunk: even numbers of steps are known, down to half of what one may have, which is what chunks
 * of a long k have. */
template <int COUNT, int HALVES>
__device__ __forceinline__ void small_multiply(float (&sum)[CHAINS][4],
                                               const uint4 (&x)[STEPS][HALVES], uint32_t weights,
                                               uint32_t count)
{
    if (count == COUNT * 32)
        small_multiply_all<COUNT>(sum, x, weights);
    else if constexpr (COUNT > STEPS / 2)
        small_multiply<COUNT - 2>(sum, x, weights, count);
    else
        small_multiply_some(sum, x, weights, count);
}

/* An output of a group, of which each thread has HALVES: [slot][row][output], of pairs [pair]. */
struct small_output {
    uint32_t row, n;
    uint32_t at; /* in the warps' sums */
    bool valid;
};

template <int HALVES>
__device__ __forceinline__ small_output small_own(const struct matmul_args &a,
                                                  const small_shape &shape, uint32_t rows,
                                                  uint32_t unit_first, int half)
{
    const uint32_t tile = HALVES * 8 * UNIT;
    uint32_t i = half * SMALL_THREADS + threadIdx.x, slot = (i / tile) << shape.paired;
    uint32_t unit = small_unit(shape, unit_first, slot);
    small_output out;
    out.row = i % tile / UNIT;
    out.n = unit * UNIT + i % UNIT;
    out.at = slot * tile + i % tile;
    out.valid =
        slot < GROUP && out.row < rows && unit < shape.units && out.n < (a.w.n >> shape.paired);
    return out;
}

template <int HALVES> __device__ __forceinline__ float small_sum(const float *merge, uint32_t at)
{
    float y = 0;
#pragma unroll
    for (int w = 0; w < SMALL_WARPS; w++)
        y += merge[w * GROUP * HALVES * 8 * UNIT + at];
    return y;
}

/* The biases, and the weights of the norm that is handed on, of all the block's units, towards the
 * L2: what is asked for when it is needed comes late, behind all weights. A warp does it. */
__device__ __forceinline__ void small_prefetch(const struct matmul_args &a,
                                               const small_shape &shape)
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

/* The sums of squares of all that the block handed on, by row. The order of the sums does not
 * depend on HALVES: a row has the same bits among few and among many. */
template <int HALVES>
__device__ __forceinline__ void small_hand_squares(const struct matmul_args &a, uint32_t rows,
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
        uint32_t i = half * SMALL_THREADS + threadIdx.x;
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

/* The warps' sums of a group of units, added in the order of the warps. `squares`: of what is
 * handed on, added up. KIND: of gate; other than SiLU, of each output where none is gate. */
template <int HALVES, enum activation KIND>
__device__ __forceinline__ void small_store(const struct matmul_args &a, const small_shape &shape,
                                            float (&sum)[GROUP][CHAINS][4], float *merge,
                                            const float *scales, float (&squares)[HALVES],
                                            uint32_t rows, uint32_t unit_first)
{
    const int size = GROUP * HALVES * 8 * UNIT; /* [unit][row][output] */
    uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
    float before[HALVES], weight[HALVES], bias[HALVES], up_bias[HALVES];
#pragma unroll
    for (int half = 0; half < HALVES; half++) {
        small_output own = small_own<HALVES>(a, shape, rows, unit_first, half);
        before[half] = weight[half] = bias[half] = up_bias[half] = 0;
        if (a.adds && own.valid) /* asked for here, needed below */
            before[half] = static_cast<const float *>(a.y)[(size_t)own.row * a.y_stride + own.n];
        if (a.norm_out.weight && own.valid)
            weight[half] =
                load_value(a.norm_out.weight, own.n, a.norm_out.weight_dtype) + a.norm_out.offset;
        if (!a.bias || !own.valid)
            continue;
        bias[half] = load_value(a.bias, own.n, a.bias_dtype);
        if (shape.paired)
            up_bias[half] = load_value(a.bias, a.w.n / 2 + own.n, a.bias_dtype);
    }
    __syncthreads(); /* the group before has been read */
#pragma unroll
    for (int slot = 0; slot < GROUP; slot++)
#pragma unroll
        for (int half = 0; half < HALVES; half++) {
            const float(&part)[CHAINS][4] = sum[slot];
            float2 pair;
            pair.x =
                (part[0][half * 2] + part[1][half * 2]) + (part[2][half * 2] + part[3][half * 2]);
            pair.y = (part[0][half * 2 + 1] + part[1][half * 2 + 1]) +
                     (part[2][half * 2 + 1] + part[3][half * 2 + 1]);
            float *to = merge + warp * size + ((slot * HALVES + half) * 8 + g) * UNIT + 2 * t;
            *reinterpret_cast<float2 *>(to) = pair;
        }
    __syncthreads();
#pragma unroll
    for (int half = 0; half < HALVES; half++) {
        small_output own = small_own<HALVES>(a, shape, rows, unit_first, half);
        if (!own.valid)
            continue;
        float scale = a.norm_in.squares ? scales[own.row] : 1.0f;
        float y = small_sum<HALVES>(merge, own.at) * scale;
        if (a.bias)
            y += bias[half];
        if (shape.paired) {
            float up = small_sum<HALVES>(merge, own.at + HALVES * 8 * UNIT) * scale;
            if (a.bias)
                up += up_bias[half];
            y = y / (1.0f + expf(activation_exponent<KIND>(y))) * up;
        } else if (KIND != ACTIVATE_SILU) {
            y = y / (1.0f + expf(activation_exponent<KIND>(y)));
        }
        if (a.adds)
            y += before[half];
        store_value(a.y, (size_t)own.row * a.y_stride + own.n, a.y_dtype, y);
        if (a.norm_out.weight)
            squares[half] += norm_hand(a, own.row, own.n, y, weight[half]);
    }
}

#endif

template <int HALVES, enum activation KIND>
__global__ void __launch_bounds__(SMALL_THREADS, 1)
    small_kernel(const __grid_constant__ struct matmul_args a, const small_shape shape)
{
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
    extern __shared__ __align__(128) char memory[];
    __shared__ uint64_t barriers[SMALL_WARPS][GEMV_STAGES_MAX];
    __shared__ float scales[GEMV_ROWS_MAX];
    float *merge = reinterpret_cast<float *>(memory);
    /* Of all lanes the same, as the compiler shall know. */
    uint32_t warp = __shfl_sync(FULL_MASK, threadIdx.x / WARP, 0);
    uint32_t lane = threadIdx.x % WARP, stage_bytes = UNIT * shape.row_bytes;
    uint32_t ring = shared_address(memory) + SMALL_WARPS * GROUP * HALVES * 8 * UNIT * 4 +
                    warp * shape.stages * stage_bytes;
    uint32_t full = shared_address(barriers[warp]);
    if (warp_elect()) {
        ring_init(full, GEMV_STAGES_MAX, 1);
        barrier_init_done();
    }
    __syncwarp();
    uint64_t policy = __shfl_sync(FULL_MASK, policy_once(), 0);
    small_cursor ahead = {blockIdx.x, warp, 0}, at = ahead;
    for (uint32_t i = 0; i < shape.stages && small_more(ahead, shape); i++) {
        if (i > 0) /* what is asked for behind the wait would stand behind all that is on its way */
            barrier_wait(full + (i - 1) * 8, 0);
        small_fetch(a, shape, ahead, ring + i * stage_bytes, full + i * 8, policy);
        small_next(ahead, shape, warp);
    }
    if (warp == SMALL_WARPS - 1 && (a.bias || a.norm_out.weight))
        small_prefetch(a, shape);
    grid_wait();
    grid_trigger(); /* the kernel behind may read what those before this one have written */
    norm_parts norm_in[HALVES];
#pragma unroll
    for (int half = 0; half < HALVES; half++)
        if (a.norm_in.squares)
            norm_in[half] = norm_ask(a, half * 8 + warp, shape.parts);
    uint32_t rows = range_rows(a.rows), loaded = UINT32_MAX;
    ring_cursor now = {0, 0};
    uint4 x[STEPS][HALVES];
    float squares[HALVES] = {};
    for (; at.unit_first < shape.units; at.unit_first += (GROUP >> shape.paired) * gridDim.x) {
        float sum[GROUP][CHAINS][4] = {};
        for (at.chunk = warp; at.chunk < shape.chunks; at.chunk += SMALL_WARPS) {
            uint32_t begin = at.chunk * shape.chunk, left = a.w.k - begin;
            uint32_t count = left < shape.chunk ? left : shape.chunk;
            if (loaded != at.chunk)
                small_load_x(x, a, begin, count);
            loaded = at.chunk;
#pragma unroll
            for (int slot = 0; slot < GROUP; slot++) {
                if (small_unit(shape, at.unit_first, slot) >= shape.units)
                    break;
                ring_wait_full(full, now);
                uint32_t from = ring + now.stage * stage_bytes;
                small_multiply<STEPS>(sum[slot], x,
                                      from + lane / 4 * shape.row_bytes + lane % 4 * 16, count);
                if (small_more(ahead, shape)) {
                    reads_before_copy();
                    __syncwarp();
                    small_fetch(a, shape, ahead, from, ring_barrier(full, now), policy);
                    small_next(ahead, shape, warp);
                }
                ring_next(now, shape.stages);
            }
        }
        if (a.norm_in.squares && at.unit_first == blockIdx.x) {
#pragma unroll
            for (int half = 0; half < HALVES; half++)
                scales[half * 8 + warp] =
                    norm_scale_of(a, norm_in[half]); /* of all lanes the same */
        }
        small_store<HALVES, KIND>(a, shape, sum, merge, scales, squares, rows, at.unit_first);
    }
    if (a.norm_out.weight)
        small_hand_squares<HALVES>(a, rows, squares, merge);
#endif
}

bool gemv_can(const struct matmul_args *a)
{
    bool aligned = a->w.k % 8 == 0 && a->x_stride % 8 == 0 && a->w.k > 0 &&
                   reinterpret_cast<uintptr_t>(a->x) % 16 == 0 &&
                   reinterpret_cast<uintptr_t>(a->w.data) % 16 == 0;
    bool gated = !a->gated || a->w.n % (2 * UNIT) == 0;
    bool alone = !a->activates || (!a->gated && !a->adds && a->activation != ACTIVATE_SILU);
    return device_props()->major == 9 && aligned && gated && alone &&
           a->rows.max <= GEMV_ROWS_MAX && a->w.format == FORMAT_HALF && a->x_dtype == DTYPE_HALF &&
           (!a->adds || a->y_dtype == DTYPE_F32) && matmul_norm_can(a, device_props()->processors);
}

/* One per SM, where there are so many units. */
static uint32_t small_blocks(uint32_t units)
{
    uint32_t most = device_props()->processors;
    return units < most ? units : most;
}

template <int HALVES, enum activation KIND>
static cudaError_t small_launch(const struct matmul_args *args, cudaStream_t stream)
{
    const struct device_props *device = device_props();
    struct small_shape shape;
    uint32_t k = args->w.k, turns = ceil_div(k, SMALL_WARPS * CHUNK_MAX);
    shape.paired = args->gated;
    shape.units = args->gated ? args->w.n / (2 * UNIT) : ceil_div(args->w.n, UNIT);
    shape.chunk = ceil_div(ceil_div(k, SMALL_WARPS * turns), 32) * 32;
    shape.chunks = ceil_div(k, shape.chunk);
    shape.row_bytes = shape.chunk * 2 + (shape.chunk % 64 ? 0 : 64);
    uint32_t merge = SMALL_WARPS * GROUP * HALVES * 8 * UNIT * 4;
    shape.stages = ring_stages(device->shared_max - merge - SMALL_FIXED - 128,
                               SMALL_WARPS * UNIT * shape.row_bytes, GEMV_STAGES_MAX);
    static struct device_once once;
    cudaError_t result = device_allow(&once, small_kernel<HALVES, KIND>, device, SMALL_FIXED);
    if (result != cudaSuccess)
        return result;
    shape.parts = small_blocks(ceil_div(k, UNIT)); /* of the product that handed x on */
    return launch(small_kernel<HALVES, KIND>, dim3(small_blocks(shape.units)), SMALL_THREADS,
                  merge + shape.stages * SMALL_WARPS * UNIT * shape.row_bytes, stream, *args,
                  shape);
}

template <enum activation KIND>
static cudaError_t small_rows(const struct matmul_args *args, cudaStream_t stream)
{
    return args->rows.max <= 8 ? small_launch<1, KIND>(args, stream)
                               : small_launch<2, KIND>(args, stream);
}

cudaError_t gemv(const struct matmul_args *args, cudaStream_t stream)
{
    bool silu = args->activation == ACTIVATE_SILU || !(args->gated || args->activates);
    return silu ? small_rows<ACTIVATE_SILU>(args, stream)
                : small_rows<ACTIVATE_GELU_TANH>(args, stream);
}

} // namespace HALF
