#include <cuda_bf16.h>

#include "tests/bench/programs_limits.cuh"

#define THREADS 256
#define BLOCKS 4096
#define VALUES 16 /* side by side in a thread */
#define ROUNDS 8192
#define BLOCKS_OF_SM 4

static __device__ uint32_t mixed(uint32_t hash)
{
    hash *= 2654435761u;
    hash ^= hash << 13;
    hash ^= hash >> 17;
    hash ^= hash << 5;
    return hash;
}

static __global__ void fill_bf16(__nv_bfloat16 *to, size_t count, uint32_t seed)
{
    const size_t step = (size_t)gridDim.x * THREADS;
    for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < count; i += step)
        to[i] = __float2bfloat16_rn((float)(int32_t)mixed((uint32_t)i + seed) * 0x1p-30f);
}

static __global__ void fill_f32(float *to, size_t count)
{
    const size_t step = (size_t)gridDim.x * THREADS;
    for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < count; i += step)
        to[i] = (float)(mixed((uint32_t)i + 1) >> 8) * 0x1p-24f;
}

static __global__ void copy(uint4 *to, const uint4 *from, size_t count)
{
    const size_t step = (size_t)gridDim.x * THREADS;
    size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;
    for (; i + 3 * step < count; i += 4 * step) {
        const uint4 a = __ldcs(from + i), b = __ldcs(from + i + step);
        const uint4 c = __ldcs(from + i + 2 * step), d = __ldcs(from + i + 3 * step);
        __stcs(to + i, a);
        __stcs(to + i + step, b);
        __stcs(to + i + 2 * step, c);
        __stcs(to + i + 3 * step, d);
    }
    for (; i < count; i += step)
        to[i] = from[i];
}

static __global__ void multiply_add(float *word, float by)
{
    float v[VALUES];
#pragma unroll
    for (int i = 0; i < VALUES; i++)
        v[i] = (float)(threadIdx.x + i) * 0x1p-10f;
#pragma unroll 8
    for (int round = 0; round < ROUNDS; round++)
#pragma unroll
        for (int i = 0; i < VALUES; i++)
            v[i] = __fmaf_rn(v[i], by, 0.25f);
    float sum = 0;
#pragma unroll
    for (int i = 0; i < VALUES; i++)
        sum += v[i];
    if (sum == 12345.0f)
        *word = sum;
}

cudaError_t limits_fill_bf16(void *to, size_t count, uint32_t seed, cudaStream_t stream)
{
    fill_bf16<<<BLOCKS, THREADS, 0, stream>>>(static_cast<__nv_bfloat16 *>(to), count, seed);
    return cudaGetLastError();
}

cudaError_t limits_fill_f32(void *to, size_t count, cudaStream_t stream)
{
    fill_f32<<<BLOCKS, THREADS, 0, stream>>>(static_cast<float *>(to), count);
    return cudaGetLastError();
}

cudaError_t limits_copy(void *to, const void *from, size_t bytes, cudaStream_t stream)
{
    copy<<<BLOCKS, THREADS, 0, stream>>>(static_cast<uint4 *>(to), static_cast<const uint4 *>(from),
                                         bytes / sizeof(uint4));
    return cudaGetLastError();
}

cudaError_t limits_multiply_add(void *word, uint32_t processors, double *ret_flops,
                                cudaStream_t stream)
{
    const uint32_t blocks = processors * BLOCKS_OF_SM * 4;
    multiply_add<<<blocks, THREADS, 0, stream>>>(static_cast<float *>(word), 0.5f);
    *ret_flops = 2.0 * blocks * THREADS * VALUES * ROUNDS;
    return cudaGetLastError();
}
