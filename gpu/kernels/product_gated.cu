/* gate and up of 17 to 256 rows on sm_90, with SwiGLU of what they give: bound by power where rows
 * are many, else by reading the weights once.
 *
 * A tile is up to 192 rows of x, or half of more, and as many outputs as suit the number of SMs:
 * gate's of half as many channels, then up's of the same, so that a thread has both of a channel in
 * its registers. Up to three warpgroups have 64 rows each, and a warp of another one brings boxes
 * of 64 values of k, x's and both halves of the weights', into a ring of stages, over the end of
 * one tile and into the next. The first weights are under way before the kernel waits for the one
 * before it. One block per SM goes through the tiles in turns.
 *
 * Of 4,096 values and 28,672 outputs on an H200 (`bench_kernels gated`; cuBLASLt's fastest with
 * SwiGLU behind it, and GPUs, differ): 17 rows 58 us (60), 64 rows 58 (63), 128 rows 67 (71), 192
 * rows 80 to 85 (89 to 91), 256 rows 96 to 102 (103 to 110). Of 17 rows that is 90 % of the read
 * rate. At 256 rows the power limit brings the clocks down to about 1,340 MHz: there the tensor
 * cores are busy for some four fifths of the time, and what else takes energy costs time. What lost
 * is in tests/bench/RESULTS.md.
 *
 * What a row gets depends neither on the other rows nor on their number. */
#include "gpu/kernels/facts.cuh"
#include "gpu/kernels/product.cuh"
#include "gpu/kernels/swiglu.cuh"
#include "gpu/kernels/tensor_map.cuh"
#include "gpu/kernels/wgmma.cuh"

namespace NARROW
{

#define GROUP_THREADS 128 /* of a warpgroup */
#define GROUP_ROWS 64     /* of x, of a warpgroup */
#define STEP_K 64 /* values of k in a stage: rows of 128 bytes, as wgmma_operand() has them */
#define ROW_BYTES (STEP_K * 2)
#define STAGES_MAX 8
#define ALIGNMENT 1024 /* of what is swizzled */

struct gated_args {
    CUtensorMap x, w;
    void *y;
    uint32_t rows, y_stride;
    uint32_t blocks, block_rows; /* of rows: so many, of so many each (the last may have fewer) */
    uint32_t channels, k;        /* channels: outputs, half of the weights' rows */
    uint32_t tiles, stages;
};

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* Where a warp is in the ring. */
struct gated_place {
    uint32_t stage, phase;
};

__device__ __forceinline__ void gated_next(gated_place &at, uint32_t stages)
{
    if (++at.stage == stages)
        at.stage = 0, at.phase ^= 1;
}

/* Blocks of rows that share weights go one after the other, so that those are read once. */
struct gated_tile {
    uint32_t row, channel; /* its first ones */
};

template <int WIDTH>
__device__ __forceinline__ gated_tile gated_find(const gated_args &a, uint32_t number)
{
    return {number % a.blocks * a.block_rows, number / a.blocks * (WIDTH / 2)};
}

__device__ __forceinline__ uint32_t gated_steps(const gated_args &a)
{
    return (a.k + STEP_K - 1) / STEP_K;
}

/* One thread: brings the stages of all tiles of this block. */
template <int GROUPS, int WIDTH>
__device__ __forceinline__ void gated_bring(const gated_args &a, uint32_t ring, uint64_t *full,
                                            uint64_t *empty)
{
    const uint32_t x_bytes = GROUPS * GROUP_ROWS * ROW_BYTES, half_bytes = WIDTH / 2 * ROW_BYTES;
    const uint32_t bytes = x_bytes + 2 * half_bytes;
    uint64_t once = policy_once(), again = policy_again();
    uint32_t steps = gated_steps(a), ahead = min(steps, a.stages);
    gated_tile tile = gated_find<WIDTH>(a, blockIdx.x);
    auto weights = [&](uint32_t stage, uint32_t step) {
        uint32_t to = ring + stage * bytes + x_bytes, barrier = shared_address(&full[stage]);
        barrier_expect(barrier, a.block_rows * ROW_BYTES + 2 * half_bytes);
        copy_box(to, &a.w, step * STEP_K, tile.channel, barrier, once);
        copy_box(to + half_bytes, &a.w, step * STEP_K, a.channels + tile.channel, barrier, once);
    };
    auto rows = [&](uint32_t stage, uint32_t step) {
        copy_box(ring + stage * bytes, &a.x, step * STEP_K, tile.row, shared_address(&full[stage]),
                 again);
    };
    for (uint32_t i = 0; i < ahead; i++)
        weights(i, i);
    grid_wait();
    for (uint32_t i = 0; i < ahead; i++)
        rows(i, i);
    gated_place at = {0, 0};
    for (uint32_t number = blockIdx.x; number < a.tiles; number += gridDim.x) {
        tile = gated_find<WIDTH>(a, number);
        for (uint32_t step = 0; step < steps; step++) {
            if (number != blockIdx.x || step >= ahead) {
                barrier_wait(shared_address(&empty[at.stage]), at.phase ^ 1);
                weights(at.stage, step);
                rows(at.stage, step);
            }
            gated_next(at, a.stages);
        }
    }
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
                *reinterpret_cast<uint32_t *>(static_cast<narrow *>(a.y) +
                                              (size_t)row * a.y_stride + to) =
                    pack(gated(c[at], c[up + at]), gated(c[at + 1], c[up + at + 1]), DTYPE_NARROW);
        }
    }
}

