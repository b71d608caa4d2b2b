/* What the CUDA bodies share: launching with the programmatic attribute, values of any dtype, sums
 * over warps and blocks.
 *
 * dtypes are arguments, not template parameters: the branch on them is the same for all threads and
 * hides behind the load, and one kernel serves every combination. */
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdint.h>

#include "gpu/kernels/common/kernel.h"

#define WARP 32
#define FULL_MASK 0xffffffffu

/* The kernel before may still run: nothing it wrote is read, nor anything written, before this. */
__device__ __forceinline__ void grid_wait()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* The kernel behind may start now, as far as there is room: it waits for our end by itself.
 *
 * Attention, adapters and the sampler read ahead of their wait what was there before the kernel
 * before them started: a step's tables, older keys and values. So what may stand in front of these,
 * a product or a rope, triggers behind its own wait; then all before it has ended. Of kernels that
 * trigger first several may run at once, back to the one that makes the tables. */
__device__ __forceinline__ void grid_trigger()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* While a kernel waits: the line and its translation, which costs more where weights have gone by.
 * Nothing is read, so the kernel before may still write it. */
__device__ __forceinline__ void prefetch_l2(const void *place)
{
    asm volatile("prefetch.global.L2 [%0];" ::"l"(place));
}

template <class... Params, class... Args>
cudaError_t launch(void (*kernel)(Params...), dim3 grid, unsigned threads, size_t shared,
                   cudaStream_t stream, Args... args)
{
    if (grid.x == 0 || grid.y == 0 || grid.z == 0)
        return cudaSuccess;
    cudaLaunchAttribute attribute;
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = dim3(threads);
    config.dynamicSmemBytes = shared;
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = 1;
    return cudaLaunchKernelEx(&config, kernel, Params(args)...);
}

/* Rows of this launch that exist. */
__device__ __forceinline__ uint32_t range_rows(const struct row_range &range)
{
    uint32_t count = *range.count;
    if (count <= range.first)
        return 0;
    count -= range.first;
    return count < range.max ? count : range.max;
}

/* Of a plain format. */
__device__ __forceinline__ enum dtype dtype_of(enum format plain)
{
    return static_cast<enum dtype>(plain);
}

__device__ __forceinline__ float load_value(const void *base, size_t index, enum dtype dtype)
{
    if (dtype == DTYPE_BF16)
        return __bfloat162float(static_cast<const __nv_bfloat16 *>(base)[index]);
    if (dtype == DTYPE_F32)
        return static_cast<const float *>(base)[index];
    return __half2float(static_cast<const __half *>(base)[index]);
}

__device__ __forceinline__ void store_value(void *base, size_t index, enum dtype dtype, float value)
{
    if (dtype == DTYPE_BF16)
        static_cast<__nv_bfloat16 *>(base)[index] = __float2bfloat16_rn(value);
    else if (dtype == DTYPE_F32)
        static_cast<float *>(base)[index] = value;
    else
        static_cast<__half *>(base)[index] = __float2half_rn(value);
}

/* The value as it is after being stored and loaded again. */
__device__ __forceinline__ float round_value(float value, enum dtype dtype)
{
    if (dtype == DTYPE_BF16)
        return __bfloat162float(__float2bfloat16_rn(value));
    if (dtype == DTYPE_F32)
        return value;
    return __half2float(__float2half_rn(value));
}

/* Eight values of a row at a time: 16 bytes of the small dtypes. */
struct float8 {
    float v[8];
};

__device__ __forceinline__ float2 unpack(uint32_t word, enum dtype dtype)
{
    if (dtype == DTYPE_BF16)
        return make_float2(__uint_as_float(word << 16), __uint_as_float(word & 0xffff0000u));
    return __half22float2(*reinterpret_cast<const __half2 *>(&word));
}

