/* out[i] = in[index[first + i]] * scale: the rows that need logits. */
#pragma once

#include "gpu/kernels/common/kernel.h"

struct gather_args {
    struct row_range rows;
    const uint32_t *index; /* over all rows of the step: batch.sample_token or batch.score_token */
    const void *in;        /* rows in_stride apart */
    void *out;             /* [max][out_stride] */
    uint32_t size, in_stride, out_stride;
    enum dtype dtype;
    float scale; /* 0 stands for 1 */
};

OP_C cudaError_t op_gather(const struct gather_args *args, cudaStream_t stream);
