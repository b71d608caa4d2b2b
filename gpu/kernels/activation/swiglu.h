/* out[r][i] = silu(in[r][i]) * in[r][size + i], silu(x) = x / (1 + exp(-x)). */
#pragma once

#include "gpu/kernels/common/kernel.h"

struct swiglu_args {
    struct row_range rows;
    const void *in; /* [max][in_stride]: gate [size], up [size] */
    void *out;      /* [max][out_stride] */
    uint32_t size, in_stride, out_stride;
    enum dtype dtype;
};

OP_C cudaError_t op_swiglu(const struct swiglu_args *args, cudaStream_t stream);
