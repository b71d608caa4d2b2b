/* Which way a product goes: by the host's bound on its rows, its dtypes and its alignment. */
#include "gpu/kernels/product.cuh"

bool product_fuses(const struct product_args *args)
{
    return (!args->gated && !args->adds) ||
           (args->rows.max <= PRODUCT_SMALL_MAX && product_small_can(args));
}

cudaError_t op_product(const struct product_args *args, cudaStream_t stream)
{
    if (args->w.scale || args->w.scale_block || !product_fuses(args))
        return cudaErrorNotSupported;
    if (args->rows.max == 0 || args->w.n == 0)
        return cudaSuccess;
    if (args->rows.max <= PRODUCT_SMALL_MAX)
        return product_small_can(args) ? product_small(args, stream) : product_any(args, stream);
    if (product_lt_can(args)) {
        cudaError_t result = product_lt(args, stream);
        if (result != cudaErrorNotSupported)
            return result;
    }
    return product_any(args, stream);
}
