/* Products of many rows on sm_90: the ring of stages in shared memory that one thread fills with
 * boxes of x and of weights, and from which warpgroups multiply.
 *
 * A stage has 64 values of k: of up to ROWS rows of x, 64 for each warpgroup, and of WIDTH rows of
 * the weights, which are the columns of the result. Tiles follow each other in it without a gap.
 * The first weights are under way before the kernel waits for the one before it. Rows that a block
 * of x does not have are multiplied as they lie in the ring, and not stored: were the box as large
 * as the stage, the copy engine would make zeros for them, which took it longer than rows do.
 *
 * What a row gets depends neither on the other rows nor on their number. */
#pragma once

#include "gpu/kernels/common/device_props.cuh"
#include "gpu/kernels/common/tensor_map.cuh"
#include "gpu/kernels/common/wgmma.cuh"
#include "gpu/kernels/matmul/matmul.cuh"

#define GROUP_THREADS 128 /* of a warpgroup */
#define GROUP_ROWS 64     /* of x, of a warpgroup */
#define STEP_K 64 /* values of k in a stage: rows of 128 bytes, as wgmma_operand() has them */
#define STEP_BYTES (STEP_K * 2)
#define STAGES_MAX 8
#define RING_ALIGNMENT 1024                              /* of what is swizzled */
#define RING_FIXED (RING_ALIGNMENT + 2 * STAGES_MAX * 8) /* bytes beside the stages */

