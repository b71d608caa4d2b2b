#include "gpu/kernels/load/repack.h"

cudaError_t op_repack(const struct weight *weight, cudaStream_t stream)
{
    (void)weight;
    (void)stream;
    return cudaSuccess;
}
