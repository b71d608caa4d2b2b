/* The bodies of op_product; each says for what it can be used. */
#pragma once

#include "gpu/kernels/device.cuh"
#include "gpu/kernels/product.h"

/* Of the namespace's dtype on sm_90: up to PRODUCT_SMALL_MAX rows; gate and up of more, up to
 * PRODUCT_GATED_MAX; 193 to 256 rows that are added to the residual, where the device suits. */
#define PRODUCT_OF_NARROW                                                                          \
    bool product_small_can(const struct product_args *args);                                       \
    cudaError_t product_small(const struct product_args *args, cudaStream_t stream);               \
    bool product_gated_can(const struct product_args *args);                                       \
    cudaError_t product_gated(const struct product_args *args, cudaStream_t stream);               \
    bool product_split_can(const struct product_args *args);                                       \
    cudaError_t product_split(const struct product_args *args, cudaStream_t stream);
namespace bf16
{
PRODUCT_OF_NARROW
}
namespace f16
{
PRODUCT_OF_NARROW
}

/* Any number of rows by cuBLASLt. cudaErrorNotSupported: it has no way for this shape. */
bool product_lt_can(const struct product_args *args);
cudaError_t product_lt(const struct product_args *args, cudaStream_t stream);

/* Any shape and dtype, slowly. */
cudaError_t product_any(const struct product_args *args, cudaStream_t stream);
