/* The sum over all ranks of their parts of delta, and op_norm with it, in one pass:
 *     residual[r] += (part_0[r] + part_1[r] + ...) * delta_scale (rounded to residual_dtype)
 *     out[r] = residual[r] / sqrt(mean(residual[r]^2) + eps) * weight
 * Parts are added in float32 and in the order of ranks, so all ranks get the same bits. The sum may
 * be normed before it is added (`delta_normed`); NORM_ROUNDED is done behind that alone, and
 * NORM_CENTERED not at all.
 *
 * CUDA takes rows of a multiple of ALLREDUCE_STEP values, at most ALLREDUCE_SIZE_MAX, and strides
 * that are multiples too. */
#pragma once

#include "gpu/kernels/collective/inbox.h"
#include "gpu/kernels/norm/norm.h"

#define ALLREDUCE_STEP 8
#define ALLREDUCE_SIZE_MAX 16384

struct allreduce_norm_args {
    struct norm_args norm;  /* delta is this rank's part, and is given */
    struct inboxes inboxes; /* a part holds max rows of `size` values without gaps */
};

/* What no body does. */
static inline bool allreduce_norm_refused(const struct allreduce_norm_args *args)
{
    const struct norm_args *norm = &args->norm;
    return norm_refused(norm) || (norm->out && norm->form == NORM_CENTERED) ||
           (norm->out && norm->form == NORM_ROUNDED && !norm->delta_normed);
}

OP_C cudaError_t op_allreduce_norm(const struct allreduce_norm_args *args, cudaStream_t stream);
