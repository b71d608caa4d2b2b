/* gate and up of 17 to 256 rows on sm_90, with SwiGLU of what they give: bound by power where rows
 * are many, else by reading the weights once.
 *
 * A tile is up to 192 rows of x, or half of more, and as many outputs as suit the number of SMs:
 * gate's of half as many channels, then up's of the same, so that a thread has both of a channel in
 * its registers. Up to three warpgroups have 64 rows each; a warp of another one fills the ring
 * (matmul_ring.cuh). One block per SM goes through the tiles in turns.
 *
 * At 256 rows the power limit brings the clocks down, so whatever else takes energy costs time. How
 * long it takes beside cuBLASLt's (`bench_kernels gated`), and what lost:
 * tests/bench/EXPERIMENTS.md. */
#include "gpu/kernels/activation/swiglu.cuh"
#include "gpu/kernels/matmul/copy_ring.cuh"

namespace HALF
{

struct gated_args {
    struct ring_args ring;
    void *y;
    uint32_t y_stride, channels; /* channels: outputs, half of the weights' rows */
    uint32_t blocks, tiles;      /* blocks: of rows */
};

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* The tile that this block is at after so many. Blocks of rows that share weights go one after the
 * other, so that those are read once. */
template <int WIDTH>
__device__ __forceinline__ bool gated_find(const gated_args &a, uint32_t turn, ring_tile &ret)
{
    uint32_t number = blockIdx.x + turn * gridDim.x;
    ret.row = number % a.blocks * a.ring.block_rows;
    ret.n = number / a.blocks * (WIDTH / 2);
    ret.begin = 0;
    ret.end = ring_steps(a.ring);
    return number < a.tiles;
}

/* c: gate of half the columns, then up of the same; the thread's rows are `row` and row + 8. */
template <int WIDTH>
__device__ __forceinline__ void gated_store(const gated_args &a, const float (&c)[WIDTH / 2],
                                            uint32_t row, uint32_t rows, uint32_t channel)
{
    const int up = WIDTH / 4;
#pragma unroll
    for (int half = 0; half < 2; half++, row += 8) {
        if (row >= rows)
            return;
#pragma unroll
        for (int i = 0; i < up; i += 4) {
            int at = i + half * 2;
            uint32_t to = channel + i * 2;
            if (to < a.channels)
                *reinterpret_cast<uint32_t *>(static_cast<half_t *>(a.y) +
                                              (size_t)row * a.y_stride + to) =
                    pack(gated(c[at], c[up + at]), gated(c[at + 1], c[up + at + 1]), DTYPE_HALF);
        }
    }
}

#endif

template <int GROUPS, int WIDTH>
__global__ void __launch_bounds__((GROUPS + 1) * GROUP_THREADS, 1)
    gated_kernel(const __grid_constant__ struct gated_args a)
{
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
    const int rows = GROUPS * GROUP_ROWS;
    extern __shared__ __align__(RING_ALIGNMENT) char memory[];
    __shared__ ring_shared shared;
    uint32_t stages = ring_begin(a.ring, shared, memory, GROUPS);
    grid_trigger(); /* the kernel behind waits for this one by itself */
    auto tiles = [&](uint32_t turn, ring_tile &ret) { return gated_find<WIDTH>(a, turn, ret); };
    if (threadIdx.x < GROUP_THREADS) {
        registers_less<40>();
        if (threadIdx.x < WARP && warp_elect())
            ring_prefetch<rows, WIDTH, 2>(a.ring, shared, stages, tiles);
        return;
    }
    registers_more<GROUPS == 3 ? 152 : 232>();
    uint32_t group = threadIdx.x / GROUP_THREADS - 1, lane = threadIdx.x % WARP;
    uint32_t row = group * GROUP_ROWS + threadIdx.x % GROUP_THREADS / WARP * 16 + lane / 4;
    float c[WIDTH / 2];
    ring_place at = {0, 0};
    ring_tile tile;
    grid_wait();
    for (uint32_t turn = 0; tiles(turn, tile); turn++) {
        ring_multiply<rows, WIDTH>(c, a.ring, shared, stages, at, tile.end, group);
        gated_store<WIDTH>(a, c, tile.row + row, min(tile.row + a.ring.block_rows, a.ring.rows),
                           tile.n + lane % 4 * 2);
    }
#endif
}

bool matmul_gated_can(const struct matmul_args *a)
{
    bool plain = !a->adds && !a->bias && !a->norm_out.weight && !a->norm_in.squares;
    return a->gated && plain && a->rows.max > GEMV_ROWS_MAX && a->rows.max <= MATMUL_GATED_MAX &&
           a->w.n % 4 == 0 && a->y_stride % 2 == 0 && a->y_dtype == DTYPE_HALF && ring_can(a);
}

template <int GROUPS, int WIDTH>
static cudaError_t gated_launch(const struct matmul_args *args, uint32_t blocks,
                                cudaStream_t stream)
{
    const struct device_props *device = device_props();
    const uint32_t stage_bytes = (GROUPS * GROUP_ROWS + WIDTH) * STEP_BYTES;
    static struct device_once once;
    struct gated_args a;
    cudaError_t result = device_allow(&once, gated_kernel<GROUPS, WIDTH>, device, RING_FIXED);
    if (result == cudaSuccess)
        result = ring_fill(&a.ring, args, blocks, stage_bytes, WIDTH / 2);
    if (result != cudaSuccess)
        return result;
    a.y = args->y;
    a.y_stride = args->y_stride;
    a.channels = args->w.n / 2;
    a.blocks = blocks;
    a.tiles = blocks * ceil_div(a.channels, WIDTH / 2);
    uint32_t grid = a.tiles < device->processors ? a.tiles : device->processors;
    return launch(gated_kernel<GROUPS, WIDTH>, dim3(grid), (GROUPS + 1) * GROUP_THREADS,
                  RING_ALIGNMENT + a.ring.stages * stage_bytes, stream, a);
}

/* How long tiles of this width take, in columns of an SM. */
static uint32_t gated_columns(const struct matmul_args *args, uint32_t blocks, uint32_t width)
{
    return ceil_div(blocks * ceil_div(args->w.n, width), device_props()->processors) * width;
}

/* The width that takes least; of equals the widest, which reads x least often. */
template <int GROUPS>
static cudaError_t gated_width(const struct matmul_args *args, uint32_t blocks, cudaStream_t stream)
{
    static const uint32_t widths[] = {96, 112, 128, 192, 224};
    const uint32_t most = GROUPS < 3 ? 224 : 128; /* as registers allow */
    uint32_t best = 96;
    for (uint32_t width : widths)
        if (width <= most &&
            gated_columns(args, blocks, width) <= gated_columns(args, blocks, best))
            best = width;
    if constexpr (GROUPS < 3) {
        if (best == 224)
            return gated_launch<GROUPS, 224>(args, blocks, stream);
        if (best == 192)
            return gated_launch<GROUPS, 192>(args, blocks, stream);
    }
    return best == 128   ? gated_launch<GROUPS, 128>(args, blocks, stream)
           : best == 112 ? gated_launch<GROUPS, 112>(args, blocks, stream)
                         : gated_launch<GROUPS, 96>(args, blocks, stream);
}

cudaError_t matmul_gated(const struct matmul_args *args, cudaStream_t stream)
{
    uint32_t groups = ceil_div(args->rows.max, GROUP_ROWS);
    if (groups == 1)
        return gated_width<1>(args, 1, stream);
    if (groups == 3)
        return gated_width<3>(args, 1, stream);
    return gated_width<2>(args, groups / 2, stream);
}

} // namespace HALF