/* A warpgroup: the products of its rows. Rows that a block of x does not have are multiplied as
 * they lie in the ring and not stored. A stage is given back one step later, when nothing reads it
 * any more. */
template <int GROUPS, int WIDTH>
__device__ __forceinline__ void gated_multiply(const gated_args &a, uint32_t ring, uint64_t *full,
                                               uint64_t *empty)
{
    const uint32_t x_bytes = GROUPS * GROUP_ROWS * ROW_BYTES, bytes = x_bytes + WIDTH * ROW_BYTES;
    uint32_t group = threadIdx.x / GROUP_THREADS - 1, warp = threadIdx.x % GROUP_THREADS / WARP;
    uint32_t lane = threadIdx.x % WARP, steps = gated_steps(a);
    float c[WIDTH / 2];
    gated_place at = {0, 0};
    grid_wait();
    for (uint32_t number = blockIdx.x; number < a.tiles; number += gridDim.x) {
        uint32_t before = 0;
        for (uint32_t step = 0; step < steps; step++) {
            uint32_t stage = ring + at.stage * bytes, x = stage + group * (GROUP_ROWS * ROW_BYTES);
            barrier_wait(shared_address(&full[at.stage]), at.phase);
            wgmma_begin();
#pragma unroll
            for (int k = 0; k < STEP_K / 16; k++)
                wgmma_multiply(c, wgmma_operand(x + k * 32, 16),
                               wgmma_operand(stage + x_bytes + k * 32, 16), step > 0 || k > 0);
            wgmma_commit();
            wgmma_wait<1>();
            if (step > 0 && lane == 0)
                barrier_arrive(shared_address(&empty[before]));
            before = at.stage;
            gated_next(at, a.stages);
        }
        wgmma_wait<0>();
        wgmma_hold(c);
        if (lane == 0)
            barrier_arrive(shared_address(&empty[before]));
        gated_tile tile = gated_find<WIDTH>(a, number);
        gated_store<WIDTH>(a, c, tile.row + group * GROUP_ROWS + warp * 16 + lane / 4,
                           min(tile.row + a.block_rows, a.rows), tile.channel + lane % 4 * 2);
    }
}

#endif

