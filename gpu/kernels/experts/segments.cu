/* A block an expert, which reads all routes: each warp a run of the pairs, of which it counts those
 * of experts before its block's and of its own; then its own are put down in order, behind what the
 * warps before it have. No atomics, so the order is one. Routes lie in L2. */
#include "gpu/kernels/common/device.cuh"
#include "gpu/kernels/experts/segments.h"

#define SEGMENTS_WARPS 32
#define SEGMENTS_RUN 128 /* pairs that are worth a warp */

/* Counted from the first that is here; own.count: it is not. */
__device__ __forceinline__ uint32_t route_of(const struct segments_args &a, uint32_t pair)
{
    uint32_t expert = a.routes[(size_t)(pair / a.top) * a.stride + pair % a.top].expert;
    return min(expert - a.own.first, a.own.count);
}

/* What a warp has found. */
struct segments_found {
    uint32_t before, own;
};

/* Where the warp's run puts its first, and what all warps have. */
__device__ __forceinline__ struct segments_found
segments_add(const struct segments_found *warps, uint32_t warp, uint32_t count, uint32_t *ret_at)
{
    struct segments_found all = {0, 0};
    for (uint32_t i = 0; i < count; i++) {
        if (i == warp)
            *ret_at = all.own;
        all.before += warps[i].before;
        all.own += warps[i].own;
    }
    *ret_at += all.before;
    return all;
}

__global__ void __launch_bounds__(SEGMENTS_WARPS *WARP)
    segments_kernel(const __grid_constant__ struct segments_args a)
{
    __shared__ struct segments_found found[SEGMENTS_WARPS];
    grid_trigger();
    grid_wait();
    uint32_t expert = blockIdx.x, lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    uint32_t count = range_rows(a.rows) * a.top, warps = blockDim.x / WARP, at = 0;
    uint32_t run = (count + blockDim.x - 1) / blockDim.x * WARP, first = min(warp * run, count);
    uint32_t end = min(first + run, count);
    struct segments_found mine = {0, 0};
    for (uint32_t base = first; base < end; base += WARP) {
        uint32_t e = base + lane < end ? route_of(a, base + lane) : a.own.count;
        mine.before += __popc(__ballot_sync(FULL_MASK, e < expert));
        mine.own += __popc(__ballot_sync(FULL_MASK, e == expert));
    }
    if (lane == 0)
        found[warp] = mine;
    __syncthreads();
    struct segments_found all = segments_add(found, warp, warps, &at);
    uint32_t *pairs = a.segments + a.own.count + 1;
    for (uint32_t base = first; base < end; base += WARP) {
        uint32_t e = base + lane < end ? route_of(a, base + lane) : a.own.count;
        uint32_t mask = __ballot_sync(FULL_MASK, e == expert);
        if (e == expert)
            pairs[at + __popc(mask & ((1u << lane) - 1))] = base + lane;
        at += __popc(mask);
    }
    if (threadIdx.x == 0) {
        a.segments[expert] = all.before;
        if (expert + 1 == a.own.count)
            a.segments[a.own.count] = all.before + all.own;
    }
}

cudaError_t op_segments(const struct segments_args *args, cudaStream_t stream)
{
    uint64_t warps = ((uint64_t)args->rows.max * args->top + SEGMENTS_RUN - 1) / SEGMENTS_RUN;
    if (args->own.count > ROUTE_EXPERTS_MAX)
        return cudaErrorNotSupported;
    warps = warps < SEGMENTS_WARPS ? warps : SEGMENTS_WARPS;
    return launch(segments_kernel, dim3(args->rows.max ? args->own.count : 0),
                  (unsigned)warps * WARP, 0, stream, *args);
}
