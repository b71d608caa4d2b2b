#include "gpu/kernels/common/device_props.cuh"

#include "gpu/kernels/common/device_reset.h"

static struct device_props facts[DEVICE_PROPS_MAX];
static std::atomic<bool> known[DEVICE_PROPS_MAX];
static std::atomic<uint32_t> contexts[DEVICE_PROPS_MAX]; /* that were given back */
static const struct device_props nothing = {};
static int pretended;

void device_pretend(int major)
{
    pretended = major;
}

extern "C" cudaError_t device_reset(int device)
{
    contexts[device % DEVICE_PROPS_MAX].fetch_add(1, std::memory_order_relaxed);
    return cudaDeviceReset();
}

uint32_t device_context(int device)
{
    return contexts[device % DEVICE_PROPS_MAX].load(std::memory_order_relaxed) + 1;
}

/* Two threads may both ask about a device: they store the same. */
const struct device_props *device_props()
{
    int device;
    if (cudaGetDevice(&device) != cudaSuccess || device < 0 || device >= DEVICE_PROPS_MAX)
        return &nothing;
    if (known[device].load(std::memory_order_acquire))
        return &facts[device];
    int major, minor, processors, shared;
    if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) ||
        cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) ||
        cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device) ||
        cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device))
        return &nothing;
    if (pretended)
        major = pretended, minor = 0;
    facts[device] = {device, major, minor, static_cast<uint32_t>(processors),
                     static_cast<uint32_t>(shared)};
    known[device].store(true, std::memory_order_release);
    return &facts[device];
}
