/* The 16-bit dtype of the kernels that know only one: the tuned ones. What includes this is
 * compiled twice, with HALF_BF16 and with HALF_F16 defined; op_attention and op_matmul choose by
 * the dtype of their arguments. All that depends on the dtype stands in a namespace of its name,
 * helpers in headers too: the linker takes two functions of one name for one. So half_t and the
 * constants can be named there only. */
#pragma once

#include "gpu/kernels/common/device.cuh"

#ifdef HALF_BF16
#define HALF bf16
#define HALF_PTX "bf16" /* in the names of instructions */
#else
#define HALF f16
#define HALF_PTX "f16"
#endif

namespace HALF
{

#ifdef HALF_BF16
typedef __nv_bfloat16 half_t;
constexpr enum dtype DTYPE_HALF = DTYPE_BF16;
constexpr enum format FORMAT_HALF = FORMAT_BF16;
#else
typedef __half half_t;
constexpr enum dtype DTYPE_HALF = DTYPE_F16;
constexpr enum format FORMAT_HALF = FORMAT_F16;
#endif

__device__ __forceinline__ half_t half_of(float value)
{
#ifdef HALF_BF16
    return __float2bfloat16_rn(value);
#else
    return __float2half_rn(value);
#endif
}

} // namespace HALF
