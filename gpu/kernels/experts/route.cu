/* A block a row, or of many ROUTE_ROWS: a warp for each row of the router, then one for each of x,
 * which takes the greatest. Few rows are bound by latency, so up to ROUTE_SPREAD of them have a
 * cluster of blocks each, which share the router's rows; many by the router's bytes out of L2,
 * which are read once for as many rows as a block has. A row's sum has one order in all. */
#include "gpu/kernels/common/device_props.cuh"
#include "gpu/kernels/common/mma.cuh"
#include "gpu/kernels/experts/route.h"

#define ROUTE_WARPS 8
#define ROUTE_CLUSTER 8 /* blocks of a row, as many as every device of these lets be a cluster */
#define ROUTE_SPREAD 16 /* rows: with their clusters, about a block for each SM */
#define ROUTE_ROWS 8    /* up to as many as there are warps */
#define ROUTE_FEW 256   /* rows, of which each has its block */

__device__ __forceinline__ float route_sigmoid(float x)
{
    return 1.0f / (1.0f + __expf(-x));
}

__device__ __forceinline__ float route_added(const struct route_args &a, uint32_t e)
{
    return a.added && e < a.count ? a.added[e] : 0.0f;
}

/* Of two candidates the one that is taken first; `count` stands for none. */
__device__ __forceinline__ bool route_before(float x, uint32_t e, float y, uint32_t f,
                                             uint32_t count)
{
    if (e == count || f == count)
        return e != count;
    bool x_none = x != x, y_none = y != y;
    if (x_none != y_none)
        return y_none;
    return x > y || ((x == y || x_none) && e < f);
}

__device__ __forceinline__ uint32_t route_best(const float *logits, const bool *taken,
                                               uint32_t count, uint32_t lane)
{
    uint32_t best = count;
    float value = 0.0f;
    for (uint32_t e = lane; e < count; e += WARP)
        if (!taken[e] && route_before(logits[e], e, value, best, count)) {
            best = e;
            value = logits[e];
        }
#pragma unroll
    for (int offset = WARP / 2; offset; offset /= 2) {
        uint32_t other = __shfl_xor_sync(FULL_MASK, best, offset);
        float its = __shfl_xor_sync(FULL_MASK, value, offset);
        if (route_before(its, other, value, best, count)) {
            best = other;
            value = its;
        }
    }
    return best;
}

/* What logits are turned into by `scale * exp(logit - most)`; a logit that is none makes all so. */
__device__ __forceinline__ void route_softmax(const float *logits, uint32_t count, uint32_t lane,
                                              float *most, float *sum)
{
    float top = -INFINITY, terms = 0.0f;
    for (uint32_t e = lane; e < count; e += WARP)
        top = fmaxf(top, logits[e]);
#pragma unroll
    for (int offset = WARP / 2; offset; offset /= 2)
        top = fmaxf(top, __shfl_xor_sync(FULL_MASK, top, offset));
    for (uint32_t e = lane; e < count; e += WARP)
        terms += __expf(logits[e] - top);
    *most = top;
    *sum = warp_sum(terms);
}

/* `keys`: by what experts are chosen, where that is not their logits. */
__device__ void route_take(const struct route_args &a, const float *logits, float *keys,
                           bool *taken, struct route *routes, uint32_t lane)
{
    float most = 0.0f, sum = 1.0f, mine = 0.0f, all = 0.0f;
    uint32_t my_expert = 0;
    bool softmax = a.scores == ROUTE_SCORES_SOFTMAX;
    if (softmax)
        route_softmax(logits, a.count, lane, &most, &sum);
    for (uint32_t e = lane; a.bias && e < a.count; e += WARP)
        keys[e] = route_sigmoid(logits[e]) + a.bias[e];
    __syncwarp();
    for (uint32_t i = 0; i < a.top; i++) {
        uint32_t best = route_best(a.bias ? keys : logits, taken, a.count, lane);
        float weight = softmax ? __expf(logits[best] - most) / sum : route_sigmoid(logits[best]);
        __syncwarp();
        if (lane == 0)
            taken[best] = true;
        __syncwarp();
        all += weight;
        if (lane == i) {
            mine = weight;
            my_expert = best;
        }
    }
    if (lane < a.top)
        routes[lane] = {my_expert, (a.normalised ? mine / all : mine) * a.scale};
    if (a.shared && lane == 0)
        routes[a.top] = {a.count, a.w.n > a.count ? route_sigmoid(logits[a.count]) : 1.0f};
}

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
#pragma unroll(ROWS == 1 ? 8 : 2)
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
    __shared__ float keys[ROWS][ROUTE_EXPERTS_MAX];
    __shared__ bool taken[ROWS][ROUTE_EXPERTS_MAX];
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
    for (uint32_t i = threadIdx.x; i < ROWS * a.count; i += blockDim.x)
        taken[i / a.count][i % a.count] = false;
    __syncthreads();
    if (warp < count)
        route_take(a, logits[warp], keys[warp], taken[warp],
                   a.routes + (size_t)(first + warp) * (a.top + a.shared), lane);
}

