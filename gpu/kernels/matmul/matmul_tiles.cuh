/* Products on sm_90: y = x w^T on the tensor cores, in tiles as wide as fill the SMs. Made for many
 * rows; where bits may not depend on the number of rows, for any.
 *
 * A block has a tile of up to 128 rows and 16 to 256 columns of y: one or two warpgroups multiply
 * 64 rows each, one thread of another fills a ring of stages ahead of them by tensor copies. One
 * block per SM goes through the tiles in turns; stages of the next tile come in while the last
 * one's results go out. A stage has 64 values of k: of a block's rows of x, and of the weights in
 * two halves of a tile's width, in the swizzle that wgmma reads:
 *
 *     plain    rows of w as they follow each other
 *     gated    gate's of half as many channels, then up's of the same, so that a thread has both of
 *              a channel in its registers
 *
 * Rows are shared out evenly among the tiles above each other: a box of x with rows that are not
 * there would have to be filled with zeros, which takes the copy engine longer than rows do.
 *
 * With tiles of one width the SMs' last turn is half empty for most numbers of rows. So there are
 * several widths, and what the turns of each would cost is computed (tiles_try()). A sum is one
 * chain of the tensor cores' products along k, from the first to the last, in each of them: bits
 * depend neither on the width nor on rows. k is never split, so that few rows need no other order:
 * narrow tiles give all SMs a part of the weights.
 *
 * With clusters two blocks one above the other, which need the same weights, each bring half of
 * these to both (multicast); two side by side half of the rows. So
 *   - a full barrier counts a whole stage, whoever brings it;
 *   - a stage is empty when the consumers of both blocks have given it back, to both blocks;
 *   - no block ends while the other may still write to it or arrive there.
 *
 * The first weights are under way before the kernel waits for the one before it. */
#pragma once

#include "gpu/kernels/activation/activation.cuh"
#include "gpu/kernels/common/ring.cuh"
#include "gpu/kernels/common/tensor_map.cuh"
#include "gpu/kernels/common/wgmma.cuh"

namespace HALF
{

#define GROUP_THREADS 128 /* of a warpgroup */
#define GROUP_ROWS 64     /* of y, of a warpgroup */
#define WARP_ROWS 16
#define STEP_K 64
#define STEP_BYTES (STEP_K * 2)
#define STAGES_MAX 16
#define OUT_BYTES (WARP_ROWS * 128) /* of a warp: 128 bytes of each of its rows */
#define ALIGNMENT 1024              /* of what is swizzled */
#define SHARED_MOST (226u << 10)
/* Columns from which on the L2 is told that weights are read once, where they are, so that they do
 * not push out what is read again, a kernel's own instructions among that: EXPERIMENTS.md. */
#define ONCE_WIDTH 48
#define BAND_ROWS 16 /* tiles of y that are gone through column by column, for the L2 */

/* A kind of tiles: of so many warpgroups that multiply and so many columns; DOWN 2: in pairs one
 * above the other, ACROSS 2: in pairs side by side. ROOM: bytes behind all else that are not its
 * own. */
template <int GROUPS, int WIDTH, int DOWN, int ACROSS, int ROOM = 0> struct tiles_kind {
    static const int width = WIDTH, down = DOWN, across = ACROSS;
    static const int cluster = DOWN * ACROSS;
    static const uint32_t threads = (GROUPS + 1) * GROUP_THREADS;
    static const uint32_t warps = GROUPS * GROUP_THREADS / WARP; /* that multiply */
    static const uint32_t rows = GROUPS * GROUP_ROWS;
    static const uint32_t x_bytes = rows * STEP_BYTES, half_bytes = WIDTH / 2 * STEP_BYTES;
    static const uint32_t stage_bytes = x_bytes + 2 * half_bytes;
    static const uint32_t fit = (SHARED_MOST - ALIGNMENT - warps * OUT_BYTES - ROOM) / stage_bytes;
    static const uint32_t stages = fit < STAGES_MAX ? fit : STAGES_MAX;
    static const uint32_t shared = ALIGNMENT + stages * stage_bytes + warps * OUT_BYTES + ROOM;
    static_assert(DOWN == 1 || ACROSS == 1, "a pair shares one operand");
    static_assert(WIDTH % 16 == 0, "half of the weights begin at a whole group of swizzled rows");
};

/* What becomes of a sum. */
enum tiles_out { OUT_HALF, OUT_FLOAT, OUT_ADD, OUT_SILU, OUT_GELU };

struct tiles_args {
    CUtensorMap x, w;
    void *y;
    const void *bias; /* not of what is gated */
    enum dtype bias_dtype;
    enum tiles_out out;
    uint32_t rows, block_rows; /* of y; of a tile, the last of which may have fewer */
    uint32_t columns, y_stride;
    uint32_t up;    /* rows of w from gate to up; 0: it is not gated */
    uint32_t steps; /* of STEP_K in a tile */
    uint32_t down;  /* of y: of as many tiles as a cluster has one above the other */
    uint32_t tiles; /* of a cluster's size */
    uint32_t band;  /* BAND_ROWS, likewise */
};

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* ---- instructions ---- */

__device__ __forceinline__ void tiles_box(uint32_t to, const CUtensorMap *map, uint32_t k,
                                          uint32_t row, uint32_t barrier)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3}], [%4];" ::"r"(to),
                 "l"(map), "r"(k), "r"(row), "r"(barrier)
                 : "memory");
}