__device__ __forceinline__ uint32_t pack(float low, float high, enum dtype dtype)
{
    if (dtype == DTYPE_BF16) {
        __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
        return *reinterpret_cast<uint32_t *>(&pair);
    }
    __half2 pair = __floats2half2_rn(low, high);
    return *reinterpret_cast<uint32_t *>(&pair);
}

/* Values index .. index + 7 of the buffer, those at and past `end` as 0. Fast where `index` is a
 * multiple of 8 elements from an aligned base. */
__device__ __forceinline__ float8 load_float8(const void *base, size_t index, size_t end,
                                            enum dtype dtype)
{
    float8 out;
    if (index + 8 <= end && (index & 7) == 0) {
        if (dtype == DTYPE_F32) {
            const float4 *from =
                reinterpret_cast<const float4 *>(static_cast<const float *>(base) + index);
            float4 a = from[0], b = from[1];
            out = {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
        } else {
            uint4 word =
                *reinterpret_cast<const uint4 *>(static_cast<const uint16_t *>(base) + index);
            float2 a = unpack(word.x, dtype), b = unpack(word.y, dtype);
            float2 c = unpack(word.z, dtype), d = unpack(word.w, dtype);
            out = {{a.x, a.y, b.x, b.y, c.x, c.y, d.x, d.y}};
        }
        return out;
    }
#pragma unroll
    for (int i = 0; i < 8; i++)
        out.v[i] = index + i < end ? load_value(base, index + i, dtype) : 0.0f;
    return out;
}

/* Where all rows are so many times eight and start at such a multiple of an aligned base: without
 * the code for all else, which is long. */
__device__ __forceinline__ float8 load_whole(const void *base, size_t index, enum dtype dtype)
{
    __builtin_assume(index % 8 == 0);
    __builtin_assume(index <= SIZE_MAX - 8);
    return load_float8(base, index, SIZE_MAX, dtype);
}

__device__ __forceinline__ void store_whole(void *base, size_t index, enum dtype dtype,
                                            const float8 &value)
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

__device__ __forceinline__ void store_float8(void *base, size_t index, size_t end, enum dtype dtype,
                                            const float8 &value)
{
    if (index + 8 <= end && (index & 7) == 0) {
        store_whole(base, index, dtype, value);
        return;
    }
#pragma unroll
    for (int i = 0; i < 8; i++)
        if (index + i < end)
            store_value(base, index + i, dtype, value.v[i]);
}

__device__ __forceinline__ float exp2_fast(float value)
{
    float out;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(value));
    return out;
}

__device__ __forceinline__ float warp_sum(float value)
{
#pragma unroll
    for (int offset = WARP / 2; offset; offset /= 2)
        value += __shfl_xor_sync(FULL_MASK, value, offset);
    return value;
}

/* Of the block, what `of_warp` makes of a warp's values, for all threads: of the warps' results
 * again, with `none` where there is no warp; `scratch` holds one per warp. Called by whole blocks;
 * safe to call again with the same scratch. */
template <class Value, class OfWarp>
__device__ __forceinline__ Value block_reduce(Value mine, Value none, Value *scratch,
                                              OfWarp of_warp)
{
    unsigned warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, warps = blockDim.x / WARP;
    mine = of_warp(mine);
    __syncthreads();
    if (lane == 0)
        scratch[warp] = mine;
    __syncthreads();
    return of_warp(lane < warps ? scratch[lane] : none);
}

/* The sum; its order: lanes by halves, then warps by halves. */
__device__ __forceinline__ float block_sum(float value, float *scratch)
{
    return block_reduce(value, 0.0f, scratch, [](float of) { return warp_sum(of); });
}

/* Threads for one item of `size` values, eight of them per thread and turn. */
static inline unsigned threads_for(uint32_t size, unsigned most)
{
    unsigned threads = (size / 8 + WARP - 1) / WARP * WARP;
    return threads < WARP ? WARP : threads > most ? most : threads;
}

static inline unsigned ceil_div(uint64_t value, uint64_t by)
{
    return static_cast<unsigned>((value + by - 1) / by);
}