/* Of few rows: each block of a cluster has `each` of the router's rows, the first takes. */
__global__ void __launch_bounds__(ROUTE_WARPS *WARP)
    route_spread_kernel(const __grid_constant__ struct route_args a, uint32_t each)
{
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
    __shared__ __align__(16) float logits[ROUTE_EXPERTS_MAX + 4];
    __shared__ float keys[ROUTE_EXPERTS_MAX];
    __shared__ bool taken[ROUTE_EXPERTS_MAX];
    uint32_t lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, rank = cluster_rank();
    uint32_t begin = rank * each, end = min(begin + each, a.w.n), row = blockIdx.x / ROUTE_CLUSTER;
    size_t element = a.w.format == FORMAT_F32 ? 4 : 2;
    for (uint32_t e = begin + warp; e < end; e += ROUTE_WARPS) /* while those before still run */
        for (size_t at = lane * 128; at < a.w.k * element; at += WARP * 128)
            prefetch_l2(static_cast<const char *>(a.w.data) + e * a.w.k * element + at);
    grid_trigger();
    grid_wait();
    if (row >= range_rows(a.rows))
        return;
    for (uint32_t e = begin + warp; e < end; e += ROUTE_WARPS) {
        float sums[1];
        route_sum<1>(a, e, row, 1, sums);
        float sum = warp_sum(sums[0]);
        if (lane == 0)
            logits[e] = sum + route_added(a, e);
    }
    cluster_sync();
    uint32_t first = threadIdx.x * 4; /* of four logits, which one block has */
    if (rank == 0 && first >= each && first < a.w.n) {
        uint32_t from = cluster_address(shared_address(&logits[first]), first / each);
        *reinterpret_cast<float4 *>(&logits[first]) = cluster_load(from);
    }
    for (uint32_t i = threadIdx.x; i < a.count; i += blockDim.x)
        taken[i] = false;
    cluster_sync(); /* a block's memory is there until all of the cluster are here */
    if (rank == 0 && warp == 0)
        route_take(a, logits, keys, taken, a.routes + (size_t)row * (a.top + a.shared), lane);
#endif
}

static cudaError_t route_spread(const struct route_args *args, cudaStream_t stream)
{
    cudaLaunchAttribute attributes[2];
    attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[0].val.programmaticStreamSerializationAllowed = 1;
    attributes[1].id = cudaLaunchAttributeClusterDimension;
    attributes[1].val.clusterDim.x = ROUTE_CLUSTER;
    attributes[1].val.clusterDim.y = attributes[1].val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(args->rows.max * ROUTE_CLUSTER);
    config.blockDim = dim3(ROUTE_WARPS * WARP);
    config.stream = stream;
    config.attrs = attributes;
    config.numAttrs = 2;
    uint32_t each = ceil_div(args->w.n, ROUTE_CLUSTER * 4) * 4;
    return cudaLaunchKernelEx(&config, route_spread_kernel, *args, each);
}

cudaError_t op_route(const struct route_args *args, cudaStream_t stream)
{
    static_assert(ROUTE_EXPERTS_MAX + 4 <= ROUTE_WARPS * WARP * 4, "four logits a thread");
    static_assert(ROUTE_ROWS <= ROUTE_WARPS, "each row has a warp that takes its greatest");
    if (!route_can(args))
        return cudaErrorNotSupported;
    if (args->rows.max == 0)
        return cudaSuccess;
    if (device_props()->major == 9 && args->rows.max <= ROUTE_SPREAD)
        return route_spread(args, stream);
    if (args->rows.max <= ROUTE_FEW)
        return launch(route_kernel<1>, dim3(args->rows.max), ROUTE_WARPS * WARP, 0, stream, *args);
    return launch(route_kernel<ROUTE_ROWS>, dim3(ceil_div(args->rows.max, ROUTE_ROWS)),
                  ROUTE_WARPS * WARP, 0, stream, *args);
}