/* To that place of each of the two blocks, counted on each one's barrier. */
__device__ __forceinline__ void tiles_box_both(uint32_t to, const CUtensorMap *map, uint32_t k,
                                               uint32_t row, uint32_t barrier)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes."
                 "multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to),
                 "l"(map), "r"(k), "r"(row), "r"(barrier), "h"((uint16_t)3)
                 : "memory");
}

/* On the barrier at this place of a block of the cluster: says that products have read, nothing of
 * what was written, so it needs no release, for which the warp would wait. */
__device__ __forceinline__ void tiles_arrive(uint32_t barrier, uint32_t rank)
{
    asm volatile(
        "mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(cluster_address(barrier, rank))
        : "memory");
}

__device__ __forceinline__ void tiles_put(uint32_t to, uint32_t word)
{
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(to), "r"(word) : "memory");
}

__device__ __forceinline__ void tiles_put(uint32_t to, float first, float second)
{
    asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(to), "f"(first), "f"(second) : "memory");
}

__device__ __forceinline__ uint4 tiles_take(uint32_t from)
{
    uint4 out;
    asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(out.x), "=r"(out.y), "=r"(out.z), "=r"(out.w)
                 : "r"(from)
                 : "memory");
    return out;
}

/* ---- tiles and stages ---- */

/* Addresses in shared memory. */
struct tiles_ring {
    uint32_t full, empty; /* barriers */
    uint32_t stages, out;
};

struct tiles_tile {
    uint32_t row, column; /* of y, the first ones */
};

/* The tile that this block is at after so many turns. */
template <class KIND>
__device__ __forceinline__ bool tiles_find(const tiles_args &a, uint32_t step, uint32_t turn,
                                           uint32_t rank, tiles_tile &ret)
{
    const uint32_t height = a.band;
    const uint32_t number = blockIdx.x / KIND::cluster + turn * (gridDim.x / KIND::cluster);
    if (number >= a.tiles)
        return false;
    const uint32_t across = a.tiles / a.down, band = number / (height * across);
    const uint32_t inside = number - band * height * across;
    const uint32_t rows = min(height, a.down - band * height);
    const uint32_t below = KIND::down > 1 ? rank : 0, beside = KIND::across > 1 ? rank : 0;
    ret.row = ((band * height + inside % rows) * KIND::down + below) * a.block_rows;
    ret.column = (inside / rows * KIND::across + beside) * step;
    return true;
}

