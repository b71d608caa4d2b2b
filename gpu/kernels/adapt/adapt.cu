/* The list of a step's rows, and what is done for shapes and dtypes that the other ways do not know
 * of: two kernels, each row by itself. A x: a block for each row and part, a warp for each row of
 * A in turn. B of that: a block for each row and run of outputs, a thread for each, with A x of the
 * run's parts in shared memory. */
#include "gpu/kernels/adapt/adapt.cuh"
#include "gpu/kernels/common/device_props.cuh"

#define ADAPT_WARPS 8
#define ADAPT_THREADS (ADAPT_WARPS * WARP)
#define LIST_THREADS 1024
#define LISTED (GPU_ADAPTERS_MAX + 1) /* adapters, and none */
#define LIST_STATIC 1024              /* bytes of shared memory beside the rows */

/* ---- the list ---- */

/* Where each adapter's rows and tiles begin, from how many there are; those without one are last.
 * One thread. */
__device__ static void list_places(const struct adapt_args &a, const uint32_t *counts,
                                   uint32_t *firsts, uint32_t *tile_firsts)
{
    uint32_t first = 0, tiles = 0, adapted = 0;
    for (uint32_t i = 1; i <= LISTED; i++) {
        uint32_t adapter = i % LISTED;
        if (adapter == 0)
            adapted = tiles;
        firsts[adapter] = first;
        tile_firsts[adapter] = tiles;
        first += counts[adapter];
        tiles += (counts[adapter] + ADAPT_TILE - 1) / ADAPT_TILE;
    }
    a.list[0] = tiles << 16 | adapted;
}

/* One block, a warp for each adapter in turn; rows stay in their order. */
__global__ void __launch_bounds__(LIST_THREADS)
    adapt_list_kernel(const __grid_constant__ struct adapt_args a)
{
    extern __shared__ uint8_t adapter_of[];
    __shared__ uint32_t counts[LISTED], firsts[LISTED], tile_firsts[LISTED];
    uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    grid_wait();
    if (a.sums && threadIdx.x == 0) {
        *adapt_x_word(a) = 0; /* before anything of the step looks */
        __threadfence();
    }
    __syncthreads();
    grid_trigger();
    uint32_t rows = range_rows(a.rows);
    for (uint32_t row = threadIdx.x; row < rows; row += LIST_THREADS)
        adapter_of[row] = static_cast<uint8_t>(a.batch_rows[a.token_row[row]].adapter);
    __syncthreads();
    for (uint32_t adapter = warp; adapter < LISTED; adapter += LIST_THREADS / WARP) {
        uint32_t count = 0;
        for (uint32_t row = 0; row < rows; row += WARP)
            count += __popc(__ballot_sync(FULL_MASK, row + lane < rows &&
                                                         adapter_of[row + lane] == adapter));
        if (lane == 0)
            counts[adapter] = count;
    }
    __syncthreads();
    if (threadIdx.x == 0)
        list_places(a, counts, firsts, tile_firsts);
    __syncthreads();
    for (uint32_t adapter = warp; adapter < LISTED; adapter += LIST_THREADS / WARP) {
        uint32_t at = firsts[adapter];
        if (!counts[adapter])
            continue;
        for (uint32_t row = 0; row < rows; row += WARP) {
            bool own = row + lane < rows && adapter_of[row + lane] == adapter;
            uint32_t all = __ballot_sync(FULL_MASK, own);
            if (own)
                a.list[1 + at + __popc(all & ((1u << lane) - 1))] = row + lane;
            at += __popc(all);
        }
        for (uint32_t i = lane; i * ADAPT_TILE < counts[adapter]; i += WARP)
            adapt_tile_put(a, tile_firsts[adapter] + i,
                           {firsts[adapter] + i * ADAPT_TILE,
                            min(counts[adapter] - i * ADAPT_TILE, (uint32_t)ADAPT_TILE), adapter});
    }
}
static_assert(LISTED <= 256, "a byte says which");
static_assert(3 * LISTED * sizeof(uint32_t) < LIST_STATIC, "with what lies between");

cudaError_t adapt_list(const struct adapt_args *args, cudaStream_t stream)
{
    static struct device_once once;
    cudaError_t result = device_allow(&once, adapt_list_kernel, device_props(), LIST_STATIC);
    if (result != cudaSuccess)
        return result;
    return launch(adapt_list_kernel, dim3(1), LIST_THREADS, args->rows.max, stream, *args);
}

/* ---- any shape ---- */

/* NULL: the row has no adapter. The same for all threads of a block. */
__device__ static const struct adapt_place *place_of(const struct adapt_args &a, uint32_t row)
{
    uint32_t adapter = a.batch_rows[a.token_row[a.rows.first + row]].adapter;
    return adapter ? a.places + (adapter - 1) : nullptr;
}

