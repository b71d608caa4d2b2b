#include "gpu/kernels/rope_attend.h"

cudaError_t op_rope_attend(const struct rope_args *rope, const struct attend_args *attend,
                           cudaStream_t stream)
{
    cudaError_t result = op_rope(rope, stream);
    return result == cudaSuccess ? op_attend(attend, stream) : result;
}
