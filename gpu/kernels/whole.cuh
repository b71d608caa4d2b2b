/* Eight values of a row at a time (device.cuh), where all rows are so many times eight and start at
 * such a multiple: the code for all else, which is long, is left out. And what a kernel that does
 * little but wait can have brought while it waits for the one before it. */
#pragma once

#include "gpu/kernels/device.cuh"

__device__ __forceinline__ eight load_whole(const void *base, size_t index, enum dtype dtype)
{
    if (dtype == DTYPE_F32) {
        const float4 *from =
            reinterpret_cast<const float4 *>(static_cast<const float *>(base) + index);
        float4 a = from[0], b = from[1];
        return {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
    }
    uint4 word = *reinterpret_cast<const uint4 *>(static_cast<const uint16_t *>(base) + index);
    float2 a = unpack(word.x, dtype), b = unpack(word.y, dtype);
    float2 c = unpack(word.z, dtype), d = unpack(word.w, dtype);
    return {{a.x, a.y, b.x, b.y, c.x, c.y, d.x, d.y}};
}

__device__ __forceinline__ void store_whole(void *base, size_t index, enum dtype dtype,
                                            const eight &value)
{
    const float(&v)[8] = value.v;
    if (dtype == DTYPE_F32) {
        float4 *to = reinterpret_cast<float4 *>(static_cast<float *>(base) + index);
        to[0] = make_float4(v[0], v[1], v[2], v[3]);
        to[1] = make_float4(v[4], v[5], v[6], v[7]);
    } else {
        *reinterpret_cast<uint4 *>(static_cast<uint16_t *>(base) + index) =
            make_uint4(pack(v[0], v[1], dtype), pack(v[2], v[3], dtype), pack(v[4], v[5], dtype),
                       pack(v[6], v[7], dtype));
    }
}

/* The line and its translation, which costs more where weights have gone by: nothing is read, so it
 * may still be written by the kernel before. */
__device__ __forceinline__ void bring(const void *place)
{
    asm volatile("prefetch.global.L2 [%0];" ::"l"(place));
}
