/* The bodies of op_matmul; each says for what it can be used. */
#pragma once

#include "gpu/kernels/common/device.cuh"
#include "gpu/kernels/matmul/matmul.h"

/* Of the namespace's dtype on sm_90: up to GEMV_ROWS_MAX rows; gate and up of more, up to
 * MATMUL_GATED_MAX; anything of yet more. */
#define MATMUL_OF_HALF                                                                             \
    bool gemv_can(const struct matmul_args *args);                                                 \
    cudaError_t gemv(const struct matmul_args *args, cudaStream_t stream);                         \
    bool matmul_gated_can(const struct matmul_args *args);                                         \
    cudaError_t matmul_gated(const struct matmul_args *args, cudaStream_t stream);                 \
    bool matmul_tiles_can(const struct matmul_args *args);                                         \
    cudaError_t matmul_tiles(const struct matmul_args *args, cudaStream_t stream);
namespace bf16
{
MATMUL_OF_HALF
}
namespace f16
{
MATMUL_OF_HALF
}

/* Many rows by our own, of either dtype. */
bool tiles_can(const struct matmul_args *args);
cudaError_t tiles_run(const struct matmul_args *args, cudaStream_t stream);

/* Any number of rows by cuBLASLt, or by our own where the tuner found that faster.
 * cudaErrorNotSupported: it has no way for this shape. */
bool matmul_lt_can(const struct matmul_args *args);
cudaError_t matmul_lt(const struct matmul_args *args, cudaStream_t stream);

/* Any shape and dtype, slowly. */
cudaError_t matmul_any(const struct matmul_args *args, cudaStream_t stream);

/* Weights in e4m3: up to MATMUL_ROUNDS_MAX rows that are rounded on the way, on sm_90, and up to
 * GEMV_ROWS_MAX; more, whose inputs are rounded, by cuBLASLt;
 * more that are not, through 16 bits; any shape, slowly. */
bool gemv_rounded_can(const struct matmul_args *args);
cudaError_t gemv_rounded(const struct matmul_args *args, cudaStream_t stream);
bool gemv_e4m3_can(const struct matmul_args *args);
cudaError_t gemv_e4m3(const struct matmul_args *args, cudaStream_t stream);
bool matmul_scaled_can(const struct matmul_args *args);
cudaError_t matmul_scaled(const struct matmul_args *args, cudaStream_t stream);
bool matmul_widened_can(const struct matmul_args *args);
cudaError_t matmul_widened(const struct matmul_args *args, cudaStream_t stream);
bool matmul_any_e4m3_can(const struct matmul_args *args);
cudaError_t matmul_any_e4m3(const struct matmul_args *args, cudaStream_t stream);