namespace HALF
{

struct ring_args {
    CUtensorMap x, w;
    uint32_t rows, block_rows; /* of x; of a block of them, the last of which may have fewer */
    uint32_t k, stages;
    uint32_t piece; /* where weights come in two pieces: rows from one to the other */
};

/* Rows in so many equal blocks, and stages of so many bytes; weights in boxes of `box` rows. */
static inline cudaError_t ring_fill(struct ring_args *ring, const struct matmul_args *args,
                                    uint32_t blocks, uint32_t stage_bytes, uint32_t box)
{
    ring->rows = args->rows.max;
    ring->block_rows = ceil_div(args->rows.max, blocks);
    ring->k = args->w.k;
    ring->stages = (device_props()->shared_max - RING_FIXED) / stage_bytes;
    if (ring->stages > STAGES_MAX)
        ring->stages = STAGES_MAX;
    ring->piece = args->w.n / 2;
    cudaError_t result = tensor_map(&ring->x, args->x, DTYPE_HALF, args->rows.max, args->w.k,
                                    args->x_stride, ring->block_rows);
    if (result != cudaSuccess)
        return result;
    return tensor_map(&ring->w, args->w.data, DTYPE_HALF, args->w.n, args->w.k, args->w.k, box);
}

/* What copies and products need of the operands. */
static inline bool ring_can(const struct matmul_args *args)
{
    return device_props()->major == 9 && tensor_map_can() && args->w.k > 0 && args->w.k % 8 == 0 &&
           args->x_stride % 8 == 0 && reinterpret_cast<uintptr_t>(args->x) % 16 == 0 &&
           reinterpret_cast<uintptr_t>(args->w.data) % 16 == 0 && args->w.format == FORMAT_NARROW &&
           args->x_dtype == DTYPE_HALF;
}

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

struct ring_shared {
    uint64_t full[STAGES_MAX], empty[STAGES_MAX];
};

/* Where a warp is. */
struct ring_place {
    uint32_t stage, phase;
};

/* What is multiplied for one tile; steps are of STEP_K. */
struct ring_tile {
    uint32_t row, n; /* the first ones */
    uint32_t begin, end;
};

__device__ __forceinline__ void ring_next(ring_place &at, uint32_t stages)
{
    if (++at.stage == stages)
        at.stage = 0, at.phase ^= 1;
}

__device__ __forceinline__ uint32_t ring_steps(const ring_args &a)
{
    return (a.k + STEP_K - 1) / STEP_K;
}

/* Whole block, of so many groups that multiply. Returns where the stages begin. */
__device__ __forceinline__ uint32_t ring_begin(const ring_args &a, ring_shared &shared,
                                               const char *memory, uint32_t groups)
{
    if (threadIdx.x == 0) {
        for (uint32_t i = 0; i < a.stages; i++) {
            barrier_init(shared_address(&shared.full[i]), 1);
            barrier_init(shared_address(&shared.empty[i]), groups * GROUP_THREADS / WARP);
        }
        barrier_init_done();
    }
    __syncthreads();
    return (shared_address(memory) + RING_ALIGNMENT - 1) / RING_ALIGNMENT * RING_ALIGNMENT;
}

/* One thread: brings tiles 0, 1, ... as long as tiles(number, tile) has one. */
template <int ROWS, int WIDTH, int PIECES, class Tiles>
__device__ __forceinline__ void ring_prefetch(const ring_args &a, ring_shared &shared,
                                              uint32_t stages, Tiles tiles)
{
    const uint32_t x_bytes = ROWS * STEP_BYTES, piece_bytes = WIDTH / PIECES * STEP_BYTES;
    const uint32_t bytes = x_bytes + PIECES * piece_bytes;
    uint64_t once = policy_once(), again = policy_again();
    ring_tile tile;
    auto weights = [&](uint32_t stage, uint32_t step) {
        uint32_t to = stages + stage * bytes + x_bytes;
        uint32_t barrier = shared_address(&shared.full[stage]);
        barrier_expect(barrier, a.block_rows * STEP_BYTES + PIECES * piece_bytes);
#pragma unroll
        for (int i = 0; i < PIECES; i++)
            copy_box(to + i * piece_bytes, &a.w, step * STEP_K, tile.n + i * a.piece, barrier,
                     once);
    };
    auto rows = [&](uint32_t stage, uint32_t step) {
        copy_box(stages + stage * bytes, &a.x, step * STEP_K, tile.row,
                 shared_address(&shared.full[stage]), again);
    };
    if (!tiles(0, tile))
        return;
    uint32_t ahead = min(tile.end - tile.begin, a.stages);
    for (uint32_t i = 0; i < ahead; i++)
        weights(i, tile.begin + i);
    grid_wait();
    for (uint32_t i = 0; i < ahead; i++)
        rows(i, tile.begin + i);
    ring_place at = {0, 0};
    for (uint32_t number = 0; tiles(number, tile); number++)
        for (uint32_t step = tile.begin; step < tile.end; step++) {
            if (number > 0 || step - tile.begin >= ahead) {
                barrier_wait(shared_address(&shared.empty[at.stage]), at.phase ^ 1);
                weights(at.stage, step);
                rows(at.stage, step);
            }
            ring_next(at, a.stages);
        }
}

/* A warpgroup, the `group`-th: c = the products of its rows over so many steps. A stage is given
 * back one step later, when nothing reads it any more. */
template <int ROWS, int WIDTH>
__device__ __forceinline__ void ring_multiply(float (&c)[WIDTH / 2], const ring_args &a,
                                              ring_shared &shared, uint32_t stages, ring_place &at,
                                              uint32_t steps, uint32_t group)
{
    const uint32_t x_bytes = ROWS * STEP_BYTES, bytes = x_bytes + WIDTH * STEP_BYTES;
    uint32_t before = 0, lane = threadIdx.x % WARP;
    for (uint32_t step = 0; step < steps; step++) {
        uint32_t stage = stages + at.stage * bytes, x = stage + group * (GROUP_ROWS * STEP_BYTES);
        barrier_wait(shared_address(&shared.full[at.stage]), at.phase);
        wgmma_begin();
#pragma unroll
        for (int k = 0; k < STEP_K / 16; k++)
            wgmma_multiply(c, wgmma_operand(x + k * 32, 16),
                           wgmma_operand(stage + x_bytes + k * 32, 16), step > 0 || k > 0);
        wgmma_commit();
        wgmma_wait<1>();
        if (step > 0 && lane == 0)
            barrier_arrive(shared_address(&shared.empty[before]));
        before = at.stage;
        ring_next(at, a.stages);
    }
    wgmma_wait<0>();
    wgmma_hold(c);
    if (lane == 0)
        barrier_arrive(shared_address(&shared.empty[before]));
}

#endif

} // namespace HALF
