/* Products of up to EIGHT_ROWS_MAX rounded rows with weights in e4m3, on sm_90: bound by reading
 * the weights once.
 *
 * The tensor cores multiply bytes of e4m3 as they lie in shared memory, so nothing is done to a
 * weight on its way: a tile is 64 outputs (of gate and up 32 channels of each), the left operand,
 * and all rows, the right one. A warp fills a ring of stages of 256 columns, the first of them
 * before the kernel waits for the one before it, a warpgroup multiplies. Tensor cores keep some 13
 * bits of what they have summed: every 128 columns are summed anew and added up in float32.
 *
 * Two blocks have an SM, so that one reads while another ends. Where tiles are fewer, a cluster of
 * blocks shares the columns of one; each adds up a part of the outputs, in the order of blocks,
 * from the sums that all lay in their shared memory. */
#include "gpu/kernels/activation/activation.cuh"
#include "gpu/kernels/common/device_props.cuh"
#include "gpu/kernels/common/ring.cuh"
#include "gpu/kernels/common/tensor_map.cuh"
#include "gpu/kernels/common/wgmma.cuh"
#include "gpu/kernels/common/e4m3.cuh"
#include "gpu/kernels/matmul/rounded.cuh"

#define OUTPUTS 64
#define HALF_STEP 128 /* columns that are summed by the tensor cores; bytes of a row of a box */
#define STEP (2 * HALF_STEP)
#define GROUP_THREADS 128 /* of the warpgroup */
#define WARPS (GROUP_THREADS / WARP)
#define THREADS (GROUP_THREADS + WARP)
#define PER_PROCESSOR 2
#define STAGES_MAX 8
#define STAGE_ALIGNMENT 1024 /* of what is swizzled */
#define FIXED (2 * STAGE_ALIGNMENT)
#define RESERVED 1024       /* of an SM's shared memory, for each block */
#define PITCH (OUTPUTS + 4) /* floats of a row of sums, against bank conflicts */
#define CLUSTER_MAX 8
#define COST_BEGIN 6 /* of a block, in stages */
#define TOGETHER 2   /* fours of outputs that a thread has on their way at a time */

