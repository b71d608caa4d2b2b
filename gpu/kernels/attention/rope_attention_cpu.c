#include "gpu/kernels/attention/rope_attention.h"

cudaError_t op_rope_attention(const struct rope_args *rope, const struct attention_args *attend,
                              cudaStream_t stream)
{
    cudaError_t result = op_rope(rope, stream);
    return result == cudaSuccess ? op_attention(attend, stream) : result;
}
