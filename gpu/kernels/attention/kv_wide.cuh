/* Keys and values in e4m3 as numbers of 16 bits, scale and all: rounded once more. */
#pragma once

#include "gpu/kernels/attention/kv_eight.cuh"
#include "gpu/kernels/common/half.cuh"

namespace HALF
{

/* Four elements, the first in the lowest byte. */
__device__ __forceinline__ uint2 eight_widen_word(uint32_t word, float scale)
{
    uint32_t low = eight_halves(word, 0), high = eight_halves(word, 1);
    float2 a = unpack(low, DTYPE_F16), b = unpack(high, DTYPE_F16);
    return make_uint2(pack(a.x * scale, a.y * scale, DTYPE_HALF),
                      pack(b.x * scale, b.y * scale, DTYPE_HALF));
}

__device__ __forceinline__ uint4 eight_widen(const uint2 &words, float scale)
{
    uint2 a = eight_widen_word(words.x, scale), b = eight_widen_word(words.y, scale);
    return make_uint4(a.x, a.y, b.x, b.y);
}

} // namespace HALF
