/* Synthetic weights, the same values on every device and however they are sharded.
 *
 * The element at (row, column) of tensor number `tensor` is mean + deviation * z. z is made of the
 * eight bytes of a 64-bit hash of (seed, tensor, row * width + column): their sum less 1020, over
 * its standard deviation (about 209.0): normal to the eye (kurtosis 2.85, within 4.9 deviations),
 * by integer arithmetic and one multiply and add, each rounded to float32. In a format the number
 * is rounded to e4m3 or e2m1, or to a whole number that is cut to what u4 and u8 hold; the place's
 * `to_stride` is bytes then. */
#pragma once

#include "gpu/kernels/load/tensor_slice.h"

struct fill_args {
    struct tensor_slice place;
    void *to;
    enum dtype to_dtype;
    enum format format; /* e4m3, u4, u8, e2m1; a plain one: numbers of to_dtype */
    uint32_t tensor;
    uint64_t seed;
    float mean, deviation; /* deviation 0: a constant */
};

OP_C cudaError_t op_fill(const struct fill_args *args, cudaStream_t stream);
