/* Products of pairs in float32, of any shape and plain format. Up to EXPERTS_FEW pairs each by itself:
 * a warp an output, the expert out of the row's routes. More: a warp an output and EXPERTS_ROWS pairs
 * of one expert at a time, so that weights are read once for as many; which pairs, segments say. Both
 * sum in one order. Right for all, and bound by instructions where there are many rows. */
#include "gpu/kernels/activation/activation.cuh"
#include "gpu/kernels/common/device.cuh"
#include "gpu/kernels/experts/experts.h"

#define EXPERTS_WARPS 8
#define EXPERTS_ROWS 8
#define EXPERTS_FEW 64

struct expert_sums {
    float gate[EXPERTS_ROWS], up[EXPERTS_ROWS];
};

/* Output n of `count` pairs, `x` where each has its input. */
template <int ROWS>
__device__ __forceinline__ void experts_sum(const struct experts_args &a, uint32_t expert,
                                            uint32_t n, const size_t *x, uint32_t count,
                                            struct expert_sums *sums)
{
    uint32_t lane = threadIdx.x % WARP, half = a.w.n / 2;
    size_t gate = ((size_t)expert * a.w.n + n) * a.w.k, up = gate + (size_t)half * a.w.k;
#pragma unroll
    for (int r = 0; r < ROWS; r++)
        sums->gate[r] = sums->up[r] = 0.0f;
    for (uint32_t k = lane; k < a.w.k; k += WARP) {
        float w = load_value(a.w.data, gate + k, dtype_of(a.w.format));
        float v = a.gated ? load_value(a.w.data, up + k, dtype_of(a.w.format)) : 0.0f;
#pragma unroll
        for (int r = 0; r < ROWS; r++)
            if (r < count) {
                float value = load_value(a.x, x[r] + k, a.dtype);
                sums->gate[r] += w * value;
                sums->up[r] += v * value;
            }
    }
}

__device__ __forceinline__ size_t input_of(const struct experts_args &a, uint32_t pair)
{
    return (size_t)(a.spread ? pair / a.top : pair) * a.x_stride;
}

/* By all lanes of the warp. */
__device__ __forceinline__ void experts_put(const struct experts_args &a, uint32_t pair, uint32_t n,
                                            float gate, float up)
{
    float y = warp_sum(gate);
    up = warp_sum(up);
    if (a.gated)
        y = up * (a.activation == ACTIVATE_SILU ? activated<ACTIVATE_SILU>(y)
                                                : activated<ACTIVATE_GELU_TANH>(y));
    if (threadIdx.x % WARP == 0)
        store_value(a.y, (size_t)pair * a.y_stride + n, a.dtype, y);
}

__global__ void __launch_bounds__(EXPERTS_WARPS *WARP) experts_few_kernel(const __grid_constant__
                                                                          struct experts_args a)
{
    grid_trigger();
    grid_wait();
    uint32_t pair = blockIdx.y, row = pair / a.top, outputs = a.gated ? a.w.n / 2 : a.w.n;
    uint32_t n = blockIdx.x * EXPERTS_WARPS + threadIdx.x / WARP;
    if (n >= outputs || row >= range_rows(a.rows))
        return;
    uint32_t expert =
        a.routes[(size_t)row * a.route_stride + pair % a.top].expert - a.own.first;
    if (expert >= a.own.count)
        return;
    size_t x = input_of(a, pair);
    struct expert_sums sums;
    experts_sum<1>(a, expert, n, &x, 1, &sums);
    experts_put(a, pair, n, sums.gate[0], sums.up[0]);
}

__global__ void __launch_bounds__(EXPERTS_WARPS *WARP) experts_kernel(const __grid_constant__
                                                                      struct experts_args a)
{
    grid_trigger();
    grid_wait();
    uint32_t expert = blockIdx.y, outputs = a.gated ? a.w.n / 2 : a.w.n;
    uint32_t n = blockIdx.x * EXPERTS_WARPS + threadIdx.x / WARP;
    if (n >= outputs)
        return;
    const uint32_t *pairs = a.segments + a.own.count + 1;
    uint32_t end = a.segments[expert + 1];
    for (uint32_t at = a.segments[expert]; at < end; at += EXPERTS_ROWS) {
        uint32_t count = min(end - at, (uint32_t)EXPERTS_ROWS);
        size_t x[EXPERTS_ROWS];
        struct expert_sums sums;
#pragma unroll
        for (int r = 0; r < EXPERTS_ROWS; r++)
            x[r] = r < count ? input_of(a, pairs[at + r]) : 0;
        experts_sum<EXPERTS_ROWS>(a, expert, n, x, count, &sums);
#pragma unroll
        for (int r = 0; r < EXPERTS_ROWS; r++)
            if (r < count)
                experts_put(a, pairs[at + r], n, sums.gate[r], sums.up[r]);
    }
}

cudaError_t op_experts(const struct experts_args *args, cudaStream_t stream)
{
    if (!experts_can(args))
        return cudaErrorNotSupported;
    uint64_t pairs = (uint64_t)args->rows.max * args->top;
    bool few = pairs <= EXPERTS_FEW;
    unsigned outputs = ceil_div(args->gated ? args->w.n / 2 : args->w.n, EXPERTS_WARPS);
    return launch(few ? experts_few_kernel : experts_kernel,
                  dim3(pairs ? outputs : 0, few ? (unsigned)pairs : args->own.count),
                  EXPERTS_WARPS * WARP, 0, stream, *args);
}
