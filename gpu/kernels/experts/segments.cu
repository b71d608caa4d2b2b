/* A warp an expert, which reads all routes: those of experts before it are counted, its own are put
 * down in order. No atomics, so the order is one. Routes lie in L2: 64 Ki pairs and 128 experts are
 * 64 MiB of it. */
#include "gpu/kernels/common/device.cuh"
#include "gpu/kernels/experts/segments.h"

/* Counted from the first that is here; own.count: it is not. */
__device__ __forceinline__ uint32_t route_of(const struct segments_args &a, uint32_t pair)
{
    uint32_t expert = a.routes[(size_t)(pair / a.top) * a.stride + pair % a.top].expert;
    return min(expert - a.own.first, a.own.count);
}

__global__ void __launch_bounds__(WARP) segments_kernel(const __grid_constant__
                                                        struct segments_args a)
{
    grid_trigger();
    grid_wait();
    uint32_t expert = blockIdx.x, lane = threadIdx.x, count = range_rows(a.rows) * a.top;
    uint32_t before = 0, own = 0;
    for (uint32_t base = 0; base < count; base += WARP) {
        uint32_t e = base + lane < count ? route_of(a, base + lane) : a.own.count;
        before += __popc(__ballot_sync(FULL_MASK, e < expert));
    }
    uint32_t *pairs = a.segments + a.own.count + 1 + before;
    for (uint32_t base = 0; base < count; base += WARP) {
        uint32_t e = base + lane < count ? route_of(a, base + lane) : a.own.count;
        uint32_t mask = __ballot_sync(FULL_MASK, e == expert);
        if (e == expert)
            pairs[own + __popc(mask & ((1u << lane) - 1))] = base + lane;
        own += __popc(mask);
    }
    if (lane == 0) {
        a.segments[expert] = before;
        if (expert + 1 == a.own.count)
            a.segments[a.own.count] = before + own;
    }
}

cudaError_t op_segments(const struct segments_args *args, cudaStream_t stream)
{
    if (args->own.count > ROUTE_EXPERTS_MAX)
        return cudaErrorNotSupported;
    return launch(segments_kernel, dim3(args->rows.max ? args->own.count : 0), WARP, 0, stream, *args);
}
