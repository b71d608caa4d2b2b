#include "tests/runtime/device.h"

#include <stdio.h>
#include <unistd.h>

#define THREADS 256

/* Where no device is, the tests are skipped, not passed. */
extern "C" void device_begin(void)
{
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
        fputs("SKIPPED: no GPU here\n", stderr);
        _exit(77);
    }
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

/* The launch's own error: what earlier calls left as the last one is none of its business. */
template <class... Params, class... Args>
static cudaError_t run(void (*kernel)(Params...), uint32_t count, cudaStream_t stream, Args... args)
{
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(count);
    config.blockDim = dim3(THREADS);
    config.stream = stream;
    return cudaLaunchKernelEx(&config, kernel, Params(args)...);
}

extern "C" cudaError_t kernel_fill(cudaStream_t stream, uint32_t *data, uint32_t count,
                                   uint32_t value)
{
    return run(fill, blocks(count), stream, data, count, value);
}

extern "C" cudaError_t kernel_add(cudaStream_t stream, uint32_t *data, uint32_t count,
                                  uint32_t addend)
{
    return run(add, blocks(count), stream, data, count, addend);
}

extern "C" cudaError_t kernel_copy(cudaStream_t stream, uint32_t *dst, const uint32_t *src,
                                   uint32_t count)
{
    return run(copy, blocks(count), stream, dst, src, count);
}

extern "C" cudaError_t kernel_trap(cudaStream_t stream)
{
    return run(trap, 1, stream);
}
