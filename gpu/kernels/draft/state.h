/* What a head that guesses makes of a position, its residual, is what its next row begins with.
 *
 * op_carry keeps it for the slots whose rows sample: carried[slot] is that of the row's last token.
 * op_state begins rows: residual[t] is what their slot has carried, or in[t]. */
#pragma once

#include "gpu/kernels/common/batch.h"

struct state_args {
    struct batch batch;
    float *carried;  /* [slots_max][size] */
    const void *in;  /* [tokens_max][in_stride]; op_state: NULL: rows go on from what is carried */
    float *residual; /* [tokens_max][size] */
    uint32_t size, in_stride;
    enum dtype in_dtype;
};

OP_C cudaError_t op_state(const struct state_args *args, cudaStream_t stream);
OP_C cudaError_t op_carry(const struct state_args *args, cudaStream_t stream);