namespace eight
{

struct args {
    CUtensorMap x, w;
    struct matmul_args m;
    const float *row_scales;
    uint32_t steps, cluster; /* steps: of all columns; blocks that share them */
    uint32_t stages;
    bool raw; /* y is sums alone: others scale them */
};

template <int N> __host__ __device__ __forceinline__ constexpr uint32_t stage_bytes()
{
    return (OUTPUTS + N) * STEP;
}

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

struct tile {
    uint32_t output;     /* the first one; of gate and up the channel */
    uint32_t first, end; /* steps of this block */
    uint32_t stages, full, empty;
};

/* One thread: fills the ring. */
template <int N> __device__ __forceinline__ void bring(const args &a, const tile &t)
{
    const uint64_t once = policy_once(), again = policy_again();
    const uint32_t count = t.end - t.first, ahead = min(count, a.stages);
    const uint32_t boxes = a.m.gated ? 2 : 1, height = OUTPUTS / boxes;
    auto weights = [&](uint32_t stage, uint32_t step) {
        uint32_t to = t.stages + stage * stage_bytes<N>(), barrier = t.full + stage * 8;
        barrier_expect(barrier, stage_bytes<N>());
        for (uint32_t half = 0; half < 2; half++)
            for (uint32_t i = 0; i < boxes; i++)
                copy_box(to + half * OUTPUTS * HALF_STEP + i * height * HALF_STEP, &a.w,
                         step * STEP + half * HALF_STEP, t.output + i * (a.m.w.n / 2), barrier,
                         once);
    };
    auto rows = [&](uint32_t stage, uint32_t step) {
        uint32_t to = t.stages + stage * stage_bytes<N>() + OUTPUTS * STEP;
        for (uint32_t half = 0; half < 2; half++)
            copy_box(to + half * N * HALF_STEP, &a.x, step * STEP + half * HALF_STEP, 0,
                     t.full + stage * 8, again);
    };
    for (uint32_t i = 0; i < ahead; i++)
        weights(i, t.first + i);
    grid_wait();
    grid_trigger();
    for (uint32_t i = 0; i < ahead; i++)
        rows(i, t.first + i);
    ring_cursor at = {0, 1};
    for (uint32_t i = ahead; i < count; i++) {
        ring_wait_empty(t.empty, at);
        weights(at.stage, t.first + i);
        rows(at.stage, t.first + i);
        ring_next(at, a.stages);
    }
}

/* The warpgroup: sum = the products of its tile. */
template <int N>
__device__ __forceinline__ void multiply(float (&sum)[N / 2], const args &a, const tile &t)
{
    ring_cursor at = {0, 0};
    for (uint32_t step = t.first; step < t.end; step++) {
        float part[2][N / 2];
        uint32_t stage = t.stages + at.stage * stage_bytes<N>();
        ring_wait_full(t.full, at);
        wgmma_begin();
#pragma unroll
        for (int half = 0; half < 2; half++)
#pragma unroll
            for (int k = 0; k < HALF_STEP; k += 32)
                wgmma_eight(part[half], wgmma_operand(stage + half * OUTPUTS * HALF_STEP + k, 16),
                            wgmma_operand(stage + OUTPUTS * STEP + half * N * HALF_STEP + k, 16),
                            k > 0);
        wgmma_commit();
        wgmma_wait<0>();
        wgmma_hold(part[0]);
        wgmma_hold(part[1]);
        if (threadIdx.x % WARP == 0)
            ring_give_back(t.empty, at);
        ring_next(at, a.stages);
#pragma unroll
        for (int i = 0; i < N / 2; i++)
            sum[i] += part[0][i] + part[1][i];
    }
}

template <int N> __device__ __forceinline__ void sums_lay(const float (&sum)[N / 2], float *sums)
{
    uint32_t lane = threadIdx.x % WARP, of = threadIdx.x / WARP * 16 + lane / 4;
#pragma unroll
    for (int i = 0; i < N / 2; i++) {
        uint32_t row = i / 4 * 8 + lane % 4 * 2 + i % 2;
        sums[row * PITCH + of + i / 2 % 2 * 8] = sum[i];
    }
}

/* Four outputs of a row, of all blocks of the cluster. */
__device__ __forceinline__ float4 sums_of(const args &a, uint32_t sums, uint32_t row, uint32_t of)
{
    float4 out = {};
    for (uint32_t i = 0; i < a.cluster; i++) {
        uint32_t at = sums + (row * PITCH + of) * 4;
        float4 part = cluster_load(a.cluster > 1 ? cluster_address(at, i) : at);
        out.x += part.x;
        out.y += part.y;
        out.z += part.z;
        out.w += part.w;
    }
    return out;
}

/* Four outputs of a row, which a thread finishes. */
struct four {
    uint32_t row, of; /* of the tile */
    uint32_t n;
    size_t at; /* in y */
    float before[4];
    bool valid;
};

__device__ __forceinline__ four four_ask(const args &a, const tile &t, uint32_t rank,
                                         uint32_t number)
{
    const struct matmul_args &m = a.m;
    uint32_t part = OUTPUTS / (m.gated ? 2 : 1) / a.cluster, fours = part / 4;
    uint32_t outputs = m.gated ? m.w.n / 2 : m.w.n;
    four out;
    out.row = number / fours;
    out.of = rank * part + number % fours * 4;
    out.n = t.output + out.of;
    out.at = (size_t)out.row * m.y_stride + out.n;
    out.valid = out.row < m.rows.max && out.n < outputs; /* n is a multiple of 16 */
#pragma unroll
    for (int i = 0; i < 4; i++)
        out.before[i] = out.valid && m.adds ? load_value(m.y, out.at + i, m.y_dtype) : 0.0f;
    return out;
}

__device__ __forceinline__ void four_store(const args &a, const tile &t, const four &to)
{
    const struct matmul_args &m = a.m;
    const uint32_t width = OUTPUTS / 2, half = m.w.n / 2;
    float4 sums = sums_of(a, t.stages, to.row, to.of), ups = {};
    if (m.gated)
        ups = sums_of(a, t.stages, to.row, to.of + width);
    const float y[] = {sums.x, sums.y, sums.z, sums.w}, up[] = {ups.x, ups.y, ups.z, ups.w};
    float by_row = a.raw ? 1.0f : a.row_scales[to.row];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        uint32_t n = to.n + i;
        float value = a.raw ? y[i] : y[i] * (by_row * weight_scale(m.w, n, 0));
        if (m.bias)
            value += load_value(m.bias, n, m.bias_dtype);
        if (m.gated || m.activates)
            value = matmul_activated(m, value);
        if (m.gated) {
            float by = up[i] * (by_row * weight_scale(m.w, half + n, 0));
            if (m.bias)
                by += load_value(m.bias, half + n, m.bias_dtype);
            value *= by;
        }
        store_value(m.y, to.at + i, m.y_dtype, m.adds ? value + to.before[i] : value);
    }
}

/* The warpgroup, of the block that is `rank` of its cluster: its part of the outputs of all rows.
 * What they are added to is asked for some at a time: it lies far. */
__device__ __forceinline__ void finish(const args &a, const tile &t, uint32_t rank)
{
    uint32_t count = a.m.rows.max * (OUTPUTS / (a.m.gated ? 2 : 1) / a.cluster / 4);
    for (uint32_t first = threadIdx.x; first < count; first += GROUP_THREADS * TOGETHER) {
        four to[TOGETHER];
#pragma unroll
        for (uint32_t i = 0; i < TOGETHER; i++)
            to[i] = four_ask(a, t, rank, first + i * GROUP_THREADS);
#pragma unroll
        for (uint32_t i = 0; i < TOGETHER; i++)
            if (to[i].valid)
                four_store(a, t, to[i]);
    }
}

/* All that multiply. */
__device__ __forceinline__ void group_sync()
{
    asm volatile("bar.sync 1, %0;" ::"n"(GROUP_THREADS) : "memory");
}

#endif

