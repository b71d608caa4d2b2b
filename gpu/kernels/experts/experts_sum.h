/* Products of pairs that become one for their row at once, where experts_sum_can() says so: the same
 * as op_experts, op_combine and, with `adds`, the add to the residual behind it; with a norm behind
 * that, what the product behind the norm wants of it (matmul.h). For steps of few rows, which are as
 * long as their kernels are many; never on the CPU device. */
#pragma once

#include "gpu/kernels/experts/combine.h"
#include "gpu/kernels/experts/experts.h"
#include "gpu/kernels/matmul/matmul.h"

struct experts_sum_args {
    struct experts_args experts; /* not spread, not gated; y is not written */
    struct combine_args combine; /* of the same rows, routes and experts; x is not read */
    bool adds;                   /* to what combine.out holds, which is float32 */
    struct matmul_norm_out norm_out;
};

OP_C bool experts_sum_can(const struct experts_sum_args *args);
/* Those of which experts_sum_can() says so. */
OP_C cudaError_t op_experts_sum(const struct experts_sum_args *args, cudaStream_t stream);
