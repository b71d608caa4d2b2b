#include "tests/runtime/device.h"

#include <unistd.h>

#define THREADS 256

/* Where no device is, the tests are skipped, not passed. */
extern "C" void device_begin(void)
{
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0)
        _exit(77);
}

extern "C" bool device_clean(void)
{
    return true;
}

extern "C" bool device_threads(void)
{
    return true;
}

static __global__ void fill(uint32_t *data, uint32_t count, uint32_t value)
{
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        data[i] = value;
}

static __global__ void add(uint32_t *data, uint32_t count, uint32_t addend)
{
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        data[i] += addend;
}

static __global__ void copy(uint32_t *dst, const uint32_t *src, uint32_t count)
{
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        dst[i] = src[i];
}

static __global__ void trap(void)
{
    __trap();
}

static uint32_t blocks(uint32_t count)
{
    return (count + THREADS - 1) / THREADS;
}

extern "C" cudaError_t kernel_fill(cudaStream_t stream, uint32_t *data, uint32_t count,
                                   uint32_t value)
{
    fill<<<blocks(count), THREADS, 0, stream>>>(data, count, value);
    return cudaGetLastError();
}

extern "C" cudaError_t kernel_add(cudaStream_t stream, uint32_t *data, uint32_t count,
                                  uint32_t addend)
{
    add<<<blocks(count), THREADS, 0, stream>>>(data, count, addend);
    return cudaGetLastError();
}

extern "C" cudaError_t kernel_copy(cudaStream_t stream, uint32_t *dst, const uint32_t *src,
                                   uint32_t count)
{
    copy<<<blocks(count), THREADS, 0, stream>>>(dst, src, count);
    return cudaGetLastError();
}

extern "C" cudaError_t kernel_trap(cudaStream_t stream)
{
    trap<<<1, 1, 0, stream>>>();
    return cudaGetLastError();
}
