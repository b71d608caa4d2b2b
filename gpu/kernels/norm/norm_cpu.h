/* A row of op_norm on the CPU, for the op that makes its delta from several ranks' parts. */
#pragma once

#include "gpu/kernels/norm/norm.h"

#define NORM_PIECE 512 /* values of a row at a time; a multiple of SIMD_LANES */

/* Writes values first .. first + count - 1 of the row's delta; count is at most NORM_PIECE. A delta
 * that is normed is asked for twice, the second time with `last`. */
typedef void norm_delta(const void *context, uint32_t row, uint32_t first, uint32_t count,
                        bool last, float *ret);

/* `delta` NULL: nothing to add. */
void norm_row(const struct norm_args *args, uint32_t row, norm_delta *delta, const void *context);

/* Of a sum of squares over `size` values. */
float norm_scale(float squares, uint32_t size, float eps);
/* Values first .. first + count - 1 of a row are scaled, and weighted where there is a weight. */
void norm_scaled(float *value, uint32_t first, uint32_t count, float scale, const void *weight,
                 enum dtype dtype, float offset);
