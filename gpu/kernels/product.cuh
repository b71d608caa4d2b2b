/* The bodies of op_product; each says for what it can be used. */
#pragma once

#include "gpu/kernels/device.cuh"
#include "gpu/kernels/product.h"

/* Up to PRODUCT_SMALL_MAX rows of DTYPE_NARROW on sm_90, by bulk copies. */
bool product_small_can(const struct product_args *args);
cudaError_t product_small(const struct product_args *args, cudaStream_t stream);

/* Any number of rows by cuBLASLt. cudaErrorNotSupported: it has no way for this shape. */
bool product_lt_can(const struct product_args *args);
cudaError_t product_lt(const struct product_args *args, cudaStream_t stream);

/* Any shape and dtype, slowly. */
cudaError_t product_any(const struct product_args *args, cudaStream_t stream);
