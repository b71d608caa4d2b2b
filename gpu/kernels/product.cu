/* Which way a product goes: by the host's bound on its rows, its dtypes and its alignment. */
#include "gpu/kernels/product.cuh"

bool product_fuses(const struct product_args *args)
{
    bool plain = !args->gated && !args->hands.weight && !args->owed.squares;
    return (plain && (!args->adds || args->y_dtype == DTYPE_F32)) ||
           bf16::product_small_can(args) || f16::product_small_can(args) ||
           bf16::product_gated_can(args) || f16::product_gated_can(args);
}

static cudaError_t few_rows(const struct product_args *args, cudaStream_t stream)
{
    if (bf16::product_small_can(args))
        return bf16::product_small(args, stream);
    if (f16::product_small_can(args))
        return f16::product_small(args, stream);
    return product_any(args, stream);
}

static cudaError_t many_rows(const struct product_args *args, cudaStream_t stream)
{
    if (bf16::product_gated_can(args))
        return bf16::product_gated(args, stream);
    if (f16::product_gated_can(args))
        return f16::product_gated(args, stream);
    if (bf16::product_split_can(args))
        return bf16::product_split(args, stream);
    if (f16::product_split_can(args))
        return f16::product_split(args, stream);
    cudaError_t result = cudaErrorNotSupported;
    if (product_lt_can(args))
        result = product_lt(args, stream);
    return result == cudaErrorNotSupported ? product_any(args, stream) : result;
}

cudaError_t op_product(const struct product_args *args, cudaStream_t stream)
{
    if (args->w.scale || args->w.scale_block || !product_fuses(args))
        return cudaErrorNotSupported;
    if (args->rows.max == 0 || args->w.n == 0)
        return cudaSuccess;
    return args->rows.max <= PRODUCT_SMALL_MAX ? few_rows(args, stream) : many_rows(args, stream);
}