/* Whole block. Nobody of the cluster goes on before the barriers of all are there. */
template <class KIND>
__device__ __forceinline__ tiles_ring tiles_begin(ring_barriers<STAGES_MAX> &barriers,
                                                  const char *memory)
{
    tiles_ring ring;
    ring.full = shared_address(barriers.full);
    ring.empty = shared_address(barriers.empty);
    ring.stages = (shared_address(memory) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    ring.out = ring.stages + KIND::stages * KIND::stage_bytes;
    if (threadIdx.x == 0) {
        ring_init(ring.full, STAGES_MAX, 1);
        ring_init(ring.empty, STAGES_MAX, KIND::cluster * KIND::warps);
        barrier_init_done();
    }
    if (KIND::cluster > 1)
        cluster_sync();
    else
        __syncthreads();
    return ring;
}

/* One thread: what it brings of a tile. */
template <class KIND> struct tiles_filler {
    const tiles_args &a;
    const tiles_ring &ring;
    uint32_t rank;
    tiles_tile tile;

    __device__ __forceinline__ uint32_t column_step() const
    {
        return a.up ? KIND::width / 2 : KIND::width;
    }

    __device__ __forceinline__ bool find(uint32_t turn)
    {
        return tiles_find<KIND>(a, column_step(), turn, rank, tile);
    }

    __device__ __forceinline__ void weights(uint32_t stage, uint32_t step) const
    {
        const uint32_t half_bytes = KIND::half_bytes;
        const uint32_t half_rows = a.up ? a.up : KIND::width / 2;
        const uint32_t to = ring.stages + stage * KIND::stage_bytes + KIND::x_bytes;
        const uint32_t barrier = ring.full + stage * 8;
        barrier_expect(barrier, a.block_rows * STEP_BYTES + 2 * half_bytes);
        if (KIND::down > 1) {
            tiles_box_both(to + rank * half_bytes, &a.w, step * STEP_K,
                           tile.column + rank * half_rows, barrier);
        } else {
#pragma unroll
            for (uint32_t i = 0; i < 2; i++) {
                const uint32_t row = tile.column + i * half_rows;
                if (KIND::width >= ONCE_WIDTH && a.down == 1)
                    copy_box(to + i * half_bytes, &a.w, step * STEP_K, row, barrier, policy_once());
                else
                    tiles_box(to + i * half_bytes, &a.w, step * STEP_K, row, barrier);
            }
        }
    }

    __device__ __forceinline__ void rows(uint32_t stage, uint32_t step) const
    {
        const uint32_t to = ring.stages + stage * KIND::stage_bytes,
                       barrier = ring.full + stage * 8;
        const uint32_t first = rank * (a.block_rows / 2); /* of a pair side by side */
        if (KIND::across > 1)
            tiles_box_both(to + first * STEP_BYTES, &a.x, step * STEP_K, tile.row + first, barrier);
        else
            tiles_box(to, &a.x, step * STEP_K, tile.row, barrier);
    }

    /* Steps of a tile, but the first ones that are under way. */
    __device__ __forceinline__ void steps(ring_cursor &at, uint32_t first, uint32_t end,
                                          uint32_t under_way) const
    {
        for (uint32_t step = first; step < end; step++) {
            if (step >= under_way) {
                ring_wait_empty(ring.empty, at);
                weights(at.stage, step);
                rows(at.stage, step);
            }
            ring_next(at, KIND::stages);
        }
    }
};

/* One thread: brings the block's tiles, in their order. */
template <class KIND>
__device__ __forceinline__ void tiles_load(const tiles_args &a, const tiles_ring &ring,
                                           uint32_t rank)
{
    tiles_filler<KIND> filler = {a, ring, rank, {0, 0}};
    if (!filler.find(0))
        return;
    const uint32_t ahead = min(a.steps, KIND::stages);
    for (uint32_t i = 0; i < ahead; i++)
        filler.weights(i, i);
    grid_wait();
    grid_trigger();
    for (uint32_t i = 0; i < ahead; i++)
        filler.rows(i, i);
    ring_cursor at = {0, 0};
    for (uint32_t turn = 0; filler.find(turn); turn++)
        filler.steps(at, 0, a.steps, turn ? 0 : ahead);
}

/* A warp has read a stage: said to every block that writes there. */
template <class KIND>
__device__ __forceinline__ void tiles_give_back(const tiles_ring &ring, const ring_cursor &at)
{
    const uint32_t lane = threadIdx.x % WARP;
    if (KIND::cluster > 1 && lane < KIND::cluster)
        tiles_arrive(ring_barrier(ring.empty, at), lane);
    if (KIND::cluster == 1 && lane == 0)
        ring_give_back(ring.empty, at);
}

/* A warpgroup: c = its rows of the tile; FURTHER: what further steps, or none, add to
 * them. A stage is given back one step later, when nothing reads it any more. */
template <class KIND, bool FURTHER = false>
__device__ __forceinline__ void tiles_multiply(float (&c)[KIND::width / 2], const tiles_ring &ring,
                                               ring_cursor &at, uint32_t group, uint32_t steps)
{
    ring_cursor before = {0, 0};
    for (uint32_t step = 0; step < steps; step++) {
        const uint32_t stage = ring.stages + at.stage * KIND::stage_bytes;
        const uint32_t x = stage + group * (GROUP_ROWS * STEP_BYTES), w = stage + KIND::x_bytes;
        ring_wait_full(ring.full, at);
        wgmma_begin();
#pragma unroll
        for (int k = 0; k < STEP_K / 16; k++)
            wgmma_multiply(c, wgmma_operand(x + k * 32, 16), wgmma_operand(w + k * 32, 16),
                           FURTHER || step > 0 || k > 0);
        wgmma_commit();
        wgmma_wait<1>();
        if (step > 0)
            tiles_give_back<KIND>(ring, before);
        before = at;
        ring_next(at, KIND::stages);
    }
    wgmma_wait<0>();
    wgmma_hold(c);
    if (!FURTHER || steps > 0)
        tiles_give_back<KIND>(ring, before);
}

/* ---- results ---- */

/* A warp's rows of the tile: where they go. */
struct tiles_place {
    uint32_t staging;      /* OUT_BYTES, swizzled like operands */
    uint32_t row, end;     /* of y: the warp's first, and where the tile's end */
    uint32_t column, most; /* of y: the tile's first, and how many y has */
};

/* 128 bytes of each of the warp's rows, from its staging memory: unit `first` of 16 bytes of y's
 * row on, up to `units` of them. `put` takes a place of y and what is for it. */
template <class Put>
__device__ __forceinline__ void tiles_send(const tiles_args &a, const tiles_place &place,
                                           uint32_t column, uint32_t units, uint32_t unit_columns,
                                           Put put)
{
    const uint32_t lane = threadIdx.x % WARP, unit = lane % 8;
    __syncwarp();
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t r = lane / 8 + i * 4, row = place.row + r;
        const uint32_t to = column + unit * unit_columns;
        const uint4 value = tiles_take(place.staging + r * 128 + ((unit ^ (r & 7)) * 16));
        if (row < place.end && unit < units && to < place.most)
            put((size_t)row * a.y_stride + to, value);
    }
    __syncwarp();
}

