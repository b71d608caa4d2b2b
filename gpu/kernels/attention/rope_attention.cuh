/* The body of op_rope_attention for one 16-bit dtype (half.cuh): *ret_done says whether it was
 * one for it. */
#pragma once

#include "gpu/kernels/attention/rope_attention.h"

namespace bf16
{
cudaError_t attention_decode_rope(const struct rope_args *rope, const struct attention_args *attend,
                                  bool *ret_done, cudaStream_t stream);
}
namespace f16
{
cudaError_t attention_decode_rope(const struct rope_args *rope, const struct attention_args *attend,
                                  bool *ret_done, cudaStream_t stream);
}
