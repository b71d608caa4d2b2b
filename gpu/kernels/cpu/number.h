/* Numbers of the CPU bodies: 16-bit formats widened and rounded to nearest even, rows of them, and
 * the exponential. Plain IEEE arithmetic without contraction: the same bits on every machine. Any
 * thread.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "gpu/kernels/common/kernel.h"

static inline uint32_t float_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float bits_float(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline float bf16_widen(uint16_t half)
{
    return bits_float((uint32_t)half << 16);
}

static inline uint16_t bf16_round(float value)
{
    uint32_t bits = float_bits(value);
    uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    uint32_t quiet = (bits >> 16) | 0x40u;
    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

/* The exponent is moved by one exact multiplication, which makes subnormals right too. */
static inline float f16_widen(uint16_t half)
{
    uint32_t magnitude = half & 0x7fffu;
    uint32_t bits = float_bits(bits_float(magnitude << 13) * 0x1p112f);
    bits |= magnitude >= 0x7c00u ? 0x7f800000u : 0u;
    return bits_float(bits | (uint32_t)(half & 0x8000u) << 16);
}

/* What is too great becomes infinity. */
static inline uint16_t f16_round(float value)
{
    uint32_t bits = float_bits(value), sign = (bits >> 16) & 0x8000u;
    uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u);
    if (magnitude >= 0x477ff000u) /* would round to 2^16 or more */
        return (uint16_t)(sign | 0x7c00u);
    if (magnitude < 0x38800000u) { /* below 2^-14: the addition rounds to multiples of 2^-24 */
        float sum = bits_float(magnitude) + 0.5f;
        return (uint16_t)(sign | (float_bits(sum) - 0x3f000000u));
    }
    uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
    return (uint16_t)(sign | ((rounded - 0x38000000u) >> 13));
}

/* The exponent is moved by one exact multiplication, as above; 0x7f and 0xff are NaN. */
static inline float e4m3_widen(uint8_t byte)
{
    uint32_t magnitude = byte & 0x7fu;
    uint32_t bits = float_bits(bits_float(magnitude << 20) * 0x1p120f);
    bits |= magnitude == 0x7fu ? 0x7fc00000u : 0u;
    return bits_float(bits | (uint32_t)(byte & 0x80u) << 24);
}

/* Of the low half of a byte. */
static inline float e2m1_widen(uint8_t half)
{
    static const float values[16] = {0,     0.5f,  1,  1.5f,  2,  3,  4,  6,
                                     -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};
    return values[half & 15];
}

/* A power of two, exact down to 2^-127; 255 is no number. */
static inline float e8m0_widen(uint8_t byte)
{
    return byte == 255 ? bits_float(0x7fc00000u)
                       : bits_float(byte ? (uint32_t)byte << 23 : 0x00400000u);
}

/* What is too great becomes 448, infinity as well; NaN stays. */
static inline uint8_t e4m3_round(float value)
{
    uint32_t bits = float_bits(value), sign = (bits >> 24) & 0x80u;
    uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u)
        return (uint8_t)(sign | 0x7fu);
    if (magnitude >= 0x43e00000u)
        return (uint8_t)(sign | 0x7eu);
    if (magnitude < 0x3c800000u) { /* below 2^-6: the addition rounds to multiples of 2^-9 */
        float sum = bits_float(magnitude) + 0x1p14f;
        return (uint8_t)(sign | (float_bits(sum) - 0x46800000u));
    }
    uint32_t rounded = magnitude + 0x7ffffu + ((magnitude >> 20) & 1u);
    return (uint8_t)(sign | ((rounded - 0x3c000000u) >> 20));
}

static inline void *number_at(const void *base, enum dtype dtype, size_t index)
{
    return (char *)(uintptr_t)base + index * dtype_bytes(dtype);
}

static inline void number_widen(float *to, const void *from, enum dtype dtype, size_t count)
{
    const uint16_t *half = (const uint16_t *)from;
    if (dtype == DTYPE_F32)
        memcpy(to, from, count * sizeof *to);
    else if (dtype == DTYPE_BF16)
        for (size_t i = 0; i < count; i++)
            to[i] = bf16_widen(half[i]);
    else
        for (size_t i = 0; i < count; i++)
            to[i] = f16_widen(half[i]);
}

static inline void number_round(void *to, const float *from, enum dtype dtype, size_t count)
{
    uint16_t *half = (uint16_t *)to;
    if (dtype == DTYPE_F32)
        memcpy(to, from, count * sizeof *from);
    else if (dtype == DTYPE_BF16)
        for (size_t i = 0; i < count; i++)
            half[i] = bf16_round(from[i]);
    else
        for (size_t i = 0; i < count; i++)
            half[i] = f16_round(from[i]);
}
