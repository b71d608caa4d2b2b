/* Keys and values in e4m3, as the CUDA bodies write and read them; struct kv_layer says what is
 * kept.
 */
#pragma once

#include "gpu/kernels/common/batch.h"
#include "gpu/kernels/common/e4m3.cuh"

/* One position of one KV head; up to the end of its piece the next ones follow. */
struct eight_place {
    uint8_t *elements;
    float *scale;
};

/* `head`: where the head's positions begin in their block. */
__device__ __forceinline__ eight_place eight_place_in(char *head, uint32_t inside,
                                                      uint32_t head_dim)
{
    char *piece = head + (size_t)(inside / KV_PIECE) * KV_PIECE * (head_dim + sizeof(float));
    eight_place out;
    out.elements = reinterpret_cast<uint8_t *>(piece) + inside % KV_PIECE * head_dim;
    out.scale = reinterpret_cast<float *>(piece + KV_PIECE * head_dim) + inside % KV_PIECE;
    return out;
}

/* By bits, so that what is no number is above all. */
__device__ __forceinline__ uint32_t eight_magnitude(float value)
{
    return __float_as_uint(value) & 0x7fffffffu;
}

__device__ __forceinline__ uint32_t eight_greater(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* What a head whose greatest magnitude that is is divided by. */
__device__ __forceinline__ float eight_scale(uint32_t greatest, enum dtype dtype, float said)
{
    if (greatest >= KV_MAGNITUDE_END(dtype))
        return __uint_as_float(0x7fc00000u);
    if (said != 0)
        return said;
    float scale = __fdiv_rn(__uint_as_float(greatest), 448.0f);
    return greatest == 0 ? 1.0f : fmaxf(scale, KV_SCALE_MIN);
}

/* By which a head's elements are divided, as a division is rounded but without one, whose code is
 * long (e4m3_quotient_plain): what is very small or very great is brought to the middle before. */
struct eight_divisor {
    e4m3_divisor by;
    float factor; /* of what is divided: a power of two */
};

__device__ __forceinline__ eight_divisor eight_divide_by(float scale)
{
    float factor = scale < 0x1p-60f ? 0x1p64f : scale > 0x1p60f ? 0x1p-64f : 1.0f;
    return {e4m3_divide_by(scale * factor), factor};
}

__device__ __forceinline__ float eight_quotient(float value, const eight_divisor &of)
{
    return e4m3_quotient_plain(value * of.factor, of.by);
}

__device__ __forceinline__ uint8_t eight_of(float value, const eight_divisor &by)
{
    return __nv_cvt_float_to_fp8(eight_quotient(value, by), __NV_SATFINITE, __NV_E4M3);
}

/* Four of them, the first in the lowest byte. */
__device__ __forceinline__ uint32_t eight_pack(const float2 &low, const float2 &high,
                                               const eight_divisor &by)
{
    return e4m3_round2(eight_quotient(low.x, by), eight_quotient(low.y, by)) |
           e4m3_round2(eight_quotient(high.x, by), eight_quotient(high.y, by)) << 16;
}

__device__ __forceinline__ float eight_value(uint8_t element)
{
    return __half2float(__half(__nv_cvt_fp8_to_halfraw(element, __NV_E4M3)));
}

/* Two elements of a word, the lower or the upper ones, as two numbers in half precision, which
 * holds them all. */
__device__ __forceinline__ uint32_t eight_halves(uint32_t word, int upper)
{
    __half2_raw pair = __nv_cvt_fp8x2_to_halfraw2(
        static_cast<__nv_fp8x2_storage_t>(upper ? word >> 16 : word), __NV_E4M3);
    return pair.x | static_cast<uint32_t>(pair.y) << 16;
}
