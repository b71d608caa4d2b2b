/* Which way a product goes: by the table of what there is, the fastest first. */
#include "gpu/kernels/product.cuh"

static bool any_can(const struct product_args *args)
{
    return !args->gated && !args->hands.weight && !args->owed.squares &&
           (!args->adds || args->y_dtype == DTYPE_F32);
}

static bool lt_can(const struct product_args *args)
{
    return args->rows.max > PRODUCT_SMALL_MAX && any_can(args) && product_lt_can(args);
}

#define BF16 PRODUCT_READS(FORMAT_BF16)
#define F16 PRODUCT_READS(FORMAT_F16)
#define F32 PRODUCT_READS(FORMAT_F32)

static const struct product_backend backends[] = {
    {"small bf16", BF16, false, bf16::product_small_can, bf16::product_small},
    {"small f16", F16, false, f16::product_small_can, f16::product_small},
    {"gated bf16", BF16, false, bf16::product_gated_can, bf16::product_gated},
    {"gated f16", F16, false, f16::product_gated_can, f16::product_gated},
    {"split bf16", BF16, false, bf16::product_split_can, bf16::product_split},
    {"split f16", F16, false, f16::product_split_can, f16::product_split},
    {"cublaslt", BF16 | F16 | F32, false, lt_can, product_lt},
    {"any", BF16 | F16 | F32, false, any_can, product_any},
};

#define BACKENDS (sizeof backends / sizeof backends[0])

bool product_fuses(const struct product_args *args)
{
    for (size_t i = 0; i < BACKENDS; i++) {
        if (product_backend_can(&backends[i], args))
            return true;
    }
    return false;
}

cudaError_t op_product(const struct product_args *args, cudaStream_t stream)
{
    for (size_t i = 0; i < BACKENDS; i++) {
        if (!product_backend_can(&backends[i], args))
            continue;
        if (args->rows.max == 0 || args->w.n == 0)
            return cudaSuccess;
        cudaError_t result = backends[i].run(args, stream);
        if (result != cudaErrorNotSupported)
            return result;
    }
    return cudaErrorNotSupported;
}
