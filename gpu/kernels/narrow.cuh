/* DTYPE_NARROW for the kernels that know only it. */
#pragma once

#include <cuda_fp16.h>
#include <stdint.h>

#include "gpu/kernels/narrow.h"
#include "gpu/kernels/op.h"

typedef __half narrow;
#define NARROW_PTX "f16" /* in the names of instructions */
static_assert(DTYPE_NARROW == DTYPE_F16, "narrow is the type of DTYPE_NARROW");

/* To nearest even; what is too great becomes the greatest finite value, NaN stays. */
__device__ __forceinline__ __half f16_of(float value)
{
    uint16_t bits;
    asm("cvt.rn.satfinite.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return __ushort_as_half(bits);
}

__device__ __forceinline__ uint32_t f16_pair_of(float low, float high)
{
    uint32_t bits;
    asm("cvt.rn.satfinite.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
    return bits;
}

__device__ __forceinline__ narrow narrow_of(float value)
{
    return f16_of(value);
}

__device__ __forceinline__ float narrow_value(narrow value)
{
    return __half2float(value);
}
