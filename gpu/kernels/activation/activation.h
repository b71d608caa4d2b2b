/* out[r][i] = f(in[r][i]), gated times in[r][size + i], where f is one of
 *     silu(x) = x / (1 + exp(-x))
 *     gelu(x) = x / 2 * (1 + tanh(u)) = x / (1 + exp(-2 u)), u = sqrt(2 / pi) * (x + 0.044715 x^3)
 * The gated SiLU is called SwiGLU. */
#pragma once

#include "gpu/kernels/common/kernel.h"

enum activation { ACTIVATE_SILU, ACTIVATE_GELU_TANH };

struct activation_args {
    struct row_range rows;
    const void
        *in;   /* [max][in_stride]: what f is of [size]; gated: and what that is times [size] */
    void *out; /* [max][out_stride] */
    uint32_t size, in_stride, out_stride;
    enum dtype dtype;
    enum activation kind;
    bool gated;
};

OP_C cudaError_t op_activation(const struct activation_args *args, cudaStream_t stream);
