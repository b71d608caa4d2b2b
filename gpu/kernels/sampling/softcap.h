/* Logits that approach a cap: x = cap * tanh(x / cap), in place, before anything reads them. What is
 * infinite becomes NaN: what overflowed must not pass for a number. */
#pragma once

#include "gpu/kernels/common/kernel.h"

struct softcap_args {
    struct row_range rows;
    float *x; /* [max][stride] */
    uint32_t size, stride;
    float cap;
};

OP_C cudaError_t op_softcap(const struct softcap_args *args, cudaStream_t stream);
