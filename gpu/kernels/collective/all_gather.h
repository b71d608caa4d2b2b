/* Rows of which every rank has a slice of the columns become whole on all ranks: rank r has columns
 * r * share up to (r + 1) * share, or the end. */
#pragma once

#include "gpu/kernels/collective/inbox.h"

struct all_gather_args {
    struct row_range rows;
    float *x; /* [max][width] */
    uint32_t width, share;
    struct inboxes inboxes; /* a part holds max rows of `share` values without gaps */
};

OP_C cudaError_t op_all_gather(const struct all_gather_args *args, cudaStream_t stream);
