/* Two kernels. A x: a block for each row and part, a warp for each row of A in turn, over a row of
 * x that lies in registers' reach of the cache. B of that: a block for each row and run of outputs,
 * a thread for each, with A x of the run's parts in shared memory. Bound by memory where rows share
 * no adapter; rows that do read A and B from L2. */
#include "gpu/kernels/adapt/adapt.h"
#include "gpu/kernels/common/device.cuh"

#define ADAPT_WARPS 8
#define ADAPT_THREADS (ADAPT_WARPS * WARP)

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

cudaError_t op_adapt(const struct adapt_args *args, cudaStream_t stream)
{
    if (!args->part_count || args->part_count > ADAPT_PARTS || args->rank_max > ADAPT_RANK_MAX)
        return cudaErrorInvalidValue;
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
