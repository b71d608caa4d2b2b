/* A block a row: a warp for each product with the router, then one warp takes the greatest. Bound by
 * the router's bytes out of L2, and in steps of few rows by latency. */
#include "gpu/kernels/common/device.cuh"
#include "gpu/kernels/experts/route.h"

#define ROUTE_WARPS 8

__device__ __forceinline__ float route_sigmoid(float x)
{
    return 1.0f / (1.0f + __expf(-x));
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

__device__ void route_take(const struct route_args &a, const float *logits, bool *taken,
                           struct route *routes, uint32_t lane)
{
    float most = 0.0f, sum = 1.0f, mine = 0.0f, all = 0.0f;
    uint32_t my_expert = 0;
    bool softmax = a.scores == ROUTE_SCORES_SOFTMAX;
    if (softmax)
        route_softmax(logits, a.count, lane, &most, &sum);
    for (uint32_t i = 0; i < a.top; i++) {
        uint32_t best = route_best(logits, taken, a.count, lane);
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
        routes[lane] = {my_expert, a.normalised ? mine / all : mine};
    if (a.shared && lane == 0)
        routes[a.top] = {a.count, route_sigmoid(logits[a.count])};
}

__global__ void __launch_bounds__(ROUTE_WARPS *WARP) route_kernel(const __grid_constant__
                                                                  struct route_args a)
{
    __shared__ float logits[ROUTE_EXPERTS_MAX + 1];
    __shared__ bool taken[ROUTE_EXPERTS_MAX];
    grid_trigger();
    grid_wait();
    uint32_t row = blockIdx.x, lane = threadIdx.x % WARP;
    if (row >= range_rows(a.rows))
        return;
    size_t x = (size_t)row * a.x_stride;
    for (uint32_t e = threadIdx.x / WARP; e < a.w.n; e += ROUTE_WARPS) {
        size_t w = (size_t)e * a.w.k;
        float sum = 0.0f;
        for (uint32_t k = lane; k < a.w.k; k += WARP)
            sum += load_value(a.w.data, w + k, dtype_of(a.w.format)) *
                   load_value(a.x, x + k, a.x_dtype);
        sum = warp_sum(sum);
        if (lane == 0)
            logits[e] = sum;
    }
    for (uint32_t e = threadIdx.x; e < a.count; e += blockDim.x)
        taken[e] = false;
    __syncthreads();
    if (threadIdx.x < WARP)
        route_take(a, logits, taken, a.routes + (size_t)row * (a.top + a.shared), lane);
}

cudaError_t op_route(const struct route_args *args, cudaStream_t stream)
{
    if (!route_can(args))
        return cudaErrorNotSupported;
    return launch(route_kernel, dim3(args->rows.max), ROUTE_WARPS * WARP, 0, stream, *args);
}
