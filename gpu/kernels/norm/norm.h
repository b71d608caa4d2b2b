/* Residual add and norm in one pass:
 *     residual[r] += delta[r] * delta_scale                      (rounded to residual_dtype)
 *     out[r] = residual[r] / sqrt(mean(residual[r]^2) + eps) * (offset + weight)
 * The norm reads the residual as it was rounded. An all-reduce of a tensor-parallel group stands
 * between the product that made delta and this op.
 *
 * Other forms of it:
 *     NORM_CENTERED  out = (x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps) * weight + bias
 *     NORM_ROUNDED   out = x
 * and what is added may be normed before (`delta_normed`), as if by an op of its own in place:
 *     delta / sqrt(mean(delta^2) + delta_eps) * (delta_offset + delta_weight)  (to delta_dtype) */
#pragma once

#include "gpu/kernels/common/kernel.h"

enum norm_form { NORM_SCALED, NORM_CENTERED, NORM_ROUNDED };

struct norm_args {
    struct row_range rows;
    void *residual;     /* [max][residual_stride]; written only where delta is given */
    const void *delta;  /* [max][delta_stride]; NULL: nothing to add */
    const void *weight; /* [size]; NULL: ones, whatever the offset */
    void *out; /* [max][out_stride]; NULL: only the add. May be delta, or without one the residual,
                * with its stride and dtype */
    uint32_t size, residual_stride, delta_stride, out_stride;
    enum dtype residual_dtype, delta_dtype, weight_dtype, out_dtype;
    float eps;
    float delta_scale; /* rounded before it is added; 0 stands for 1 */
    enum norm_form form;
    float offset;             /* of the weight: 0, or 1 */
    const void *bias;         /* [size], NORM_CENTERED; NULL: zeros */
    bool delta_normed;        /* not before NORM_CENTERED */
    const void *delta_weight; /* [size], as the weight */
    float delta_eps, delta_offset;
};

/* What no body does. */
static inline bool norm_refused(const struct norm_args *args)
{
    return args->delta_normed && (!args->delta || (args->out && args->form == NORM_CENTERED));
}

OP_C cudaError_t op_norm(const struct norm_args *args, cudaStream_t stream);
