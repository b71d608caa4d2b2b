/* A x of few rows by tensor cores: before the product that adds B of it (adapted_tiles.cu).
 *
 * An item is a tile of up to 16 rows of one adapter, 16 rows of one A and one of ADAPT_SLICES parts
 * of k, which a block's warps take by turns; what they have summed is added up in order. Slices
 * stay apart: who reads them adds them up. So blocks need not meet, and the sum depends on k alone.
 *
 * It is as long as its loads take to come: A is on its way before the wait, as it, and where it is,
 * depend on nothing that the kernel before computes. */
#include "gpu/kernels/adapt/adapt.cuh"
#include "gpu/kernels/adapted/adapted.cuh"
#include "gpu/kernels/common/device_props.cuh"
#include "gpu/kernels/common/mma.cuh"

namespace HALF
{

#define INNER_WARPS 8
#define INNER_THREADS (INNER_WARPS * WARP)
#define INNER_BLOCKS(ahead) ((ahead) > 2 ? 2 : 3) /* of an SM */
#define INNER_K 32     /* values of k that a warp multiplies at a time: a lane has eight of a row */
#define INNER_RANK 16
#define ITEMS WARP /* of a block, known at a time */
#define COLUMN 20  /* floats between columns of a warp's product: writes go to all banks */

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

struct inner_item {
    const half_t *a;            /* its 16 rows */
    uint32_t rows;              /* of these that there are */
    uint32_t first, count;      /* of the list's rows */
    uint32_t part, rank, slice; /* rank: of A, the first row */
};

struct inner_shared {
    inner_item items[ITEMS];
    uint32_t rows[ITEMS][ADAPT_TILE]; /* of x */
    uint32_t count;
    float warps[INNER_WARPS][ADAPT_TILE * COLUMN];
};

__device__ __forceinline__ uint32_t inner_items(const struct adapt_args &a)
{
    return adapt_tiles(a, false) * inner_slices(a) * a.part_count *
           (ADAPT_RANK_ROOM(a.rank_max) / INNER_RANK);
}

/* A warp: items `number`, number + grid and so on, of which those are kept that there are. */
__device__ __forceinline__ void inner_find(const struct adapt_args &a, inner_shared &s,
                                           uint32_t number, uint32_t items)
{
    uint32_t steps = ADAPT_RANK_ROOM(a.rank_max) / INNER_RANK, slices = inner_slices(a);
    uint32_t lane = threadIdx.x % WARP;
    inner_item item = {};
    number += lane * gridDim.x;
    if (number < items) {
        uint32_t tiles = adapt_tiles(a, false), of = number / slices;
        struct adapt_tile tile = adapt_tile_get(a, of % tiles);
        uint32_t p = of / tiles / steps, r = of / tiles % steps * INNER_RANK;
        const struct adapt_place *place = a.places + (tile.adapter - 1);
        const half_t *from = static_cast<const half_t *>(place->parts[p].a);
        uint32_t rank = place->rank;
        if (place->parts[p].from == p && from && r < rank)
            item = {from + (size_t)r * a.k,
                    min(rank - r, (uint32_t)INNER_RANK),
                    tile.first,
                    tile.count,
                    p,
                    r,
                    number % slices};
    }
    uint32_t all = __ballot_sync(FULL_MASK, item.a != nullptr);
    if (item.a)
        s.items[__popc(all & ((1u << lane) - 1))] = item;
    if (lane == 0)
        s.count = __popc(all);
}

/* ONCE: of what is read once, which shall not push out of the L2 what is read again, a kernel's own
 * instructions among that. */
template <bool ONCE> __device__ __forceinline__ uint4 eight_of(const half_t *from, bool there)
{
    const uint4 *at = reinterpret_cast<const uint4 *>(from), none = {0, 0, 0, 0};
    return !there ? none : ONCE ? __ldcs(at) : *at;
}

/* What a lane has of steps from `first` on, of two rows of A or of x. */
template <int AHEAD> struct inner_lane {
    uint4 of[AHEAD][2];

    /* low, high: where the rows begin. */
    template <bool ONCE>
    __device__ __forceinline__ void ask(const struct adapt_args &a, const inner_item &item,
                                        uint32_t first, const half_t *low, const half_t *high,
                                        uint32_t count)
    {
        uint32_t g = threadIdx.x % WARP / 4, slices = inner_slices(a);
#pragma unroll
        for (uint32_t i = 0; i < AHEAD; i++) {
            uint32_t k =
                (((first + i) * slices + item.slice) * INNER_WARPS + threadIdx.x / WARP) * INNER_K +
                threadIdx.x % 4 * 8;
            of[i][0] = eight_of<ONCE>(low + k, k < a.k && g < count);
            of[i][1] = eight_of<ONCE>(high + k, k < a.k && g + 8 < count);
        }
    }

    __device__ __forceinline__ void ask_a(const struct adapt_args &a, const inner_item &item,
                                          uint32_t first)
    {
        const half_t *low = item.a + (size_t)(threadIdx.x % WARP / 4) * a.k;
        ask<true>(a, item, first, low, low + 8 * (size_t)a.k, item.rows);
    }

    __device__ __forceinline__ void ask_x(const struct adapt_args &a, const inner_item &item,
                                          uint32_t first, const uint32_t *rows)
    {
        const half_t *x = static_cast<const half_t *>(a.x);
        uint32_t g = threadIdx.x % WARP / 4;
        ask<false>(a, item, first, x + (size_t)rows[g] * a.x_stride,
                   x + (size_t)rows[g + 8] * a.x_stride, item.count);
    }
};

/* c[h]: of the tile's rows 8 h and on. A lane has eight values in a row of a step, and takes them
 * for those that the instruction wants of it: of A and x alike, so the sum is the same. */
template <int AHEAD>
__device__ __forceinline__ void inner_multiply(float (&c)[2][4], const inner_lane<AHEAD> &a,
                                               const inner_lane<AHEAD> &x)
{
#pragma unroll
    for (uint32_t i = 0; i < AHEAD; i++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const uint4 &low = a.of[i][0], &high = a.of[i][1], &b = x.of[i][h];
            mma_half(c[h], low.x, high.x, low.y, high.y, b.x, b.y);
            mma_half(c[h], low.z, high.z, low.w, high.w, b.z, b.w);
        }
}

/* Whole block: what its warps have summed, in their order. */
__device__ __forceinline__ void inner_add_up(const struct adapt_args &a, inner_shared &s,
                                             const inner_item &item, const uint32_t *rows,
                                             const float (&c)[2][4])
{
    uint32_t lane = threadIdx.x % WARP, r = threadIdx.x % INNER_RANK;
    uint32_t column = threadIdx.x / INNER_RANK;
    float *to = s.warps[threadIdx.x / WARP] + lane % 4 * 2 * COLUMN + lane / 4;
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
        for (int j = 0; j < 4; j++)
            to[(h * 8 + j % 2) * COLUMN + j / 2 * 8] = c[h][j];
    __syncthreads();
    float sum = 0;
#pragma unroll
    for (int w = 0; w < INNER_WARPS; w++)
        sum += s.warps[w][column * COLUMN + r];
    if (column < item.count)
        a.sums[inner_sums(a, rows[column], item.part, item.slice) + item.rank + r] = sum;
    __syncthreads();
}
static_assert(INNER_RANK * ADAPT_TILE == INNER_THREADS, "a thread adds up one value");

/* Whole block: the items that it knows. A of the next is under way while one is worked on. */
template <int AHEAD>
__device__ __forceinline__ void inner_work(const struct adapt_args &a, inner_shared &s)
{
    const uint32_t of_step = INNER_K * INNER_WARPS * inner_slices(a);
    inner_lane<AHEAD> of_a, of_x;
    if (s.count)
        of_a.ask_a(a, s.items[0], 0);
    for (uint32_t i = threadIdx.x; i < s.count * ADAPT_TILE; i += INNER_THREADS) {
        const inner_item &item = s.items[i / ADAPT_TILE];
        s.rows[0][i] = a.list[1 + item.first + min(i % ADAPT_TILE, item.count - 1)];
    }
    __syncthreads();
    grid_wait();
    x_tell(a);
    for (uint32_t i = 0; i < s.count; i++) {
        const inner_item &item = s.items[i];
        float c[2][4] = {};
        inner_lane<AHEAD> next;
        of_x.ask_x(a, item, 0, s.rows[i]);
        if (i + 1 < s.count)
            next.ask_a(a, s.items[i + 1], 0);
        inner_multiply(c, of_a, of_x);
        for (uint32_t first = AHEAD; first * of_step < a.k; first += AHEAD) {
            of_a.ask_a(a, item, first);
            of_x.ask_x(a, item, first, s.rows[i]);
            inner_multiply(c, of_a, of_x);
        }
        inner_add_up(a, s, item, s.rows[i], c);
        of_a = next;
    }
}

#endif

template <int AHEAD>
__global__ void __launch_bounds__(INNER_THREADS, INNER_BLOCKS(AHEAD))
    adapted_inner_kernel(const __grid_constant__ struct adapt_args a)
{
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
    __shared__ inner_shared s;
    grid_trigger(); /* the product, whose weights may come meanwhile */
    if (a.lists) /* else it is older than the kernel before, as places are */
        grid_wait();
    const uint32_t items = inner_items(a);
    for (uint32_t i = blockIdx.x; i < items; i += ITEMS * gridDim.x) {
        if (threadIdx.x < WARP)
            inner_find(a, s, i, items);
        __syncthreads();
        inner_work<AHEAD>(a, s);
        __syncthreads();
    }
    if (blockIdx.x == 0) { /* whoever waits for this kernel waits for those before it */
        grid_wait();
        x_tell(a);
    }
#endif
}

template <int AHEAD>
static cudaError_t inner_launch(const struct adapt_args *adapt, cudaStream_t stream)
{
    const uint32_t most = adapt->rows.max * inner_slices(*adapt) * adapt->part_count *
                          (ADAPT_RANK_ROOM(adapt->rank_max) / INNER_RANK);
    const uint32_t blocks = INNER_BLOCKS(AHEAD) * device_props()->processors;
    return launch(adapted_inner_kernel<AHEAD>, dim3(most < blocks ? most : blocks), INNER_THREADS,
                  0, stream, *adapt);
}

cudaError_t adapted_inner(const struct adapt_args *adapt, cudaStream_t stream)
{
    const uint32_t of_step = INNER_K * INNER_WARPS * inner_slices(*adapt);
    return adapt->k <= 2 * of_step ? inner_launch<2>(adapt, stream)
                                   : inner_launch<4>(adapt, stream);
}

} // namespace HALF
