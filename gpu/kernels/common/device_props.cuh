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
    /* Clusters of 1, 2, 4 and 8 blocks that run at once where each block has an SM of its own. They
     * do not cross the groups that SMs are in, so that large ones leave some of those empty. */
    uint32_t clusters[4];
};

/* Never NULL; of a device that cannot be asked all is 0, and the launch will say why. */
const struct device_props *device_props();

/* Of 1, 2, 4 or 8 blocks; see `clusters`. */
static inline uint32_t device_clusters(const struct device_props *device, uint32_t blocks)
{
    uint32_t at = 0;
    while (1u << at < blocks)
        at++;
    return device->clusters[at];
}

/* For tests, before any other call: devices say to be of compute capability `major`.0. */
void device_pretend(int major);

/* The number of the device's context, from 1 on: it changes when that is given back. */
uint32_t device_context(int device);

/* Remembers in which context of each device something was done. Static storage, zeroed. */
struct device_once {
    std::atomic<uint32_t> done[DEVICE_PROPS_MAX];
};

/* Lets a kernel have all the dynamic shared memory that the device can give beside its static. */
template <class Kernel>
cudaError_t device_allow(struct device_once *once, Kernel kernel, const struct device_props *device,
                         uint32_t static_bytes = 0)
{
    std::atomic<uint32_t> *done = &once->done[device->ordinal % DEVICE_PROPS_MAX];
    uint32_t context = device_context(device->ordinal);
    if (done->load(std::memory_order_relaxed) == context)
        return cudaSuccess;
    cudaError_t result = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                              static_cast<int>(device->shared_max - static_bytes));
    if (result == cudaSuccess)
        done->store(context, std::memory_order_relaxed);
    return result;
}
