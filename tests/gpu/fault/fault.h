/* Kernels that go wrong. Any thread; the device is of no use after the first two. What the others
 * do wrong only compute-sanitizer sees; they read and write `at`, device memory whose size they
 * know. */
#pragma once

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif
cudaError_t fault_trap(cudaStream_t stream);
cudaError_t fault_spin(cudaStream_t stream);

/* Writes the word behind `bytes` bytes. */
cudaError_t fault_overrun(void *at, size_t bytes, cudaStream_t stream);
/* Reads a word that a thread of another warp writes in shared memory, without a barrier between;
 * writes one word. Its name has a word that library kernels have, too. */
cudaError_t fault_race(void *at, cudaStream_t stream);
/* Reads the first word and writes it to the second. */
cudaError_t fault_unwritten(void *at, cudaStream_t stream);
/* Half of a warp comes to the block's barrier; writes one word. */
cudaError_t fault_barrier(void *at, cudaStream_t stream);
#ifdef __cplusplus
}
#endif
