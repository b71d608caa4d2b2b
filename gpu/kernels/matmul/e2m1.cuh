/* Numbers of 4 bits (e2m1) and scales that are powers of two (e8m0), as OCP's MX formats have them.
 */
#pragma once

#include <cuda_fp16.h>

#include "gpu/kernels/common/device.cuh"

/* The high bytes of four numbers as F16, which holds all of them exactly in these: of the low half
 * of the word, the first in the low byte. Magnitudes are looked up, signs put beside them. */
__device__ __forceinline__ uint32_t e2m1_widen4(uint32_t four)
{
    uint32_t magnitudes = __byte_perm(0x3e3c3800, 0x46444240, four & 0x7777);
    uint32_t signs =
        __byte_perm(four, four << 4, 0x1504); /* of a nibble the topmost bit of a byte */
    return magnitudes | (signs & 0x80808080);
}

/* Numbers 2 i and 2 i + 1 of a word as F16, the first in the low half. */
__device__ __forceinline__ uint32_t e2m1_pair(uint32_t word, int i)
{
    return __byte_perm(e2m1_widen4(word >> i / 2 * 16), 0, i % 2 ? 0x3424 : 0x1404);
}

/* Of the low half of a byte. */
__device__ __forceinline__ float e2m1_value(uint32_t half)
{
    return __half2float(__ushort_as_half(static_cast<uint16_t>(e2m1_pair(half, 0))));
}

/* 2^-127 is less than what has a leading 1; 255 is no number, and refused while weights load. */
__device__ __forceinline__ float e8m0_value(uint8_t byte)
{
    return __uint_as_float(byte ? static_cast<uint32_t>(byte) << 23 : 0x00400000u);
}
