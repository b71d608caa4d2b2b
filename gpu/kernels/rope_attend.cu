/* As one kernel where there is one for it, else as two. */
#include "gpu/kernels/rope_attend.cuh"

cudaError_t op_rope_attend(const struct rope_args *rope, const struct attend_args *attend,
                           cudaStream_t stream)
{
    bool done = false;
    cudaError_t result = cudaSuccess;
    if (attend->dtype == DTYPE_BF16)
        result = bf16::attend_roped(rope, attend, &done, stream);
    else if (attend->dtype == DTYPE_F16)
        result = f16::attend_roped(rope, attend, &done, stream);
    if (done || result != cudaSuccess)
        return result;
    result = op_rope(rope, stream);
    return result == cudaSuccess ? op_attend(attend, stream) : result;
}
