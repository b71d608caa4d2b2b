/* Which way routes are made, and the one that is right for all: a block a row, or of many
 * ROUTE_ROWS, a warp for each row of the router, then one for each of x, which takes the greatest.
 * What is in 16 bits goes by tensor cores (route_tiles.cu). A row's sum has one order in each of
 * the two, and the router and the shape alone decide between them. */
#include "gpu/kernels/experts/route.cuh"

#define ROUTE_WARPS 8
#define ROUTE_ROWS 8  /* up to as many as there are warps */
#define ROUTE_FEW 256 /* rows, of which each has its block */

/* Row e of the router times `count` rows of x from row `first` on: eight values a lane and turn. */
template <int ROWS>
__device__ __forceinline__ void route_sum(const struct route_args &a, uint32_t e, uint32_t first,
                                          uint32_t count, float (&sums)[ROWS])
{
    enum dtype w_dtype = dtype_of(a.w.format);
    size_t w = (size_t)e * a.w.k;
#pragma unroll
    for (int r = 0; r < ROWS; r++)
        sums[r] = 0.0f;
#pragma unroll 2
    for (uint32_t k = threadIdx.x % WARP * 8; k < a.w.k; k += WARP * 8) {
        float8 weights = load_float8(a.w.data, w + k, w + a.w.k, w_dtype);
#pragma unroll
        for (int r = 0; r < ROWS; r++)
            if (r < count) {
                size_t x = (size_t)(first + r) * a.x_stride;
                float8 values = load_float8(a.x, x + k, x + a.w.k, a.x_dtype);
#pragma unroll
                for (int i = 0; i < 8; i++)
                    sums[r] += weights.v[i] * values.v[i];
            }
    }
}

template <int ROWS>
__global__ void __launch_bounds__(ROUTE_WARPS *WARP)
    route_kernel(const __grid_constant__ struct route_args a)
{
    __shared__ float logits[ROWS][ROUTE_EXPERTS_MAX + 1];
    grid_trigger();
    grid_wait();
    uint32_t first = blockIdx.x * ROWS, rows = range_rows(a.rows), lane = threadIdx.x % WARP;
    if (first >= rows)
        return;
    uint32_t count = min(rows - first, (uint32_t)ROWS), warp = threadIdx.x / WARP;
    for (uint32_t e = warp; e < a.w.n; e += ROUTE_WARPS) {
        float sums[ROWS];
        route_sum<ROWS>(a, e, first, count, sums);
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            float sum = warp_sum(sums[r]);
            if (lane == 0)
                logits[r][e] = sum + route_added(a, e);
        }
    }
    __syncthreads();
    if (warp < count)
        route_take(a, logits[warp], a.routes + (size_t)(first + warp) * (a.top + a.shared), lane);
}

static cudaError_t route_any(const struct route_args *args, cudaStream_t stream)
{
    static_assert(ROUTE_ROWS <= ROUTE_WARPS, "each row has a warp that takes its greatest");
    if (args->rows.max <= ROUTE_FEW)
        return launch(route_kernel<1>, dim3(args->rows.max), ROUTE_WARPS * WARP, 0, stream, *args);
    return launch(route_kernel<ROUTE_ROWS>, dim3(ceil_div(args->rows.max, ROUTE_ROWS)),
                  ROUTE_WARPS * WARP, 0, stream, *args);
}

static cudaError_t route_run(const struct norm_args *norm, const struct route_args *args,
                             const struct segments_args *segments, cudaStream_t stream)
{
    if (bf16::route_tiles_can(args))
        return bf16::route_tiles(norm, args, segments, stream);
    if (f16::route_tiles_can(args))
        return f16::route_tiles(norm, args, segments, stream);
    return route_any(args, stream);
}

cudaError_t op_route(const struct route_args *args, cudaStream_t stream)
{
    if (!route_can(args))
        return cudaErrorNotSupported;
    return args->rows.max ? route_run(nullptr, args, nullptr, stream) : cudaSuccess;
}

cudaError_t op_norm_route(const struct norm_args *norm, const struct route_args *route,
                          const struct segments_args *segments, cudaStream_t stream)
{
    if (!route_can(route))
        return cudaErrorNotSupported;
    bool tiles = bf16::route_tiles_can(route) || f16::route_tiles_can(route);
    bool norms = tiles && norm &&
                 (bf16::route_tiles_norms(norm, route) || f16::route_tiles_norms(norm, route));
    bool cuts = tiles && route_tiles_segments(route);
    cudaError_t result = norm && !norms ? op_norm(norm, stream) : cudaSuccess;
    if (result == cudaSuccess && route->rows.max)
        result = route_run(norms ? norm : nullptr, route, cuts ? segments : nullptr, stream);
    return result == cudaSuccess && !cuts ? op_segments(segments, stream) : result;
}
