/* Numbers of 4 bits (e2m1) and scales that are powers of two (e8m0), as OCP's MX formats have them.
 */
#pragma once

#include <cuda_fp16.h>

#include "gpu/kernels/common/device.cuh"

/* The two numbers of a byte as F16, which holds all of them exactly; the first in the low half.
 * Exponent and fraction stand where those of F16 do, 14 too low: a multiplication puts that right,
 * of what has no leading 1, too. */
__device__ __forceinline__ uint32_t e2m1_widen2(uint32_t two)
{
    uint32_t magnitude = (two & 0x07) << 9 | (two & 0x70) << 21;
    uint32_t sign = (two & 0x08) << 12 | (two & 0x80) << 24;
    __half2 placed;
    *reinterpret_cast<uint32_t *>(&placed) = magnitude | sign;
    __half2 value = __hmul2(placed, __float2half2_rn(16384.0f));
    return *reinterpret_cast<uint32_t *>(&value);
}

/* Of the low half of a byte. */
__device__ __forceinline__ float e2m1_value(uint32_t half)
{
    return __half2float(__ushort_as_half(static_cast<uint16_t>(e2m1_widen2(half & 15))));
}

/* 2^-127 is less than what has a leading 1; 255 is no number, and refused while weights load. */
__device__ __forceinline__ float e8m0_value(uint8_t byte)
{
    return __uint_as_float(byte ? static_cast<uint32_t>(byte) << 23 : 0x00400000u);
}
