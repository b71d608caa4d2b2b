/* What launchers ask about the current device, asked once per device and process. Any thread. */
#pragma once

#include <cuda_runtime.h>
#include <stdint.h>

#include <atomic>

#define DEVICE_PROPS_MAX 64

struct device_props {
    int ordinal;
    int major, minor;    /* compute capability */
    uint32_t processors; /* SMs */
    uint32_t shared_max; /* bytes of shared memory that a block may have */
};

/* Never NULL; of a device that cannot be asked all is 0, and the launch will say why. */
const struct device_props *device_props();

/* For tests, before any other call: devices say to be of compute capability `major`.0. */
void device_pretend(int major);

/* Remembers on which devices something was done once. Static storage, zeroed. */
struct device_once {
    std::atomic<uint64_t> done;
};

/* Lets a kernel have all the dynamic shared memory that the device can give beside its static. */
template <class Kernel>
cudaError_t device_allow(struct device_once *once, Kernel kernel, const struct device_props *device,
                         uint32_t static_bytes = 0)
{
    uint64_t bit = 1ull << (device->ordinal % DEVICE_PROPS_MAX);
    if (once->done.load(std::memory_order_relaxed) & bit)
        return cudaSuccess;
    cudaError_t result = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                              static_cast<int>(device->shared_max - static_bytes));
    if (result == cudaSuccess)
        once->done.fetch_or(bit, std::memory_order_relaxed);
    return result;
}
