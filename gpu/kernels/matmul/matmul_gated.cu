/* gate and up of 17 to 256 rows on sm_90, with what they give activated: bound by power where rows
 * are many, else by reading the weights once.
 *
 * A tile is up to 192 rows of x, or half of more, and as many outputs as suit the number of SMs:
 * gate's of half as many channels, then up's of the same, so that a thread has both of a channel in
 * its registers. Up to three warpgroups have 64 rows each, and multiply from a ring of stages that
 * one thread of another warpgroup fills. One block per SM goes through the tiles in turns.
 *
 * A stage has 64 values of k: of up to 64 rows of x for each warpgroup, and of the tile's weights,
 * in boxes that the copy engine lays out. Tiles follow each other in the ring without a gap. The
 * first weights are under way before the kernel waits for the one before it. Rows that a block of x
 * does not have are multiplied as they lie in the ring, and not stored: were the box as large as
 * the stage, the copy engine would make zeros for them, which took it longer than rows do.
 *
 * What a row gets depends neither on the other rows nor on their number. At 256 rows the power
 * limit brings the clocks down, so whatever else takes energy costs time. How long it takes beside
 * cuBLASLt's (`bench_kernels gated`), and what lost: tests/bench/EXPERIMENTS.md. */
#include "gpu/kernels/activation/activation.cuh"
#include "gpu/kernels/common/device_props.cuh"
#include "gpu/kernels/common/ring.cuh"
#include "gpu/kernels/common/tensor_map.cuh"
#include "gpu/kernels/common/wgmma.cuh"
#include "gpu/kernels/matmul/matmul.cuh"

