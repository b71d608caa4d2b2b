/* Logits of the tokens that a head knows become those of all: out[r][t] = in[r][places[t]], and
 * -infinity where it knows t not. */
#pragma once

#include "gpu/kernels/common/kernel.h"

#define SPREAD_NONE (-1)

struct spread_args {
    struct row_range rows;
    const float *in;       /* [max][known] */
    const int32_t *places; /* [size]; NULL: the first `known` tokens are its own */
    float *out;            /* [max][size] */
    uint32_t known, size;
};

OP_C cudaError_t op_spread(const struct spread_args *args, cudaStream_t stream);
