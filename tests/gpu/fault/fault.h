/* Kernels that go wrong. Any thread; the device is of no use after the first. */
#pragma once

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif
cudaError_t fault_trap(cudaStream_t stream);
cudaError_t fault_spin(cudaStream_t stream);
#ifdef __cplusplus
}
#endif
