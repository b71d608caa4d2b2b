#include "gpu/kernels/facts.cuh"

static struct device_facts facts[FACTS_DEVICES_MAX];
static std::atomic<bool> known[FACTS_DEVICES_MAX];
static const struct device_facts nothing = {};
static int pretended;

void device_pretend(int major)
{
    pretended = major;
}

/* Two threads may both ask about a device: they store the same. */
const struct device_facts *device_facts()
{
    int device;
    if (cudaGetDevice(&device) != cudaSuccess || device < 0 || device >= FACTS_DEVICES_MAX)
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
