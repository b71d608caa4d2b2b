/* Rows of a tensor into their place, in another dtype. Vectors (norms, biases) are one row, or one
 * column, as it suits. */
#pragma once

#include "gpu/kernels/load/tensor_slice.h"

struct convert_args {
    struct tensor_slice place;
    const void
        *from; /* [place.rows][place.width], the part's first row first; aligned to its dtype */
    void *to;
    enum dtype from_dtype, to_dtype;
    bool bytes; /* elements are bytes that stay as they are, whatever the dtypes say */
};

OP_C cudaError_t op_convert(const struct convert_args *args, cudaStream_t stream);
