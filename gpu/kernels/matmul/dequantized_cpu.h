/* Sums of products with weights in 8 and 4 bits, on the CPU device: the reference for all other
 * ways. Who has the rows of x says which they are: one behind another, or gathered. Kernels only.
 */
#pragma once

#include "gpu/kernels/matmul/matmul_cpu.h"

#define DEQUANTIZED_ROWS 8

struct dequantized {
    const struct weight *w;
    const void *x[DEQUANTIZED_ROWS]; /* host addresses of rows */
    enum dtype x_dtype;
    uint32_t rows;
    uint32_t first, outputs; /* of w; up to MATMUL_OUTPUTS */
    float *sums;             /* [rows][MATMUL_OUTPUTS] */
};

void dequantized_sums(const struct dequantized *of);
/* Whether weights are such as this has a meaning for. */
bool dequantized_can(const struct weight *w);