template <int GROUPS, int WIDTH>
__global__ void __launch_bounds__((GROUPS + 1) * GROUP_THREADS, 1)
    gated_kernel(const __grid_constant__ struct gated_args a)
{
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
    extern __shared__ __align__(ALIGNMENT) char memory[];
    __shared__ uint64_t full[STAGES_MAX], empty[STAGES_MAX];
    uint32_t ring = (shared_address(memory) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (threadIdx.x == 0) {
        for (uint32_t i = 0; i < a.stages; i++) {
            barrier_init(shared_address(&full[i]), 1);
            barrier_init(shared_address(&empty[i]), GROUPS * GROUP_THREADS / WARP);
        }
        barrier_init_done();
    }
    __syncthreads();
    grid_trigger(); /* the kernel behind waits for this one by itself */
    if (threadIdx.x < GROUP_THREADS) {
        registers_less<40>();
        if (threadIdx.x < WARP && warp_elect())
            gated_bring<GROUPS, WIDTH>(a, ring, full, empty);
    } else {
        registers_more<GROUPS == 3 ? 152 : 232>();
        gated_multiply<GROUPS, WIDTH>(a, ring, full, empty);
    }
#endif
}

bool product_gated_can(const struct product_args *a)
{
    bool aligned = a->w.k % 8 == 0 && a->w.k > 0 && a->x_stride % 8 == 0 && a->w.n % 4 == 0 &&
                   a->y_stride % 2 == 0 && reinterpret_cast<uintptr_t>(a->x) % 16 == 0 &&
                   reinterpret_cast<uintptr_t>(a->w.data) % 16 == 0;
    bool plain = !a->adds && !a->bias && !a->hands.weight && !a->owed.squares;
    return a->gated && aligned && plain && a->rows.max > PRODUCT_SMALL_MAX &&
           a->rows.max <= PRODUCT_GATED_MAX && a->w.dtype == DTYPE_NARROW &&
           a->x_dtype == DTYPE_NARROW && a->y_dtype == DTYPE_NARROW && device_facts()->major == 9 &&
           tensor_map_can();
}

template <int GROUPS, int WIDTH>
static cudaError_t gated_launch(const struct product_args *args, uint32_t blocks,
                                cudaStream_t stream)
{
    const struct device_facts *device = device_facts();
    const uint32_t stage_bytes = (GROUPS * GROUP_ROWS + WIDTH) * ROW_BYTES;
    const uint32_t fixed = ALIGNMENT + 2 * STAGES_MAX * 8;
    auto *kernel = gated_kernel<GROUPS, WIDTH>;
    static struct device_once once;
    struct gated_args a;
    a.blocks = blocks;
    a.block_rows = ceil_div(args->rows.max, blocks);
    cudaError_t result = device_allow(&once, kernel, device, fixed);
    if (result == cudaSuccess)
        result = tensor_map(&a.x, args->x, DTYPE_NARROW, args->rows.max, args->w.k, args->x_stride,
                            a.block_rows);
    if (result == cudaSuccess)
        result = tensor_map(&a.w, args->w.data, DTYPE_NARROW, args->w.n, args->w.k, args->w.k,
                            WIDTH / 2);
    if (result != cudaSuccess)
        return result;
    a.y = args->y;
    a.rows = args->rows.max;
    a.y_stride = args->y_stride;
    a.channels = args->w.n / 2;
    a.k = args->w.k;
    a.tiles = blocks * ceil_div(a.channels, WIDTH / 2);
    a.stages = (device->shared_max - fixed) / stage_bytes;
    if (a.stages > STAGES_MAX)
        a.stages = STAGES_MAX;
    uint32_t grid = a.tiles < device->processors ? a.tiles : device->processors;
    return launch(kernel, dim3(grid), (GROUPS + 1) * GROUP_THREADS,
                  ALIGNMENT + a.stages * stage_bytes, stream, a);
}

/* How long tiles of this width take, in columns of an SM. */
static uint32_t gated_columns(const struct product_args *args, uint32_t blocks, uint32_t width)
{
    return ceil_div(blocks * ceil_div(args->w.n, width), device_facts()->processors) * width;
}

/* The width that takes least; of equals the widest, which reads x least often. */
template <int GROUPS>
static cudaError_t gated_width(const struct product_args *args, uint32_t blocks,
                               cudaStream_t stream)
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

cudaError_t product_gated(const struct product_args *args, cudaStream_t stream)
{
    uint32_t groups = ceil_div(args->rows.max, GROUP_ROWS);
    if (groups == 1)
        return gated_width<1>(args, 1, stream);
    if (groups == 3)
        return gated_width<3>(args, 1, stream);
    return gated_width<2>(args, groups / 2, stream);
}

} // namespace NARROW
