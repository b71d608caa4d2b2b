/* The arithmetic of op_rope for eight pairs of a head, so that bits are the same wherever it is
 * done. `low` are elements i .. i + 7 of a head of DTYPE_HALF or BF16, `high` those half a head
 * behind. */
#pragma once

#include "gpu/kernels/common/device.cuh"

struct rope_pairs {
    float2 low[4], high[4];
};

/* Cosine and sine of a pair, times the attention factor; of one that is not turned, 1 and 0. */
__device__ __forceinline__ float2 rope_angle(uint32_t position, float inverse_frequency,
                                             float attention)
{
    float sine, cosine;
    if (inverse_frequency == 0)
        attention = 1;
    sincosf((float)position * inverse_frequency, &sine, &cosine);
    return make_float2(cosine * attention, sine * attention);
}

__device__ __forceinline__ rope_pairs rope_unpack(const uint4 &low, const uint4 &high,
                                                  enum dtype dtype)
{
    const uint32_t words[2][4] = {{low.x, low.y, low.z, low.w}, {high.x, high.y, high.z, high.w}};
    rope_pairs out;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        out.low[j] = unpack(words[0][j], dtype);
        out.high[j] = unpack(words[1][j], dtype);
    }
    return out;
}

/* The squares' sum, of which a head's is a tree over its neighbours: 1 apart, 2, ... */
__device__ __forceinline__ float rope_squares(const rope_pairs &x)
{
    float squares = 0;
#pragma unroll
    for (int j = 0; j < 4; j++)
        squares = __fmaf_rn(x.low[j].y, x.low[j].y, __fmaf_rn(x.low[j].x, x.low[j].x, squares));
#pragma unroll
    for (int j = 0; j < 4; j++)
        squares = __fmaf_rn(x.high[j].y, x.high[j].y, __fmaf_rn(x.high[j].x, x.high[j].x, squares));
    return squares;
}

__device__ __forceinline__ float rope_scale(float squares, uint32_t head_dim, float eps)
{
    return rsqrtf(squares / (float)head_dim + eps);
}

/* `low` and `high`: the norm's weights of what x has. */
__device__ __forceinline__ void rope_norm(rope_pairs &x, float scale, const float8 &low,
                                          const float8 &high, float offset)
{
#pragma unroll
    for (int j = 0; j < 4; j++) {
        x.low[j].x *= scale * (low.v[2 * j] + offset);
        x.low[j].y *= scale * (low.v[2 * j + 1] + offset);
        x.high[j].x *= scale * (high.v[2 * j] + offset);
        x.high[j].y *= scale * (high.v[2 * j + 1] + offset);
    }
}

/* What has overflowed is stored as NaN: by an infinite key a score could be -infinity, and the key
 * would be left out as if it did not matter. */
__device__ __forceinline__ float unless_infinite(float value, enum dtype dtype)
{
    float stored = round_value(value, dtype);
    return stored + (stored - stored);
}

__device__ __forceinline__ uint32_t unless_infinite_pair(uint32_t word, enum dtype dtype)
{
    if (dtype == DTYPE_BF16) /* has float32's range */
        return word;
    __half2 pair = *reinterpret_cast<__half2 *>(&word);
    pair = __hadd2(pair, __hsub2(pair, pair));
    return *reinterpret_cast<uint32_t *>(&pair);
}

/* angles[j]: cos and sin of two pairs. */
__device__ __forceinline__ void rope_turn(const rope_pairs &x, const float4 (&angles)[4],
                                          uint4 &low, uint4 &high, enum dtype dtype)
{
    uint32_t words[2][4];
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const float4 &angle = angles[j];
        float2 a = x.low[j], b = x.high[j];
        words[0][j] = pack(__fmaf_rn(a.x, angle.x, -__fmul_rn(b.x, angle.y)),
                           __fmaf_rn(a.y, angle.z, -__fmul_rn(b.y, angle.w)), dtype);
        words[1][j] = pack(__fmaf_rn(b.x, angle.x, __fmul_rn(a.x, angle.y)),
                           __fmaf_rn(b.y, angle.z, __fmul_rn(a.y, angle.w)), dtype);
        words[0][j] = unless_infinite_pair(words[0][j], dtype);
        words[1][j] = unless_infinite_pair(words[1][j], dtype);
    }
    low = make_uint4(words[0][0], words[0][1], words[0][2], words[0][3]);
    high = make_uint4(words[1][0], words[1][1], words[1][2], words[1][3]);
}

/* As rope_turn, before anything is rounded. */
__device__ __forceinline__ rope_pairs rope_turned(const rope_pairs &x, const float4 (&angles)[4])
{
    rope_pairs out;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const float4 &angle = angles[j];
        float2 a = x.low[j], b = x.high[j];
        out.low[j] = make_float2(__fmaf_rn(a.x, angle.x, -__fmul_rn(b.x, angle.y)),
                                 __fmaf_rn(a.y, angle.z, -__fmul_rn(b.y, angle.w)));
        out.high[j] = make_float2(__fmaf_rn(b.x, angle.x, __fmul_rn(a.x, angle.y)),
                                  __fmaf_rn(b.y, angle.z, __fmul_rn(a.y, angle.w)));
    }
    return out;
}

/* Of all magnitudes, by bits. */
__device__ __forceinline__ uint32_t rope_greatest(const rope_pairs &x)
{
    uint32_t greatest = 0;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const float values[4] = {x.low[j].x, x.low[j].y, x.high[j].x, x.high[j].y};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            uint32_t magnitude = __float_as_uint(values[i]) & 0x7fffffffu;
            greatest = magnitude > greatest ? magnitude : greatest;
        }
    }
    return greatest;
}