namespace HALF
{

#define GROUP_THREADS 128 /* of a warpgroup */
#define GROUP_ROWS 64     /* of x, of a warpgroup */
#define STEP_K 64 /* values of k in a stage: rows of 128 bytes, as wgmma_operand() has them */
#define STEP_BYTES (STEP_K * 2)
#define GATED_STAGES_MAX 8
#define STAGE_ALIGNMENT 1024                                     /* of what is swizzled */
#define GATED_FIXED (STAGE_ALIGNMENT + 2 * GATED_STAGES_MAX * 8) /* bytes beside the stages */

struct gated_args {
    CUtensorMap x, w;
    void *y;
    uint32_t rows, block_rows;   /* of x; of a block of them, the last of which may have fewer */
    uint32_t steps, stages;      /* steps of STEP_K in a tile */
    uint32_t y_stride, channels; /* channels: outputs, half of the weights' rows */
    uint32_t blocks, tiles;      /* blocks: of rows */
};

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* The ring, as all threads see it; shared memory's addresses. */
struct gated_ring {
    uint32_t full, empty; /* barriers */
    uint32_t stages;      /* the first one's values */
};

struct gated_tile {
    uint32_t row, channel; /* the first ones */
};

/* The tile that this block is at after so many. Blocks of rows that share weights go one after the
 * other, so that those are read once. */
template <int WIDTH>
__device__ __forceinline__ bool gated_find(const gated_args &a, uint32_t turn, gated_tile &ret)
{
    uint32_t number = blockIdx.x + turn * gridDim.x;
    ret.row = number % a.blocks * a.block_rows;
    ret.channel = number / a.blocks * (WIDTH / 2);
    return number < a.tiles;
}

/* Whole block, of so many groups that multiply. */
__device__ __forceinline__ gated_ring gated_begin(ring_barriers<GATED_STAGES_MAX> &barriers,
                                                  const char *memory, uint32_t groups)
{
    gated_ring ring;
    ring.full = shared_address(barriers.full);
    ring.empty = shared_address(barriers.empty);
    ring.stages =
        (shared_address(memory) + STAGE_ALIGNMENT - 1) / STAGE_ALIGNMENT * STAGE_ALIGNMENT;
    if (threadIdx.x == 0) {
        ring_init(ring.full, GATED_STAGES_MAX, 1);
        ring_init(ring.empty, GATED_STAGES_MAX, groups * GROUP_THREADS / WARP);
        barrier_init_done();
    }
    __syncthreads();
    return ring;
}

/* One thread: brings the block's tiles, in their order. */
template <int ROWS, int WIDTH>
__device__ __forceinline__ void gated_prefetch(const gated_args &a, const gated_ring &ring)
{
    const uint32_t x_bytes = ROWS * STEP_BYTES, half_bytes = WIDTH / 2 * STEP_BYTES;
    const uint32_t bytes = x_bytes + 2 * half_bytes;
    uint64_t once = policy_once(), again = policy_again();
    gated_tile tile;
    auto weights = [&](uint32_t stage, uint32_t step) {
        uint32_t to = ring.stages + stage * bytes + x_bytes, barrier = ring.full + stage * 8;
        barrier_expect(barrier, a.block_rows * STEP_BYTES + 2 * half_bytes);
#pragma unroll
        for (int i = 0; i < 2; i++) /* gate, up */
            copy_box(to + i * half_bytes, &a.w, step * STEP_K, tile.channel + i * a.channels,
                     barrier, once);
    };
    auto rows = [&](uint32_t stage, uint32_t step) {
        copy_box(ring.stages + stage * bytes, &a.x, step * STEP_K, tile.row, ring.full + stage * 8,
                 again);
    };
    if (!gated_find<WIDTH>(a, 0, tile))
        return;
    uint32_t steps = a.steps; /* a copy of its own: waiting makes the compiler read args again */
    uint32_t ahead = min(steps, a.stages);
    for (uint32_t i = 0; i < ahead; i++)
        weights(i, i);
    grid_wait();
    grid_trigger();
    for (uint32_t i = 0; i < ahead; i++)
        rows(i, i);
    ring_cursor at = {0, 0};
    for (uint32_t turn = 0; gated_find<WIDTH>(a, turn, tile); turn++)
        for (uint32_t step = 0; step < steps; step++) {
            if (turn > 0 || step >= ahead) {
                ring_wait_empty(ring.empty, at);
                weights(at.stage, step);
                rows(at.stage, step);
            }
            ring_next(at, a.stages);
        }
}

/* A warpgroup, the `group`-th: c = the products of its rows with a tile's weights. A stage is given
 * back one step later, when nothing reads it any more. */
template <int ROWS, int WIDTH>
__device__ __forceinline__ void gated_multiply(float (&c)[WIDTH / 2], const gated_args &a,
                                               const gated_ring &ring, ring_cursor &at,
                                               uint32_t group)
{
    const uint32_t x_bytes = ROWS * STEP_BYTES, bytes = x_bytes + WIDTH * STEP_BYTES;
    ring_cursor before = {0, 0};
    uint32_t lane = threadIdx.x % WARP, steps = a.steps;
    for (uint32_t step = 0; step < steps; step++) {
        uint32_t stage = ring.stages + at.stage * bytes;
        uint32_t x = stage + group * (GROUP_ROWS * STEP_BYTES);
        ring_wait_full(ring.full, at);
        wgmma_begin();
#pragma unroll
        for (int k = 0; k < STEP_K / 16; k++)
            wgmma_multiply(c, wgmma_operand(x + k * 32, 16),
                           wgmma_operand(stage + x_bytes + k * 32, 16), step > 0 || k > 0);
        wgmma_commit();
        wgmma_wait<1>();
        if (step > 0 && lane == 0)
            ring_give_back(ring.empty, before);
        before = at;
        ring_next(at, a.stages);
    }
    wgmma_wait<0>();
    wgmma_hold(c);
    if (lane == 0)
        ring_give_back(ring.empty, before);
}

/* c: gate of half the columns, then up of the same; the thread's rows are `row` and row + 8. */
template <int WIDTH, enum activation KIND>
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
                    pack(activated<KIND>(c[at]) * c[up + at],
                         activated<KIND>(c[at + 1]) * c[up + at + 1], DTYPE_HALF);
        }
    }
}

#endif

template <int GROUPS, int WIDTH, enum activation KIND>
__global__ void __launch_bounds__((GROUPS + 1) * GROUP_THREADS, 1)
    gated_kernel(const __grid_constant__ struct gated_args a)
{
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
    const int rows = GROUPS * GROUP_ROWS;
    extern __shared__ __align__(STAGE_ALIGNMENT) char memory[];
    __shared__ ring_barriers<GATED_STAGES_MAX> barriers;
    gated_ring ring = gated_begin(barriers, memory, GROUPS);
    if (threadIdx.x < GROUP_THREADS) {
        registers_less<40>();
        if (threadIdx.x < WARP && warp_elect())
            gated_prefetch<rows, WIDTH>(a, ring);
        return;
    }
    registers_more<GROUPS == 3 ? 152 : 232>();
    uint32_t group = threadIdx.x / GROUP_THREADS - 1, lane = threadIdx.x % WARP;
    uint32_t row = group * GROUP_ROWS + threadIdx.x % GROUP_THREADS / WARP * 16 + lane / 4;
    float c[WIDTH / 2];
    ring_cursor at = {0, 0};
    gated_tile tile;
    grid_wait();
    for (uint32_t turn = 0; gated_find<WIDTH>(a, turn, tile); turn++) {
        gated_multiply<rows, WIDTH>(c, a, ring, at, group);
        gated_store<WIDTH, KIND>(a, c, tile.row + row, min(tile.row + a.block_rows, a.rows),
                                 tile.channel + lane % 4 * 2);
    }
#endif
}

