/* What the CPU device's ways to make a product share, beside matmul.h. Kernels only. */
#pragma once

#include "gpu/kernels/cpu/body.h"
#include "gpu/kernels/matmul/matmul.h"

#define MATMUL_OUTPUTS 64 /* of one block */

/* How many outputs an index of the kernel has, at most MATMUL_OUTPUTS. */
uint32_t matmul_outputs(const struct matmul_args *args);
/* Sums of rows, MATMUL_OUTPUTS apart, get their bias and go to y. */
void matmul_store(const struct matmul_args *args, float *sums, uint32_t first, uint32_t outputs,
                  uint32_t row, uint32_t rows);

/* Weights in formats that are no plain numbers, inputs that are rounded: matmul_dequantized_cpu.c.
 */
bool matmul_dequantized_can(const struct matmul_args *args);
cudaError_t matmul_dequantized(const struct matmul_args *args, cudaStream_t stream);
