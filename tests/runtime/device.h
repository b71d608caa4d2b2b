/* What these tests need beyond the runtime's API, with two bodies: device_cpu.c for the emulation,
 * device.cu for NVIDIA's runtime. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Before each test. The emulation starts anew, with the engine that SLUICE_TEST_ENGINE names. */
void device_begin(void);
/* After each test: whether nothing was left behind (true where that cannot be told). */
bool device_clean(void);
/* Whether host functions and the test's own thread run at the same time. */
bool device_threads(void);

/* data[i] = value; data[i] += addend; dst[i] = src[i]: for all i below count. */
cudaError_t kernel_fill(cudaStream_t stream, uint32_t *data, uint32_t count, uint32_t value);
cudaError_t kernel_add(cudaStream_t stream, uint32_t *data, uint32_t count, uint32_t addend);
cudaError_t kernel_copy(cudaStream_t stream, uint32_t *dst, const uint32_t *src, uint32_t count);
/* A kernel that breaks the context. */
cudaError_t kernel_trap(cudaStream_t stream);

#ifdef __cplusplus
}
#endif