bool matmul_gated_can(const struct matmul_args *a)
{
    bool plain = !a->adds && !a->bias && !a->norm_out.weight && !a->norm_in.squares;
    bool copied = tensor_map_can() && a->w.k > 0 && a->w.k % 8 == 0 && a->x_stride % 8 == 0 &&
                  reinterpret_cast<uintptr_t>(a->x) % 16 == 0 &&
                  reinterpret_cast<uintptr_t>(a->w.data) % 16 == 0;
    return device_props()->major == 9 && a->gated && !a->activates && plain && copied &&
           a->rows.max > GEMV_ROWS_MAX && a->rows.max <= MATMUL_GATED_MAX && a->w.n % 4 == 0 &&
           a->y_stride % 2 == 0 && a->w.format == FORMAT_HALF && a->x_dtype == DTYPE_HALF &&
           a->y_dtype == DTYPE_HALF;
}

template <int GROUPS, int WIDTH, enum activation KIND>
static cudaError_t gated_launch(const struct matmul_args *args, uint32_t blocks,
                                cudaStream_t stream)
{
    const struct device_props *device = device_props();
    const uint32_t stage_bytes = (GROUPS * GROUP_ROWS + WIDTH) * STEP_BYTES;
    static struct device_once once;
    struct gated_args a;
    a.y = args->y;
    a.rows = args->rows.max;
    a.block_rows = ceil_div(args->rows.max, blocks);
    a.steps = ceil_div(args->w.k, STEP_K);
    a.stages = ring_stages(device->shared_max - GATED_FIXED, stage_bytes, GATED_STAGES_MAX);
    a.y_stride = args->y_stride;
    a.channels = args->w.n / 2;
    a.blocks = blocks;
    a.tiles = blocks * ceil_div(a.channels, WIDTH / 2);
    cudaError_t result =
        device_allow(&once, gated_kernel<GROUPS, WIDTH, KIND>, device, GATED_FIXED);
    if (result == cudaSuccess)
        result =
            tensor_map(&a.x, args->x, DTYPE_HALF, a.rows, args->w.k, args->x_stride, a.block_rows);
    if (result == cudaSuccess)
        result =
            tensor_map(&a.w, args->w.data, DTYPE_HALF, args->w.n, args->w.k, args->w.k, WIDTH / 2);
    if (result != cudaSuccess)
        return result;
    uint32_t grid = a.tiles < device->processors ? a.tiles : device->processors;
    return launch(gated_kernel<GROUPS, WIDTH, KIND>, dim3(grid), (GROUPS + 1) * GROUP_THREADS,
                  STAGE_ALIGNMENT + a.stages * stage_bytes, stream, a);
}

/* How long tiles of this width take, in columns of an SM. */
static uint32_t gated_columns(const struct matmul_args *args, uint32_t blocks, uint32_t width)
{
    return ceil_div(blocks * ceil_div(args->w.n, width), device_props()->processors) * width;
}

/* The width that takes least; of equals the widest, which reads x least often. */
template <int GROUPS, enum activation KIND>
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
            return gated_launch<GROUPS, 224, KIND>(args, blocks, stream);
        if (best == 192)
            return gated_launch<GROUPS, 192, KIND>(args, blocks, stream);
    }
    return best == 128   ? gated_launch<GROUPS, 128, KIND>(args, blocks, stream)
           : best == 112 ? gated_launch<GROUPS, 112, KIND>(args, blocks, stream)
                         : gated_launch<GROUPS, 96, KIND>(args, blocks, stream);
}

template <enum activation KIND>
static cudaError_t gated_groups(const struct matmul_args *args, cudaStream_t stream)
{
    uint32_t groups = ceil_div(args->rows.max, GROUP_ROWS);
    if (groups == 1)
        return gated_width<1, KIND>(args, 1, stream);
    if (groups == 3)
        return gated_width<3, KIND>(args, 1, stream);
    return gated_width<2, KIND>(args, groups / 2, stream);
}

cudaError_t matmul_gated(const struct matmul_args *args, cudaStream_t stream)
{
    return args->activation == ACTIVATE_SILU ? gated_groups<ACTIVATE_SILU>(args, stream)
                                             : gated_groups<ACTIVATE_GELU_TANH>(args, stream);
}

} // namespace HALF
