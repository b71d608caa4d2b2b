/* The first kernel of few rows (adapt_few.cuh): A x by tensor cores. An item is 16 rows of an A, a
 * tile of up to 16 rows of x and a slice of k, whose sums go to `sums`. */
#include "gpu/kernels/adapt/adapt_few.cuh"

namespace HALF
{

#define COLUMN 20 /* floats between columns of a warp's product: writes go to all banks */
#define SHRINK_RING (80u << 10)
/* Bytes between rows of a stage: eight lanes that read 64 bytes of each of two find all banks. */
#define SHRINK_PITCH (PIECE * 2 + 64)

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* Bytes of a stage, by the rows of x that it has room for. */
__device__ static constexpr uint32_t shrink_bytes(uint32_t rows)
{
    return (STEP_R + rows) * SHRINK_PITCH;
}

struct shrink_item {
    const half_t *a;       /* its 16 rows */
    uint32_t rows;         /* of A that there are */
    uint32_t first, count; /* of the list's rows */
    uint32_t slice;
    uint32_t sums; /* where in a row's sums */
};

struct shrink_shared {
    few_shared few;
    struct shrink_item items[ITEMS];
    float warps[FEW_WARPS][ADAPT_TILE * COLUMN];
};

__device__ __forceinline__ uint32_t shrink_items(const struct adapt_args &a, const few_shared &s)
{
    return (s.list[0] & 0xffff) * ADAPT_SLICES * a.part_count *
           (ADAPT_RANK_ROOM(a.rank_max) / STEP_R);
}

/* A warp: items number, number + grid and so on. Parts that nobody has are next to each other, and
 * so shared out evenly. */
__device__ __forceinline__ void shrink_find(const struct adapt_args &a, shrink_shared &s,
                                            uint32_t number)
{
    uint32_t tiles = s.few.list[0] & 0xffff, room = ADAPT_RANK_ROOM(a.rank_max);
    shrink_item item = {};
    number += threadIdx.x % WARP * gridDim.x;
    bool valid = number < shrink_items(a, s.few);
    if (valid) {
        uint32_t slice = number % ADAPT_SLICES, of = number / ADAPT_SLICES / tiles;
        uint32_t p = of / (room / STEP_R), r = of % (room / STEP_R) * STEP_R;
        struct adapt_tile tile = tile_of(a, s.few, number / ADAPT_SLICES % tiles);
        const struct adapt_place *place = a.places + (tile.adapter - 1);
        const half_t *from = static_cast<const half_t *>(place->parts[p].a);
        uint32_t rank = place->rank;
        valid = from && place->parts[p].from == p && r < rank;
        item = {from + (size_t)r * a.k,
                min(rank - r, STEP_R),
                tile.first,
                tile.count,
                slice,
                (p * ADAPT_SLICES + slice) * room + r};
    }
    items_keep(s.few, s.items, item, valid);
}

/* Of an item; and the first value of k of such a one. Slices have all pieces in turns. */
__device__ __forceinline__ uint32_t shrink_steps(const struct adapt_args &a)
{
    return (a.k + PIECE * ADAPT_SLICES - 1) / (PIECE * ADAPT_SLICES);
}

__device__ __forceinline__ uint32_t shrink_k(const shrink_item &item, uint32_t step)
{
    return (step * ADAPT_SLICES + item.slice) * PIECE;
}

/* A warp: A of a step, a row at a time; 0 where there is none. */
__device__ __forceinline__ void shrink_ask_a(const struct adapt_args &a, const shrink_item &item,
                                             uint32_t step, uint32_t stage)
{
    uint32_t k = shrink_k(item, step) + threadIdx.x % WARP * 8, rows = k < a.k ? item.rows : 0;
    const half_t *from = item.a + (rows ? k : 0);
    stage += threadIdx.x % WARP * 16;
#pragma unroll
    for (uint32_t row = 0; row < STEP_R; row++) {
        copy_async(stage + row * SHRINK_PITCH, from, row < rows);
        if (row + 1 < rows)
            from += a.k;
    }
}

/* A warp: x of a step. */
__device__ __forceinline__ void shrink_ask_x(const struct adapt_args &a, const shrink_shared &s,
                                             const shrink_item &item, uint32_t step, uint32_t stage)
{
    uint32_t k = shrink_k(item, step) + threadIdx.x % WARP * 8;
    uint32_t to = stage + STEP_R * SHRINK_PITCH + threadIdx.x % WARP * 16;
    const half_t *x = static_cast<const half_t *>(a.x) + (k < a.k ? k : 0);
#pragma unroll 4
    for (uint32_t row = 0; row < item.count; row++)
        copy_async(to + row * SHRINK_PITCH, x + row_of(s.few, item.first, row) * a.x_stride,
                   k < a.k);
}

/* A warp: A, or x, of all steps of the items. */
__device__ __forceinline__ void shrink_fill(const struct adapt_args &a, const shrink_shared &s,
                                            const few_ring &ring, ring_cursor &fill, bool rows)
{
    uint32_t steps = shrink_steps(a);
    for (uint32_t i = 0; i < s.few.count; i++)
        for (uint32_t step = 0; step < steps; step++, ring_next(fill, ring.stages)) {
            ring_wait_empty(ring.empty, fill);
            if (rows)
                shrink_ask_x(a, s, s.items[i], step, stage_at(ring, fill));
            else
                shrink_ask_a(a, s.items[i], step, stage_at(ring, fill));
            copies_arrive(ring_barrier(ring.full, fill));
        }
}

/* A warp: its 32 values of k of a stage. A lane has eight in a row of them, and takes them for
 * those that the instruction wants of it: of A and x alike, so the sum is the same. Columns behind
 * the tile's rows are of any of these. c[h]: of the tile's rows 8 h and on. */
__device__ __forceinline__ void shrink_multiply(float (&c)[2][4], uint32_t stage, uint32_t count)
{
    uint32_t lane = threadIdx.x % WARP, g = lane / 4;
    uint32_t at = stage + threadIdx.x / WARP * 64 + lane % 4 * 16, x = at + STEP_R * SHRINK_PITCH;
    uint4 a0 = load_shared(at + g * SHRINK_PITCH), a1 = load_shared(at + (g + 8) * SHRINK_PITCH);
    uint4 x0 = load_shared(x + (g < count ? g : 0) * SHRINK_PITCH);
    mma_half(c[0], a0.x, a1.x, a0.y, a1.y, x0.x, x0.y);
    mma_half(c[0], a0.z, a1.z, a0.w, a1.w, x0.z, x0.w);
    if (count <= 8)
        return;
    uint4 x1 = load_shared(x + (g + 8 < count ? g + 8 : 0) * SHRINK_PITCH);
    mma_half(c[1], a0.x, a1.x, a0.y, a1.y, x1.x, x1.y);
    mma_half(c[1], a0.z, a1.z, a0.w, a1.w, x1.z, x1.w);
}

/* A warp: what it has summed, to where all add up; and from zero on. */
__device__ __forceinline__ void shrink_put(shrink_shared &s, float (&c)[2][4], uint32_t count)
{
    uint32_t lane = threadIdx.x % WARP;
    float *to = s.warps[threadIdx.x / WARP] + lane % 4 * 2 * COLUMN + lane / 4;
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
        for (int j = 0; j < 4; j++) {
            if (h == 0 || count > 8)
                to[(h * 8 + j % 2) * COLUMN + j / 2 * 8] = c[h][j];
            c[h][j] = 0;
        }
}

/* Those that multiply: the sum over them, in order. */
__device__ __forceinline__ void shrink_sum(const struct adapt_args &a, const shrink_shared &s,
                                           const shrink_item &item)
{
    uint32_t r = threadIdx.x % STEP_R, column = threadIdx.x / STEP_R;
    size_t room = ADAPT_PARTS * ADAPT_SLICES * ADAPT_RANK_ROOM(a.rank_max);
    float sum = 0;
    if (column >= item.count)
        return;
#pragma unroll
    for (int w = 0; w < FEW_WARPS; w++)
        sum += s.warps[w][column * COLUMN + r];
    a.sums[row_of(s.few, item.first, column) * room + item.sums + r] = sum;
}
static_assert(STEP_R * ADAPT_TILE == FEW_WARPS * WARP, "a thread adds up one value");

__device__ __forceinline__ void shrink_consume(const struct adapt_args &a, shrink_shared &s,
                                               const few_ring &ring, ring_cursor &read)
{
    uint32_t steps = shrink_steps(a);
    float c[2][4] = {};
    for (uint32_t i = 0; i < s.few.count; i++) {
        const shrink_item item = s.items[i];
        for (uint32_t step = 0; step < steps; step++) {
            ring_wait_full(ring.full, read);
            shrink_multiply(c, stage_at(ring, read), item.count);
            stage_leave(ring, read);
        }
        shrink_put(s, c, item.count);
        multiplying_meet();
        shrink_sum(a, s, item);
        multiplying_meet();
    }
}

#endif

__global__ void __launch_bounds__(FEW_THREADS, FEW_BLOCKS)
    adapt_shrink_kernel(const __grid_constant__ struct adapt_args a, uint32_t bytes)
{
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
    extern __shared__ __align__(128) uint8_t memory[];
    __shared__ shrink_shared s;
    if (a.lists) /* else two kernels old at least, as places are */
        grid_wait();
    bool thin = list_read(a, s.few);
    few_ring ring = ring_make(s.few, memory, bytes, shrink_bytes(thin ? THIN : ADAPT_TILE));
    ring_cursor at = {};
    enum few_role role = few_role();
    for (uint32_t i = blockIdx.x; i < shrink_items(a, s.few); i += ITEMS * gridDim.x) {
        if (role == FILLS_WEIGHTS)
            shrink_find(a, s, i);
        __syncthreads();
        if (role != FILLS_WEIGHTS) {
            grid_wait();
            grid_trigger(); /* the second kernel, and whatever waits by itself */
        }
        if (role == MULTIPLIES)
            shrink_consume(a, s, ring, at);
        else
            shrink_fill(a, s, ring, at, role == FILLS_ROWS);
        __syncthreads();
    }
    grid_wait();
#endif
}

cudaError_t adapt_shrink(const struct adapt_args *args, cudaStream_t stream)
{
    static struct device_once once;
    const struct device_props *device = device_props();
    const uint32_t ring = SHRINK_RING;
    cudaError_t result = device_allow(&once, adapt_shrink_kernel, device, FEW_STATIC);
    if (result != cudaSuccess)
        return result;
    return launch(adapt_shrink_kernel, dim3(FEW_BLOCKS * device->processors), FEW_THREADS, ring,
                  stream, *args, ring);
}

} // namespace HALF
