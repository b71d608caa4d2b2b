#include "gpu/kernels/common/device_props.cuh"

#include "gpu/kernels/common/device_context.h"

static struct device_props facts[DEVICE_PROPS_MAX];
static std::atomic<bool> known[DEVICE_PROPS_MAX];
static std::atomic<uint32_t> contexts[DEVICE_PROPS_MAX]; /* that were given back */
static std::atomic<uint32_t> reserved[DEVICE_PROPS_MAX]; /* the context that has its limits */
static const struct device_props nothing = {};
static int pretended;

void device_pretend(int major)
{
    pretended = major;
}

/* A context reserves what each thread that can run at once may put on its stack, by default 1,024
 * bytes of it: 264 MiB of an H200. Our kernels of rows of up to 32,768 values need less than half
 * of that; for one that needs more the driver makes room as it is launched. */
#define STACK_BYTES 512

extern "C" cudaError_t device_reserve(int device)
{
    uint32_t context = device_context(device);
    return reserved[device % DEVICE_PROPS_MAX].exchange(context) == context
               ? cudaSuccess
               : cudaDeviceSetLimit(cudaLimitStackSize, STACK_BYTES);
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

static __global__ void whole_processor() {}

static uint32_t clusters_at_once(uint32_t blocks, uint32_t processors, int shared)
{
    cudaLaunchAttribute attribute;
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = blocks;
    attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(processors / blocks * blocks);
    config.blockDim = dim3(32);
    config.dynamicSmemBytes = shared;
    config.attrs = &attribute;
    config.numAttrs = 1;
    int count = 0;
    if (blocks == 1)
        return processors;
    if (cudaFuncSetAttribute(whole_processor, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             shared) != cudaSuccess ||
        cudaOccupancyMaxActiveClusters(&count, whole_processor, &config) != cudaSuccess) {
        cudaGetLastError(); /* of a device without clusters */
        return 0;
    }
    return count;
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
    struct device_props *all = &facts[device];
    all->ordinal = device;
    all->major = major;
    all->minor = minor;
    all->processors = processors;
    all->shared_max = shared;
    for (uint32_t i = 0; i < 4; i++)
        all->clusters[i] = clusters_at_once(1u << i, processors, shared);
    known[device].store(true, std::memory_order_release);
    return &facts[device];
}
