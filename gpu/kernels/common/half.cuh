/* The 16-bit dtype of the kernels that know only one: the tuned ones. What includes this is
 * compiled twice, with HALF_BF16 and with HALF_F16 defined, and stands in a namespace of the
 * dtype's name; op_attention and op_matmul choose by the dtype of their arguments. */
#pragma once

#include "gpu/kernels/common/device.cuh"

#ifdef HALF_BF16
#define HALF bf16
#define HALF_PTX "bf16" /* in the names of instructions */
#define DTYPE_HALF DTYPE_BF16
#define FORMAT_NARROW FORMAT_BF16
typedef __nv_bfloat16 half_t;
#else
#define HALF f16
#define HALF_PTX "f16"
#define DTYPE_HALF DTYPE_F16
#define FORMAT_NARROW FORMAT_F16
typedef __half half_t;
#endif

__device__ __forceinline__ half_t half_of(float value)
{
#ifdef HALF_BF16
    return __float2bfloat16_rn(value);
#else
    return __float2half_rn(value);
#endif
}
