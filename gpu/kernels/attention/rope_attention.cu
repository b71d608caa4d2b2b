/* As one kernel where there is one for it, else as two. */
#include "gpu/kernels/attention/rope_attention.cuh"

cudaError_t op_rope_attention(const struct rope_args *rope, const struct attention_args *attend,
                              cudaStream_t stream)
{
    bool done = false;
    cudaError_t result = cudaSuccess;
    if (attend->dtype == DTYPE_BF16)
        result = bf16::attention_decode_rope(rope, attend, &done, stream);
    else if (attend->dtype == DTYPE_F16)
        result = f16::attention_decode_rope(rope, attend, &done, stream);
    if (done || result != cudaSuccess)
        return result;
    result = op_rope(rope, stream);
    return result == cudaSuccess ? op_attention(attend, stream) : result;
}
