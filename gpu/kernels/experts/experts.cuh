/* The bodies of op_experts; each says for what it can be used. */
#pragma once

#include "gpu/kernels/activation/activation.cuh"
#include "gpu/kernels/common/device.cuh"
#include "gpu/kernels/experts/experts.h"

/* Of the namespace's dtype: many pairs, by tensor cores. On sm_90 so many that wgmma pays, those of
 * a slice of the experts that are here: numbered from the first of them on; w.data is the slice's.
 */
#define EXPERTS_WIDE_LEAST 64 /* an expert's pairs, if all have as many */
#define EXPERTS_OF_HALF                                                                            \
    bool experts_wgmma_can(const struct experts_args *args);                                       \
    cudaError_t experts_wgmma(const struct experts_args *args, struct expert_range slice,          \
                              cudaStream_t stream);                                                \
    bool experts_tiles_can(const struct experts_args *args);                                       \
    cudaError_t experts_tiles(const struct experts_args *args, cudaStream_t stream);
namespace bf16
{
EXPERTS_OF_HALF
}
namespace f16
{
EXPERTS_OF_HALF
}

__host__ __device__ static inline uint32_t experts_outputs(const struct experts_args *args)
{
    return args->gated ? args->w.n / 2 : args->w.n;
}

/* What is added to output n of an expert. */
__device__ __forceinline__ float experts_bias(const struct experts_args &a, uint32_t expert,
                                              uint32_t n)
{
    return a.bias ? load_value(a.bias, (size_t)expert * a.w.n + n, a.dtype) : 0.0f;
}

/* Gate and up to one; what is no number stays so. */
__device__ __forceinline__ float experts_gated(const struct experts_args &a, float gate, float up)
{
    if (a.limit == 0)
        return up * (a.activation == ACTIVATE_SILU ? activated<ACTIVATE_SILU>(gate)
                                                   : activated<ACTIVATE_GELU_TANH>(gate));
    gate = gate > a.limit ? a.limit : gate;
    up = up > a.limit ? a.limit : up < -a.limit ? -a.limit : up;
    return __fdividef(gate, 1.0f + __expf(-a.alpha * gate)) * (up + 1.0f);
}

/* Output n of a pair, by all lanes of the warp, which have parts of its sums. */
__device__ __forceinline__ void experts_put(const struct experts_args &a, uint32_t expert,
                                            uint32_t pair, uint32_t n, float gate, float up)
{
    float y = warp_sum(gate) + experts_bias(a, expert, n);
    if (a.gated)
        y = experts_gated(a, y, warp_sum(up) + experts_bias(a, expert, a.w.n / 2 + n));
    if (threadIdx.x % WARP == 0)
        store_value(a.y, (size_t)pair * a.y_stride + n, a.dtype, y);
}

/* The row of x that a pair reads. */
__device__ __forceinline__ size_t experts_input(const struct experts_args &a, uint32_t pair)
{
    return (size_t)(a.spread ? pair / a.top : pair) * a.x_stride;
}
