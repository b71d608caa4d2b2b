/* What programs are held against, measured in the same run: kernels that do one thing. */
#pragma once

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Values of both signs, up to 2 in magnitude. */
cudaError_t limits_fill_bf16(void *to, size_t count, uint32_t seed, cudaStream_t stream);
/* From 0 to 1. */
cudaError_t limits_fill_f32(void *to, size_t count, cudaStream_t stream);
cudaError_t limits_copy(void *to, const void *from, size_t bytes, cudaStream_t stream);
/* Fused multiply-adds in registers alone; *ret_flops: two of each. */
cudaError_t limits_multiply_add(void *word, uint32_t processors, double *ret_flops,
                                cudaStream_t stream);

#ifdef __cplusplus
}
#endif
