/* The bodies of op_adapted. */
#pragma once

#include "gpu/kernels/adapt/adapt.cuh"
#include "gpu/kernels/adapted/adapted.h"

/* Of the namespace's dtype on sm_90, of x, weights, A and B. adapted_inner: A x, in ADAPT_SLICES
 * sums of each part, to adapt->sums; 0 between a rank and the next multiple of 16. */
#define ADAPTED_OF_HALF                                                                            \
    bool adapted_can(const struct matmul_args *product, const struct adapt_args *adapt);           \
    cudaError_t adapted_inner(const struct adapt_args *adapt, cudaStream_t stream);                \
    cudaError_t adapted_tiles(const struct matmul_args *product, const struct adapt_args *adapt,   \
                              cudaStream_t stream);
namespace bf16
{
ADAPTED_OF_HALF
}
namespace f16
{
ADAPTED_OF_HALF
}