/* COLUMNS of 16 bits, of which pair(i, half) are two next to each other in unit i of eight. */
template <int COLUMNS, class Pair>
__device__ __forceinline__ void tiles_store_half(const tiles_args &a, const tiles_place &place,
                                                 Pair pair)
{
    const uint32_t lane = threadIdx.x % WARP, t = lane % 4;
    const int units = COLUMNS / 8;
    half_t *y = static_cast<half_t *>(a.y);
#pragma unroll
    for (int chunk = 0; chunk < units; chunk += 8) {
        const int here = units - chunk < 8 ? units - chunk : 8;
#pragma unroll
        for (int u = 0; u < here; u++)
#pragma unroll
            for (uint32_t half = 0; half < 2; half++) {
                const uint32_t r = lane / 4 + half * 8;
                tiles_put(place.staging + r * 128 + ((u ^ (r & 7)) * 16) + t * 4,
                          pair(chunk + u, half));
            }
        tiles_send(a, place, place.column + chunk * 8, here, 8, [&](size_t at, const uint4 &value) {
            *reinterpret_cast<uint4 *>(y + at) = value;
        });
    }
}

/* What is added to y goes there by itself: this is the only kernel that adds, once to each. */
template <int COLUMNS, class Pair>
__device__ __forceinline__ void tiles_store_float(const tiles_args &a, const tiles_place &place,
                                                  Pair pair)
{
    const uint32_t lane = threadIdx.x % WARP, t = lane % 4;
    const int eights = COLUMNS / 8;
    float *y = static_cast<float *>(a.y);
#pragma unroll
    for (int chunk = 0; chunk < eights; chunk += 4) {
        const int here = eights - chunk < 4 ? eights - chunk : 4;
#pragma unroll
        for (int e = 0; e < here; e++)
#pragma unroll
            for (uint32_t half = 0; half < 2; half++) {
                const uint32_t r = lane / 4 + half * 8, unit = e * 2 + t / 2;
                const float2 value = pair(chunk + e, half);
                tiles_put(place.staging + r * 128 + ((unit ^ (r & 7)) * 16) + t % 2 * 8, value.x,
                          value.y);
            }
        tiles_send(
            a, place, place.column + chunk * 8, here * 2, 4, [&](size_t at, const uint4 &value) {
                if (a.out == OUT_FLOAT)
                    *reinterpret_cast<uint4 *>(y + at) = value;
                else
                    asm volatile(
                        "red.relaxed.gpu.global.add.v4.f32 [%0], {%1,%2,%3,%4};" ::"l"(y + at),
                        "f"(__uint_as_float(value.x)), "f"(__uint_as_float(value.y)),
                        "f"(__uint_as_float(value.z)), "f"(__uint_as_float(value.w))
                        : "memory");
            });
    }
}

