#include "gpu/kernels/adapted/adapted.h"

bool adapted_fuses(const struct matmul_args *product, const struct adapt_args *adapt)
{
    (void)product;
    (void)adapt;
    return false;
}

cudaError_t op_adapted(const struct matmul_args *product, const struct adapt_args *adapt,
                       cudaStream_t stream)
{
    (void)product;
    (void)adapt;
    (void)stream;
    return cudaErrorInvalidValue;
}
