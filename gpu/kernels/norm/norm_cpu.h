/* A row of op_norm on the CPU, for the op that makes its delta from several ranks' parts. */
#pragma once

#include "gpu/kernels/norm/norm.h"

#define NORM_PIECE 512 /* values of a row at a time; a multiple of SIMD_LANES */

/* Writes values first .. first + count - 1 of the row's delta; count is at most NORM_PIECE. */
typedef void norm_delta(const void *context, uint32_t row, uint32_t first, uint32_t count,
                        float *ret);

/* `delta` NULL: nothing to add. */
void norm_row(const struct norm_args *args, uint32_t row, norm_delta *delta, const void *context);
