#include "tests/gpu/rig/rig.h"

#include <math.h>

/* bf16 or f16 against float32: as near as transformers' own bf16, by half more. */
#define MEAN_MAX 2e-2
#define WORST_MAX 0.15

bool rig_setup(void)
{
    int count = 0;
    return cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
}

bool rig_several(uint32_t devices)
{
    int count = 0;
    return cudaGetDeviceCount(&count) == cudaSuccess && (uint32_t)count >= devices;
}

bool rig_step(void)
{
    return false;
}

void rig_fetch(void *host, const void *device, size_t bytes)
{
    (void)cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, cudaStreamPerThread);
    (void)cudaStreamSynchronize(cudaStreamPerThread);
}

void rig_store(void *device, const void *host, size_t bytes)
{
    (void)cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, cudaStreamPerThread);
    (void)cudaStreamSynchronize(cudaStreamPerThread);
}

bool rig_right(struct rig_error error, const struct reference *reference)
{
    return error.mean <= fmin(MEAN_MAX, 1.5 * reference->bf16_mean_error) && error.max <= WORST_MAX;
}

bool rig_near(struct rig_error error)
{
    return error.mean <= MEAN_MAX && error.max <= WORST_MAX;
}

bool rig_wrong(struct rig_error error, const struct reference *reference)
{
    return error.mean > 1.5 * MEAN_MAX && !rig_right(error, reference);
}
