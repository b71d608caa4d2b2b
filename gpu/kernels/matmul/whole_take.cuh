/* Whole numbers of a repacked weight (gpu/kernels/common/whole.h) as pairs of 16-bit numbers, each
 * less its zero: exact, up to 255 and with zeros of u4 up to 127. A number is put into the last
 * bits of one so large that these are worth 1, and that is taken off with the zero. */
#pragma once

#include "gpu/kernels/common/half.cuh"
#include "gpu/kernels/common/whole.h"

namespace HALF
{

#ifdef HALF_BF16
constexpr uint32_t WHOLE_MAGIC = 0x4300; /* 128 */
#else
constexpr uint32_t WHOLE_MAGIC = 0x6400; /* 1024 */
#endif
constexpr uint32_t WHOLE_MAGIC_F32 = 0x4b000000; /* 2^23 */

/* bf16 has no number large enough for eight bits: they go by way of float32. */
template <enum format FORMAT> __device__ __forceinline__ constexpr bool whole_wide()
{
    return FORMAT == FORMAT_U8 && WHOLE_MAGIC == 0x4300;
}

/* What is taken off, as whole_pairs() wants it. */
template <enum format FORMAT> __device__ __forceinline__ uint32_t whole_zero(uint32_t zero)
{
    return whole_wide<FORMAT>() ? WHOLE_MAGIC_F32 + zero : (WHOLE_MAGIC + zero) * 0x10001u;
}

__device__ __forceinline__ uint32_t pair_less(uint32_t pair, uint32_t zero)
{
    uint32_t out;
    asm("sub.rn." HALF_PTX "x2 %0, %1, %2;" : "=r"(out) : "r"(pair), "r"(zero));
    return out;
}

/* (word & mask) | with, by one instruction: of two constants it has one in a register, where the
 * compiler would take two instructions. */
__device__ __forceinline__ uint32_t masked_with(uint32_t word, uint32_t mask, uint32_t with)
{
    uint32_t out;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(out) : "r"(word), "r"(mask), "r"(with));
    return out;
}

__device__ __forceinline__ uint32_t whole_widened(uint32_t word, uint32_t byte, uint32_t zero)
{
    float value = __uint_as_float(__byte_perm(word, WHOLE_MAGIC_F32, 0x7440 + byte));
    return __float_as_uint(value - __uint_as_float(zero));
}

/* Pair `j` of a word, 0 .. 3 of u4, 0 and 1 of u8. */
template <enum format FORMAT>
__device__ __forceinline__ uint32_t whole_pair(uint32_t word, int j, uint32_t zero)
{
    if constexpr (FORMAT == FORMAT_U4)
        return pair_less(masked_with(word >> 4 * j, 0x000f000f, WHOLE_MAGIC * 0x10001u), zero);
    else if constexpr (whole_wide<FORMAT>())
        return __byte_perm(whole_widened(word, 2 * j, zero), whole_widened(word, 2 * j + 1, zero),
                           0x7632);
    else
        return pair_less(__byte_perm(word, WHOLE_MAGIC >> 8, j ? 0x4342 : 0x4140), zero);
}

} // namespace HALF
