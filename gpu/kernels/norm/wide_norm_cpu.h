/* A row of op_wide_norm on the CPU, for the op that adds up ranks' sums in between. */
#pragma once

#include "gpu/kernels/norm/wide_norm.h"

/* The sum of squares of one of a row's values. */
float wide_squares(const struct wide_norm_args *args, uint32_t row, uint32_t value);
/* `squares`: of all ranks' columns. */
void wide_scale(const struct wide_norm_args *args, uint32_t row, uint32_t value, float squares);

/* Rows that an index of the kernel takes. */
uint32_t wide_share(const struct wide_norm_args *args);
uint32_t wide_shares(const struct wide_norm_args *args);
