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
#define INNER_BLOCKS 3 /* of an SM */
#define INNER_K 32     /* values of k that a warp multiplies at a time: a lane has eight of a row */
#define INNER_RANK 16
#define AHEAD 4   /* of these, on their way at a time */
#define COLUMN 20 /* floats between columns of a warp's product: writes go to all banks */

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

struct inner_item {
    const half_t *a; /* its 16 rows; NULL: there is nothing to do */
    uint32_t count;  /* of these that there are */
    struct adapt_tile tile;
    uint32_t slice;
    uint32_t sums; /* where in a row's sums */
};

struct inner_lane {
    uint4 a[2], x[2]; /* of rows lane / 4, and eight on */
};

__device__ __forceinline__ uint32_t inner_items(const struct adapt_args &a)
{
    return adapt_tiles(a, false) * ADAPT_SLICES * a.part_count *
           (ADAPT_RANK_ROOM(a.rank_max) / INNER_RANK);
}

/* The same for all of a block. */
__device__ __forceinline__ inner_item inner_find(const struct adapt_args &a, uint32_t number)
{
    uint32_t tiles = adapt_tiles(a, false), room = ADAPT_RANK_ROOM(a.rank_max);
    uint32_t slice = number % ADAPT_SLICES, of = number / ADAPT_SLICES;
    struct adapt_tile tile = adapt_tile_get(a, of % tiles);
    uint32_t p = of / tiles / (room / INNER_RANK),
             r = of / tiles % (room / INNER_RANK) * INNER_RANK;
    const struct adapt_place *place = a.places + (tile.adapter - 1);
    const struct adapt_part *part = &place->parts[p];
    const half_t *from = static_cast<const half_t *>(part->a);
    uint32_t rank = place->rank;
    if (part->from != p || r >= rank)
        from = nullptr;
    return {from ? from + (size_t)r * a.k : from, min(rank - min(r, rank), (uint32_t)INNER_RANK),
            tile, slice, (p * ADAPT_SLICES + slice) * room + r};
}

/* The lane's first value of k of a step. */
__device__ __forceinline__ uint32_t inner_k(const inner_item &item, uint32_t step)
{
    return ((step * ADAPT_SLICES + item.slice) * INNER_WARPS + threadIdx.x / WARP) * INNER_K +
           threadIdx.x % 4 * 8;
}

__device__ __forceinline__ uint4 eight_of(const half_t *from, bool there)
{
    uint4 none = {0, 0, 0, 0};
    return there ? *reinterpret_cast<const uint4 *>(from) : none;
}

__device__ __forceinline__ void inner_ask_a(const struct adapt_args &a, const inner_item &item,
                                            uint32_t first, uint4 (&out)[AHEAD][2])
{
    uint32_t g = threadIdx.x % WARP / 4;
#pragma unroll
    for (uint32_t i = 0; i < AHEAD; i++) {
        uint32_t k = inner_k(item, first + i);
        const half_t *from = item.a + (size_t)g * a.k + k;
        out[i][0] = eight_of(from, k < a.k && g < item.count);
        out[i][1] = eight_of(from + 8 * (size_t)a.k, k < a.k && g + 8 < item.count);
    }
}

/* c[h]: of the tile's rows 8 h and on. A lane has eight values in a row of a step, and takes them
 * for those that the instruction wants of it: of A and x alike, so the sum is the same. */
__device__ __forceinline__ void inner_multiply(float (&c)[2][4], const struct adapt_args &a,
                                               const inner_item &item, const size_t (&rows)[2],
                                               uint32_t first, const uint4 (&of_a)[AHEAD][2])
{
    uint32_t g = threadIdx.x % WARP / 4;
    const half_t *x = static_cast<const half_t *>(a.x);
    uint4 of_x[AHEAD][2];
#pragma unroll
    for (uint32_t i = 0; i < AHEAD; i++) {
        uint32_t k = inner_k(item, first + i);
        of_x[i][0] = eight_of(x + rows[0] + k, k < a.k && g < item.tile.count);
        of_x[i][1] = eight_of(x + rows[1] + k, k < a.k && g + 8 < item.tile.count);
    }
#pragma unroll
    for (uint32_t i = 0; i < AHEAD; i++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const uint4 &a0 = of_a[i][0], &a1 = of_a[i][1], &b = of_x[i][h];
            mma_half(c[h], a0.x, a1.x, a0.y, a1.y, b.x, b.y);
            mma_half(c[h], a0.z, a1.z, a0.w, a1.w, b.z, b.w);
        }
}

