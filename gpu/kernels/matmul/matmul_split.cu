/* Products of 193 to 256 rows that are added to the residual, on sm_90, where tiles of 128 rows and
 * 128 columns are half as many as SMs (o and down of 4,096 outputs): two blocks share the values of
 * k of a tile, so that nearly all SMs have one.
 *
 * The two are a cluster. Each fills a ring of its own (matmul_ring.cuh), and has two warpgroups,
 * of 64 rows each. In the end each gives the other the sums of the half of the rows that are not
 * its own, through its shared memory, and adds up and stores its own half. What the residual holds
 * is asked for before that.
 *
 * Bound by power, as all at so many rows, and by the way from the L2 into SMs: with the tensor
 * cores always busy each SM would take in 64 bytes a clock. What it gives beside cuBLASLt's:
 * tests/bench/EXPERIMENTS.md. Steps of 193 to 255 rows were not measured. */
#include "gpu/kernels/matmul/copy_ring.cuh"

#define SPLIT_ROWS_MIN 193
#define SPLIT_WIDTH 128

namespace HALF
{

struct split_args {
    struct ring_args ring;
    float *y;
    uint32_t y_stride, n;
};

#define SPLIT_BLOCKS 2 /* of rows */
#define SPLIT_GROUPS 2 /* one for each block of the cluster */
#define SPLIT_THREADS ((SPLIT_GROUPS + 1) * GROUP_THREADS)
#define STAGE_BYTES ((SPLIT_GROUPS * GROUP_ROWS + SPLIT_WIDTH) * STEP_BYTES)

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* This block's part of its cluster's tile. */
__device__ __forceinline__ ring_tile split_find(const split_args &a)
{
    uint32_t number = blockIdx.x / 2, steps = ring_steps(a.ring), middle = (steps + 1) / 2;
    bool first = cluster_rank() == 0;
    return {number % SPLIT_BLOCKS * a.ring.block_rows, number / SPLIT_BLOCKS * SPLIT_WIDTH,
            first ? 0 : middle, first ? middle : steps};
}

/* What the thread's results are added to: rows `row` and row + 8 up to `end`. */
__device__ __forceinline__ void split_load(float2 (&before)[2][SPLIT_WIDTH / 8],
                                           const split_args &a, uint32_t row, uint32_t end,
                                           uint32_t column)
{
#pragma unroll
    for (int half = 0; half < 2; half++)
#pragma unroll
        for (int i = 0; i < SPLIT_WIDTH / 8; i++) {
            uint32_t r = row + half * 8, n = column + i * 8;
            bool valid = r < end && n < a.n;
            const float *from = a.y + (size_t)r * a.y_stride + n;
            before[half][i] =
                valid ? __ldcg(reinterpret_cast<const float2 *>(from)) : make_float2(0, 0);
        }
}

__device__ __forceinline__ void split_store(const float (&c)[SPLIT_WIDTH / 2],
                                            const float2 (&before)[2][SPLIT_WIDTH / 8],
                                            const split_args &a, uint32_t row, uint32_t end,
                                            uint32_t column)
{
#pragma unroll
    for (int half = 0; half < 2; half++)
#pragma unroll
        for (int i = 0; i < SPLIT_WIDTH / 8; i++) {
            uint32_t r = row + half * 8, n = column + i * 8;
            float2 old = before[half][i];
            if (r < end && n < a.n)
                *reinterpret_cast<float2 *>(a.y + (size_t)r * a.y_stride + n) =
                    make_float2(old.x + c[i * 4 + half * 2], old.y + c[i * 4 + half * 2 + 1]);
        }
}

#endif

__global__ void __launch_bounds__(SPLIT_THREADS, 1)
    split_kernel(const __grid_constant__ struct split_args a)
{
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
    const int rows = SPLIT_GROUPS * GROUP_ROWS;
    extern __shared__ __align__(RING_ALIGNMENT) char memory[];
    __shared__ ring_shared shared;
    uint32_t stages = ring_begin(a.ring, shared, memory, SPLIT_GROUPS);
    grid_trigger(); /* the kernel behind waits for this one by itself */
    ring_tile tile = split_find(a);
    if (threadIdx.x < GROUP_THREADS) {
        registers_less<40>();
        auto tiles = [&](uint32_t number, ring_tile &ret) {
            ret = tile;
            return number == 0;
        };
        if (threadIdx.x < WARP && warp_elect())
            ring_prefetch<rows, SPLIT_WIDTH, 1>(a.ring, shared, stages, tiles);
        __syncwarp();
        cluster_sync();
        cluster_sync();
        return;
    }
    registers_more<232>();
    uint32_t group = threadIdx.x / GROUP_THREADS - 1, thread = threadIdx.x % GROUP_THREADS;
    uint32_t lane = threadIdx.x % WARP, rank = cluster_rank();
    uint32_t row = tile.row + group * GROUP_ROWS + thread / WARP * 16 + lane / 4;
    uint32_t end = min(tile.row + a.ring.block_rows, a.ring.rows), column = tile.n + lane % 4 * 2;
    float c[SPLIT_WIDTH / 2];
    float2 before[2][SPLIT_WIDTH / 8];
    ring_place at = {0, 0};
    grid_wait();
    ring_multiply<rows, SPLIT_WIDTH>(c, a.ring, shared, stages, at, tile.end - tile.begin, group);
    bool own = group == rank;
    if (own)
        split_load(before, a, row, end, column);
    uint32_t place = stages + thread * 16;
    cluster_sync(); /* the other's stages have been read, so sums can lie there */
    if (!own)
#pragma unroll
        for (int i = 0; i < SPLIT_WIDTH / 2; i += 4)
            store_shared_at(place + i * (GROUP_THREADS * 4), rank ^ 1,
                            make_float4(c[i], c[i + 1], c[i + 2], c[i + 3]));
    cluster_sync();
    if (!own)
        return;
#pragma unroll
    for (int i = 0; i < SPLIT_WIDTH / 2; i += 4) {
        uint4 part = load_shared(place + i * (GROUP_THREADS * 4));
        c[i] += __uint_as_float(part.x);
        c[i + 1] += __uint_as_float(part.y);
        c[i + 2] += __uint_as_float(part.z);
        c[i + 3] += __uint_as_float(part.w);
    }
    split_store(c, before, a, row, end, column);
#endif
}

/* Blocks, two of a cluster for each tile. */
static uint32_t split_grid(const struct matmul_args *args)
{
    return 2 * SPLIT_BLOCKS * ceil_div(args->w.n, SPLIT_WIDTH);
}

bool matmul_split_can(const struct matmul_args *a)
{
    bool plain = !a->gated && !a->bias && !a->norm_out.weight && !a->norm_in.squares;
    if (!a->adds || !plain || a->y_dtype != DTYPE_F32 || a->rows.max < SPLIT_ROWS_MIN ||
        a->rows.max > SPLIT_BLOCKS * SPLIT_GROUPS * GROUP_ROWS || a->w.n % 2 || a->y_stride % 2 ||
        a->w.k <= STEP_K || !ring_can(a))
        return false;
    uint32_t grid = split_grid(a), most = device_props()->processors;
    return grid <= most && grid > most - most / 8;
}

cudaError_t matmul_split(const struct matmul_args *args, cudaStream_t stream)
{
    static struct device_once once;
    struct split_args a;
    cudaError_t result = device_allow(&once, split_kernel, device_props(), RING_FIXED);
    if (result == cudaSuccess)
        result = ring_fill(&a.ring, args, SPLIT_BLOCKS, STAGE_BYTES, SPLIT_WIDTH);
    if (result != cudaSuccess)
        return result;
    a.y = static_cast<float *>(args->y);
    a.y_stride = args->y_stride;
    a.n = args->w.n;
    return launch_in(2, split_kernel, dim3(split_grid(args)), SPLIT_THREADS,
                     RING_ALIGNMENT + a.ring.stages * STAGE_BYTES, stream, a);
}

} // namespace HALF
