/* RMSNorm of two values that lie in one row, each over its whole width, in place:
 *     v[r] = v[r] / sqrt(mean(v[r]^2) + eps) * (offset + weight)
 * as q and k have it where not each head is normed by itself. Ranks of a tensor-parallel group
 * have as many columns of a value each, and its mean is over all of them: op_squares makes a
 * rank's sums, op_wide_norm takes the sums over all (collective/allreduce_wide_norm.h does it at
 * once). */
#pragma once

#include "gpu/kernels/common/kernel.h"

#define WIDE_VALUES 2

struct wide_value {
    uint32_t first, size; /* columns of a row */
    const void *weight;   /* [size]; NULL: ones, whatever the offset */
};

struct wide_norm_args {
    struct row_range rows;
    void *at; /* [max][stride], aligned */
    uint32_t stride;
    enum dtype dtype, weight_dtype;
    struct wide_value value[WIDE_VALUES];
    uint32_t ranks; /* that have as many columns of each */
    float
        *squares; /* [max][WIDE_VALUES]: sums of squares. op_wide_norm: NULL: of the columns here */
    float eps, offset;
};

OP_C cudaError_t op_squares(const struct wide_norm_args *args, cudaStream_t stream);
OP_C cudaError_t op_wide_norm(const struct wide_norm_args *args, cudaStream_t stream);
