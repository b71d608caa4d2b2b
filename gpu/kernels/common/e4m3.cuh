/* Numbers of 8 bits (e4m3), and how inputs are rounded to them: the formula of
 * matmul_dequantized_cpu.c, to the bit, wherever a CUDA body rounds. */
#pragma once

#include <cuda_fp8.h>

#include "gpu/kernels/common/device.cuh"

#define E4M3_MAX 448.0f

/* Two numbers as F16, which holds all of them exactly; the first in the low half. */
__device__ __forceinline__ uint32_t e4m3_widen2(uint32_t two)
{
    __half2_raw pair =
        __nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(two), __NV_E4M3);
    return pair.x | static_cast<uint32_t>(pair.y) << 16;
}

__device__ __forceinline__ float e4m3_value(uint8_t byte)
{
    return __half2float(__half(__nv_cvt_fp8_to_halfraw(byte, __NV_E4M3)));
}

/* What is above 448, infinity as well, becomes 448; NaN stays. The first in the low byte. */
__device__ __forceinline__ uint32_t e4m3_round2(float low, float high)
{
    return __nv_cvt_float2_to_fp8x2(make_float2(low, high), __NV_SATFINITE, __NV_E4M3);
}

/* The scale of what has this greatest magnitude. */
__device__ __forceinline__ float e4m3_scale(float greatest)
{
    return greatest > 0 ? __fdiv_rn(greatest, E4M3_MAX) : 1.0f;
}

/* The same of a row, where a scale may have a bound above 0; what is infinite stays so. */
__device__ __forceinline__ float e4m3_scale_to(float greatest, float most)
{
    float scale = e4m3_scale(greatest);
    return most > 0 && scale > most && isfinite(scale) ? most : scale;
}

/* The greatest magnitude; NaN is none. */
template <int COUNT> __device__ __forceinline__ float e4m3_greatest(const float (&v)[COUNT])
{
    float greatest = 0;
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        greatest = fmaxf(greatest, fabsf(v[i]));
    return greatest;
}

__device__ __forceinline__ float warp_greatest(float value)
{
#pragma unroll
    for (int offset = WARP / 2; offset; offset /= 2)
        value = fmaxf(value, __shfl_xor_sync(FULL_MASK, value, offset));
    return value;
}

/* value / scale, rounded as a division is, by two steps from the reciprocal; where the scale is so
 * small or so great that a step could leave the range, by the division itself. What is far above
 * 448 need not be exact, and its steps could give NaN. */
struct e4m3_divisor {
    float scale, reciprocal;
    bool plain;
};

__device__ __forceinline__ e4m3_divisor e4m3_divide_by(float scale)
{
    return {scale, __frcp_rn(scale), scale > 0x1p-100f && scale < 0x1p100f};
}

__device__ __forceinline__ float e4m3_quotient_plain(float value, const e4m3_divisor &by)
{
    float first = __fmul_rn(value, by.reciprocal), q = first;
    q = __fmaf_rn(__fmaf_rn(-q, by.scale, value), by.reciprocal, q);
    q = __fmaf_rn(__fmaf_rn(-q, by.scale, value), by.reciprocal, q);
    return fabsf(first) < 0x1p20f ? q : first;
}

__device__ __forceinline__ float e4m3_quotient(float value, const e4m3_divisor &by)
{
    return by.plain ? e4m3_quotient_plain(value, by) : __fdiv_rn(value, by.scale);
}

/* By divisions: apart, since their code is long and hardly ever run. */
static __device__ __noinline__ uint32_t e4m3_divide4(float a, float b, float c, float d, float by)
{
    return e4m3_round2(__fdiv_rn(a, by), __fdiv_rn(b, by)) |
           e4m3_round2(__fdiv_rn(c, by), __fdiv_rn(d, by)) << 16;
}

/* Four numbers of a row, rounded, in order. */
__device__ __forceinline__ uint32_t e4m3_round4(const float *v, const e4m3_divisor &by)
{
    if (!by.plain)
        return e4m3_divide4(v[0], v[1], v[2], v[3], by.scale);
    return e4m3_round2(e4m3_quotient_plain(v[0], by), e4m3_quotient_plain(v[1], by)) |
           e4m3_round2(e4m3_quotient_plain(v[2], by), e4m3_quotient_plain(v[3], by)) << 16;
}

__device__ __forceinline__ uint2 e4m3_round8(const float (&v)[8], const e4m3_divisor &by)
{
    return make_uint2(e4m3_round4(v, by), e4m3_round4(v + 4, by));
}

__device__ __forceinline__ uint4 e4m3_round16(const float (&v)[16], const e4m3_divisor &by)
{
    return make_uint4(e4m3_round4(v, by), e4m3_round4(v + 4, by), e4m3_round4(v + 8, by),
                      e4m3_round4(v + 12, by));
}

/* The scale of an element of w. */
__device__ __forceinline__ float weight_scale(const struct weight &w, uint32_t n, uint32_t k)
{
    const float *scales = static_cast<const float *>(w.scales.data);
    if (!scales)
        return 1;
    uint32_t columns = w.scales.k ? (w.k + w.scales.k - 1) / w.scales.k : 1;
    uint32_t row = w.scales.n ? n / w.scales.n : 0, column = w.scales.k ? k / w.scales.k : 0;
    return scales[(size_t)row * columns + column];
}
