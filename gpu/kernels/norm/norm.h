/* Residual add and RMSNorm in one pass:
 *     residual[r] += delta[r] * delta_scale                      (rounded to residual_dtype)
 *     out[r] = residual[r] / sqrt(mean(residual[r]^2) + eps) * weight
 * The norm reads the residual as it was rounded. An all-reduce of a tensor-parallel group stands
 * between the product that made delta and this op. */
#pragma once

#include "gpu/kernels/common/kernel.h"

struct norm_args {
    struct row_range rows;
    void *residual;     /* [max][residual_stride]; written only where delta is given */
    const void *delta;  /* [max][delta_stride]; NULL: nothing to add */
    const void *weight; /* [size]; NULL: ones */
    void *out; /* [max][out_stride]; NULL: only the add. May be delta, with its stride and dtype */
    uint32_t size, residual_stride, delta_stride, out_stride;
    enum dtype residual_dtype, delta_dtype, weight_dtype, out_dtype;
    float eps;
    float delta_scale; /* rounded before it is added; 0 stands for 1 */
};

OP_C cudaError_t op_norm(const struct norm_args *args, cudaStream_t stream);