__global__ void __launch_bounds__(ADAPT_THREADS)
    adapt_down_kernel(const __grid_constant__ struct adapt_args a)
{
    grid_wait();
    grid_trigger();
    uint32_t row = blockIdx.x, p = blockIdx.y;
    if (row >= range_rows(a.rows))
        return;
    const struct adapt_place *place = place_of(a, row);
    if (!place || !place->parts[p].a || place->parts[p].from != p)
        return;
    const struct adapt_part part = place->parts[p];
    uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    size_t x = (size_t)row * a.x_stride;
    float *inner = a.inner + ((size_t)row * ADAPT_PARTS + p) * a.rank_max;
    for (uint32_t r = blockIdx.z * ADAPT_WARPS + warp; r < place->rank;
         r += gridDim.z * ADAPT_WARPS) {
        size_t w = (size_t)r * a.k;
        float sum = 0;
        for (uint32_t k = lane * 8; k < a.k; k += WARP * 8) {
            float8 left = load_float8(part.a, w + k, w + a.k, part.a_dtype);
            float8 right = load_float8(a.x, x + k, x + a.k, a.x_dtype);
#pragma unroll
            for (int i = 0; i < 8; i++)
                sum += left.v[i] * right.v[i];
        }
        sum = warp_sum(sum);
        if (lane == 0)
            inner[r] = sum;
    }
}

/* The part that an output is of. */
__device__ static uint32_t part_of(const struct adapt_args &a, uint32_t n)
{
    uint32_t p = 0;
    while (p + 1 < a.part_count && n >= a.ends[p])
        p++;
    return p;
}

__global__ void __launch_bounds__(ADAPT_THREADS)
    adapt_up_kernel(const __grid_constant__ struct adapt_args a)
{
    __shared__ float inner[ADAPT_PARTS * ADAPT_RANK_MAX];
    grid_wait();
    grid_trigger();
    uint32_t row = blockIdx.x, n = blockIdx.y * ADAPT_THREADS + threadIdx.x;
    if (row >= range_rows(a.rows))
        return;
    const struct adapt_place *place = place_of(a, row);
    if (!place)
        return;
    uint32_t rank = place->rank;
    const float *from = a.inner + (size_t)row * ADAPT_PARTS * a.rank_max;
    for (uint32_t p = 0; p < a.part_count; p++) {
        if (!place->parts[p].a || place->parts[p].from != p)
            continue;
        for (uint32_t i = threadIdx.x; i < rank; i += ADAPT_THREADS)
            inner[p * ADAPT_RANK_MAX + i] = from[p * a.rank_max + i];
    }
    __syncthreads();
    if (n >= a.ends[a.part_count - 1])
        return;
    uint32_t p = part_of(a, n);
    const struct adapt_part part = place->parts[p];
    if (!part.b)
        return;
    size_t w = (size_t)(n - (p ? a.ends[p - 1] : 0)) * rank;
    const float *x = inner + part.from * ADAPT_RANK_MAX;
    float sum = 0;
    for (uint32_t k = 0; k < rank; k += 8) {
        float8 left = load_float8(part.b, w + k, w + rank, part.b_dtype);
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (k + i < rank)
                sum += left.v[i] * x[k + i];
    }
    size_t at = (size_t)row * a.y_stride + n;
    store_value(a.y, at, a.y_dtype, load_value(a.y, at, a.y_dtype) + place->scale * sum);
}

static cudaError_t adapt_any(const struct adapt_args *args, cudaStream_t stream)
{
    cudaError_t status = launch(
        adapt_down_kernel,
        dim3(args->rows.max, args->part_count, ceil_div(args->rank_max, 2 * ADAPT_WARPS)),
        ADAPT_THREADS, 0, stream, *args);
    if (status != cudaSuccess)
        return status;
    return launch(adapt_up_kernel,
                  dim3(args->rows.max, ceil_div(args->ends[args->part_count - 1], ADAPT_THREADS)),
                  ADAPT_THREADS, 0, stream, *args);
}

bool adapt_fuses(const struct adapt_args *args)
{
    const bool tiled = bf16::adapt_tiled_can(args) || f16::adapt_tiled_can(args);
    return args->gated && !args->invariant && tiled;
}

cudaError_t op_adapt(const struct adapt_args *args, cudaStream_t stream)
{
    cudaError_t status = cudaSuccess;
    if (!args->part_count || args->part_count > ADAPT_PARTS || args->rank_max > ADAPT_RANK_MAX ||
        (args->gated && !adapt_fuses(args)))
        return cudaErrorInvalidValue;
    if (args->rows.max == 0)
        return cudaSuccess;
    if (args->lists && args->list)
        status = adapt_list(args, stream);
    if (status != cudaSuccess)
        return status;
    if (args->invariant)
        return adapt_any(args, stream);
    return bf16::adapt_few_can(args)     ? bf16::adapt_few(args, stream)
           : f16::adapt_few_can(args)    ? f16::adapt_few(args, stream)
           : bf16::adapt_tiled_can(args) ? bf16::adapt_tiled(args, stream)
           : f16::adapt_tiled_can(args)  ? f16::adapt_tiled(args, stream)
                                         : adapt_any(args, stream);
}