template <int WIDTH, enum activation F>
__device__ __forceinline__ void tiles_store_gated(const float (&c)[WIDTH / 2], const tiles_args &a,
                                                  const tiles_place &place)
{
    const int up = WIDTH / 4;
    tiles_store_half<WIDTH / 2>(a, place, [&](int unit, uint32_t half) {
        const int at = unit * 4 + half * 2;
        return pack(activated<F>(c[at]) * c[up + at], activated<F>(c[at + 1]) * c[up + at + 1],
                    DTYPE_HALF);
    });
}

template <int WIDTH>
__device__ __forceinline__ void tiles_add_bias(float (&c)[WIDTH / 2], const tiles_args &a,
                                               uint32_t column)
{
    column += threadIdx.x % 4 * 2;
#pragma unroll
    for (int i = 0; i < WIDTH / 2; i++) {
        const uint32_t at = column + i / 4 * 8 + i % 2;
        c[i] += at < a.columns ? load_value(a.bias, at, a.bias_dtype) : 0.0f;
    }
}

template <int WIDTH>
__device__ __forceinline__ void tiles_store(float (&c)[WIDTH / 2], const tiles_args &a,
                                            const tiles_place &place)
{
    if (a.bias)
        tiles_add_bias<WIDTH>(c, a, place.column);
    if (a.out == OUT_SILU)
        tiles_store_gated<WIDTH, ACTIVATE_SILU>(c, a, place);
    else if (a.out == OUT_GELU)
        tiles_store_gated<WIDTH, ACTIVATE_GELU_TANH>(c, a, place);
    else if (a.out == OUT_HALF)
        tiles_store_half<WIDTH>(a, place, [&](int unit, uint32_t half) {
            return pack(c[unit * 4 + half * 2], c[unit * 4 + half * 2 + 1], DTYPE_HALF);
        });
    else
        tiles_store_float<WIDTH>(a, place, [&](int unit, uint32_t half) {
            return make_float2(c[unit * 4 + half * 2], c[unit * 4 + half * 2 + 1]);
        });
}

/* A warpgroup. */
template <class KIND>
__device__ __forceinline__ void tiles_compute(const tiles_args &a, const tiles_ring &ring,
                                              uint32_t rank)
{
    const int width = KIND::width;
    const uint32_t group = threadIdx.x / GROUP_THREADS - 1;
    const uint32_t warp = threadIdx.x / WARP - GROUP_THREADS / WARP;
    ring_cursor at = {0, 0};
    tiles_tile tile;
    float c[width / 2];
    grid_wait();
    for (uint32_t turn = 0; tiles_find<KIND>(a, a.up ? width / 2 : width, turn, rank, tile);
         turn++) {
        tiles_multiply<KIND>(c, ring, at, group, a.steps);
        tiles_store<width>(c, a,
                           {ring.out + warp * OUT_BYTES, tile.row + warp * WARP_ROWS,
                            min(tile.row + a.block_rows, a.rows), tile.column, a.columns});
    }
}

#endif

/* ---- kernel ---- */

template <class KIND>
__global__ void __launch_bounds__(KIND::threads, 1)
    tiles_kernel(const __grid_constant__ struct tiles_args a)
{
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
    extern __shared__ __align__(ALIGNMENT) char memory[];
    __shared__ ring_barriers<STAGES_MAX> barriers;
    const uint32_t rank = KIND::cluster > 1 ? cluster_rank() : 0;
    const tiles_ring ring = tiles_begin<KIND>(barriers, memory);
    if (threadIdx.x < GROUP_THREADS) {
        registers_less<40>();
        if (threadIdx.x < WARP && warp_elect())
            tiles_load<KIND>(a, ring, rank);
    } else {
        registers_more<232>();
        tiles_compute<KIND>(a, ring, rank);
    }
    if (KIND::cluster > 1)
        cluster_sync();
#endif
}

} // namespace HALF