/* Whole block: what its warps have summed, in their order. */
__device__ __forceinline__ void inner_add_up(const struct adapt_args &a, const inner_item &item,
                                             const float (&c)[2][4],
                                             float (&warps)[INNER_WARPS][ADAPT_TILE * COLUMN])
{
    uint32_t lane = threadIdx.x % WARP, r = threadIdx.x % INNER_RANK;
    uint32_t column = threadIdx.x / INNER_RANK;
    float *to = warps[threadIdx.x / WARP] + lane % 4 * 2 * COLUMN + lane / 4;
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
        for (int j = 0; j < 4; j++)
            to[(h * 8 + j % 2) * COLUMN + j / 2 * 8] = c[h][j];
    __syncthreads();
    float sum = 0;
#pragma unroll
    for (int w = 0; w < INNER_WARPS; w++)
        sum += warps[w][column * COLUMN + r];
    size_t room = ADAPT_PARTS * ADAPT_SLICES * ADAPT_RANK_ROOM(a.rank_max);
    if (column < item.tile.count)
        a.sums[a.list[1 + item.tile.first + column] * room + item.sums + r] = sum;
    __syncthreads();
}
static_assert(INNER_RANK * ADAPT_TILE == INNER_THREADS, "a thread adds up one value");

#endif

__global__ void __launch_bounds__(INNER_THREADS, INNER_BLOCKS)
    adapted_inner_kernel(const __grid_constant__ struct adapt_args a)
{
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
    __shared__ float warps[INNER_WARPS][ADAPT_TILE * COLUMN];
    grid_trigger(); /* the product, whose weights may come meanwhile */
    if (a.lists)    /* else it is older than the kernel before, as places are */
        grid_wait();
    uint32_t items = inner_items(a), g = threadIdx.x % WARP / 4;
    uint32_t steps =
        (a.k + INNER_K * INNER_WARPS * ADAPT_SLICES - 1) / (INNER_K * INNER_WARPS * ADAPT_SLICES);
    for (uint32_t i = blockIdx.x; i < items; i += gridDim.x) {
        inner_item item = inner_find(a, i);
        if (!item.a)
            continue;
        const uint32_t *list = a.list + 1 + item.tile.first;
        size_t rows[2] = {(size_t)list[min(g, item.tile.count - 1)] * a.x_stride,
                          (size_t)list[min(g + 8, item.tile.count - 1)] * a.x_stride};
        float c[2][4] = {};
        uint4 of_a[AHEAD][2];
        inner_ask_a(a, item, 0, of_a);
        grid_wait();
        inner_multiply(c, a, item, rows, 0, of_a);
        for (uint32_t first = AHEAD; first < steps; first += AHEAD) {
            inner_ask_a(a, item, first, of_a);
            inner_multiply(c, a, item, rows, first, of_a);
        }
        inner_add_up(a, item, c, warps);
    }
    if (blockIdx.x == 0) /* whoever waits for this kernel waits for those before it */
        grid_wait();
#endif
}

cudaError_t adapted_inner(const struct adapt_args *adapt, cudaStream_t stream)
{
    uint32_t most = adapt->rows.max * ADAPT_SLICES * adapt->part_count *
                    (ADAPT_RANK_ROOM(adapt->rank_max) / INNER_RANK);
    uint32_t blocks = INNER_BLOCKS * device_props()->processors;
    return launch(adapted_inner_kernel, dim3(most < blocks ? most : blocks), INNER_THREADS, 0,
                  stream, *adapt);
}

} // namespace HALF
