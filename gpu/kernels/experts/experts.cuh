/* The bodies of op_experts; each says for what it can be used. */
#pragma once

#include "gpu/kernels/common/device.cuh"
#include "gpu/kernels/experts/experts.h"

/* Of the namespace's dtype: many pairs, by tensor cores. */
#define EXPERTS_OF_HALF                                                                            \
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

static inline uint32_t experts_outputs(const struct experts_args *args)
{
    return args->gated ? args->w.n / 2 : args->w.n;
}

/* The row of x that a pair reads. */
__device__ __forceinline__ size_t experts_input(const struct experts_args &a, uint32_t pair)
{
    return (size_t)(a.spread ? pair / a.top : pair) * a.x_stride;
}
