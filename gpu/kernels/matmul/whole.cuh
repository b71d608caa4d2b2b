/* Weights in whole numbers on CUDA: how they become 16-bit numbers, and the bodies of op_matmul for
 * them. A number less its zero is exact in 16 bits; the tensor cores sum its products in float32,
 * and a group's sum is multiplied by its scale: weights are rounded nowhere, except where their
 * products are left to cuBLASLt (matmul_whole_copied). */
#pragma once

#include "gpu/kernels/common/half.cuh"
#include "gpu/kernels/common/whole.h"
#include "gpu/kernels/matmul/matmul.cuh"

/* What matmul_scratch_bytes() says of such weights. */
size_t whole_scratch_bytes(const struct weight *w, uint32_t rows);

/* Of any shape, slowly; and by a copy in 16 bits in scratch and a product of that. */
bool matmul_whole_any_can(const struct matmul_args *args);
cudaError_t matmul_whole_any(const struct matmul_args *args, cudaStream_t stream);
bool matmul_whole_copied_can(const struct matmul_args *args);
cudaError_t matmul_whole_copied(const struct matmul_args *args, cudaStream_t stream);
/* x in the weight's order of columns, in scratch, and the product of that. */
bool matmul_whole_ordered_can(const struct matmul_args *args);
cudaError_t matmul_whole_ordered(const struct matmul_args *args, cudaStream_t stream);

/* Scales as fast kernels read them: of a row or of all, in groups of whole blocks of columns. */
static inline bool whole_regular(const struct weight *w)
{
    return whole_is(w->format) && whole_repacked(w) && w->k > 0 && !w->order &&
           w->input.rounding == ROUNDING_NONE && w->scales.data && w->scales.dtype == DTYPE_F32 &&
           w->scales.n <= 1 && w->scales.k % WHOLE_BLOCK == 0 &&
           reinterpret_cast<uintptr_t>(w->data) % 16 == 0 &&
           reinterpret_cast<uintptr_t>(w->zeros) % 4 == 0;
}

/* Groups of a row. */
WHOLE_RULE uint32_t whole_columns(const struct weight &w)
{
    return w.scales.k ? (w.k + w.scales.k - 1) / w.scales.k : 1;
}

WHOLE_RULE uint32_t whole_bytes(enum format format, uint32_t k)
{
    return format == FORMAT_U4 ? k / 2 : k;
}

/* As a number, by the bits of one of 2^23 and more. */
__device__ __forceinline__ float whole_number(uint32_t number)
{
    return __uint_as_float(0x4b000000u | number) - 8388608.0f;
}

#define MATMUL_WHOLE_OF_HALF                                                                       \
    bool gemv_whole_can(const struct matmul_args *args);                                           \
    cudaError_t gemv_whole(const struct matmul_args *args, cudaStream_t stream);                   \
    bool matmul_whole_can(const struct matmul_args *args);                                         \
    cudaError_t matmul_whole(const struct matmul_args *args, cudaStream_t stream);
namespace bf16
{
MATMUL_WHOLE_OF_HALF
}
namespace f16
{
MATMUL_WHOLE_OF_HALF
}
