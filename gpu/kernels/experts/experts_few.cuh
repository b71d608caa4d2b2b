/* Few pairs of the namespace's dtype (experts_few.cu). */
#pragma once

#include "gpu/kernels/experts/experts.cuh"
#include "gpu/kernels/experts/experts_sum.h"

#define EXPERTS_FEW_OF_HALF                                                                        \
    bool experts_few_can(const struct experts_args *args);                                         \
    cudaError_t experts_few(const struct experts_args *args, cudaStream_t stream);                 \
    bool experts_few_sum_can(const struct experts_sum_args *args);                                 \
    cudaError_t experts_few_sum(const struct experts_sum_args *args, cudaStream_t stream);
namespace bf16
{
EXPERTS_FEW_OF_HALF
}
namespace f16
{
EXPERTS_FEW_OF_HALF
}
