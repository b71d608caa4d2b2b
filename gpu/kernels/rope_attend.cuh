/* The body of op_rope_attend for one 16-bit dtype (narrow.cuh): *ret_done says whether it was one
 * for it. */
#pragma once

#include "gpu/kernels/rope_attend.h"

namespace bf16
{
cudaError_t attend_roped(const struct rope_args *rope, const struct attend_args *attend,
                         bool *ret_done, cudaStream_t stream);
}
namespace f16
{
cudaError_t attend_roped(const struct rope_args *rope, const struct attend_args *attend,
                         bool *ret_done, cudaStream_t stream);
}