template <int N>
__global__ void __launch_bounds__(THREADS, PER_PROCESSOR)
    eight_kernel(const __grid_constant__ struct args a)
{
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
    extern __shared__ __align__(STAGE_ALIGNMENT) char memory[];
    __shared__ ring_barriers<STAGES_MAX> barriers;
    tile t;
    uint32_t rank = a.cluster > 1 ? cluster_rank() : 0;
    t.full = shared_address(barriers.full);
    t.empty = shared_address(barriers.empty);
    t.stages = (shared_address(memory) + STAGE_ALIGNMENT - 1) / STAGE_ALIGNMENT * STAGE_ALIGNMENT;
    t.output = blockIdx.x / a.cluster * (a.m.gated ? OUTPUTS / 2 : OUTPUTS);
    t.first = a.steps * rank / a.cluster;
    t.end = a.steps * (rank + 1) / a.cluster;
    if (threadIdx.x == 0) {
        ring_init(t.full, STAGES_MAX, 1);
        ring_init(t.empty, STAGES_MAX, WARPS);
        barrier_init_done();
    }
    __syncthreads();
    if (threadIdx.x >= GROUP_THREADS) {
        if (warp_elect())
            bring<N>(a, t);
        return;
    }
    float *sums = reinterpret_cast<float *>(memory + (t.stages - shared_address(memory)));
    float sum[N / 2] = {};
    multiply<N>(sum, a, t);
    group_sync(); /* nothing of the ring is read any more */
    sums_lay<N>(sum, sums);
    grid_wait();
    if (a.cluster > 1)
        cluster_sync();
    else
        group_sync();
    finish(a, t, rank);
    if (a.cluster > 1)
        cluster_sync(); /* others may still read this one's sums */
#endif
}

/* Blocks that share a tile's columns: what takes least time, in stages. */
static uint32_t cluster_of(uint32_t tiles, uint32_t steps)
{
    uint32_t best = 1, least = UINT32_MAX, slots = device_props()->processors * PER_PROCESSOR;
    for (uint32_t cluster = 1; cluster <= CLUSTER_MAX && cluster <= steps; cluster *= 2) {
        uint32_t room = cluster > 2 ? slots * 9 / 10 : slots;
        uint32_t turns = ceil_div(tiles, room / cluster ? room / cluster : 1);
        uint32_t cost = turns * (ceil_div(steps, cluster) + COST_BEGIN);
        if (cost < least) {
            least = cost;
            best = cluster;
        }
    }
    return best;
}

template <int N>
static cudaError_t eight_launch(const struct matmul_args *m, const struct rounded *x,
                                cudaStream_t stream)
{
    const struct device_props *device = device_props();
    static struct device_once once;
    const uint32_t height = m->gated ? OUTPUTS / 2 : OUTPUTS;
    uint32_t tiles = ceil_div(m->gated ? m->w.n / 2 : m->w.n, height);
    struct args a = {};
    a.m = *m;
    a.row_scales = x->scales;
    a.raw = !m->w.scales.data;
    a.steps = ceil_div(m->w.k, STEP);
    a.cluster = cluster_of(tiles, a.steps);
    uint32_t room = (device->shared_max + RESERVED) / PER_PROCESSOR - RESERVED - FIXED;
    a.stages = ring_stages(room, stage_bytes<N>(), STAGES_MAX);
    cudaError_t result = device_allow(&once, eight_kernel<N>, device, STAGE_ALIGNMENT);
    if (result == cudaSuccess)
        result = tensor_map_bytes(&a.w, m->w.data, m->w.n, m->w.k, m->w.k, HALF_STEP, height);
    if (result == cudaSuccess)
        result = tensor_map_bytes(&a.x, x->bytes, m->rows.max, m->w.k, x->stride, HALF_STEP, N);
    if (result != cudaSuccess)
        return result;
    cudaLaunchAttribute attributes[2];
    attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[0].val.programmaticStreamSerializationAllowed = 1;
    attributes[1].id = cudaLaunchAttributeClusterDimension;
    attributes[1].val.clusterDim.x = a.cluster;
    attributes[1].val.clusterDim.y = attributes[1].val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(tiles * a.cluster);
    config.blockDim = dim3(THREADS);
    config.dynamicSmemBytes = STAGE_ALIGNMENT + a.stages * stage_bytes<N>();
    config.stream = stream;
    config.attrs = attributes;
    config.numAttrs = a.cluster > 1 ? 2 : 1;
    return cudaLaunchKernelEx(&config, eight_kernel<N>, a);
}

} // namespace eight

bool rounded_multiply_can(const struct matmul_args *a)
{
    return tensor_map_can() && a->rows.max <= EIGHT_ROWS_MAX && (!a->gated || a->w.n % 2 == 0) &&
           !(a->gated && a->activates);
}

cudaError_t rounded_multiply(const struct matmul_args *a, const struct rounded *x,
                             cudaStream_t stream)
{
    return a->rows.max <= 8 ? eight::eight_launch<8>(a, x, stream)
                            : eight::eight_launch<16>(a, x, stream);
}
