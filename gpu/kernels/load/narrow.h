/* Rows of a tensor in 16 or 32 bits into their place in e4m3, each with a scale of its own.
 *
 * A row's scale is its greatest magnitude / 448, at least 2^-126, 1 for zeros alone; an element is
 * e4m3(x / scale). What is infinite or no number gives no number. */
#pragma once

#include "gpu/kernels/load/tensor_slice.h"

struct narrow_args {
    struct tensor_slice place; /* to_stride in elements, which are bytes */
    const void
        *from; /* [place.rows][place.width], the part's first row first; aligned to its dtype */
    enum dtype from_dtype;
    uint8_t *to;
    float *scales; /* of each row of the target */
};

OP_C cudaError_t op_narrow(const struct narrow_args *args, cudaStream_t stream);
