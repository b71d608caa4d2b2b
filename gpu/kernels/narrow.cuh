/* The 16-bit dtype of the kernels that know only one: the tuned ones. What includes this is
 * compiled twice, with NARROW_BF16 and with NARROW_F16 defined, and stands in a namespace of the
 * dtype's name; op_attend and op_product choose by the dtype of their arguments. */
#pragma once

#include "gpu/kernels/device.cuh"

#ifdef NARROW_BF16
#define NARROW bf16
#define NARROW_PTX "bf16" /* in the names of instructions */
#define DTYPE_NARROW DTYPE_BF16
#define FORMAT_NARROW FORMAT_BF16
typedef __nv_bfloat16 narrow;
#else
#define NARROW f16
#define NARROW_PTX "f16"
#define DTYPE_NARROW DTYPE_F16
#define FORMAT_NARROW FORMAT_F16
typedef __half narrow;
#endif

__device__ __forceinline__ narrow narrow_of(float value)
{
#ifdef NARROW_BF16
    return __float2bfloat16_rn(value);
#else
    return __float2half_rn(value);
#endif
}
