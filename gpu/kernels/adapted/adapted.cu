#include "gpu/kernels/adapted/adapted.cuh"

bool adapted_fuses(const struct matmul_args *product, const struct adapt_args *adapt)
{
    return bf16::adapted_can(product, adapt) || f16::adapted_can(product, adapt);
}

cudaError_t op_adapted(const struct matmul_args *product, const struct adapt_args *adapt,
                       cudaStream_t stream)
{
    const bool brain = bf16::adapted_can(product, adapt);
    cudaError_t status = cudaSuccess;
    if (!brain && !f16::adapted_can(product, adapt))
        return cudaErrorInvalidValue;
    if (adapt->lists)
        status = adapt_list(adapt, stream);
    if (status == cudaSuccess)
        status = brain ? bf16::adapted_inner(adapt, stream) : f16::adapted_inner(adapt, stream);
    if (status != cudaSuccess)
        return status;
    return brain ? bf16::adapted_tiles(product, adapt, stream)
                 : f16::adapted_tiles(product, adapt, stream);
}
