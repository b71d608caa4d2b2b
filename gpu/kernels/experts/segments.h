/* The pairs of a step's rows and their experts, expert by expert of those that are here: first[e]
 * is where those of expert own.first + e begin in `pairs`, first[own.count] how many there are;
 * pair p is row p / top with its route p % top. Those of one expert are in order. Counting, on the
 * device: who multiplies by an expert reads here how many rows it has, so a captured launch holds
 * for any choice of the router. */
#pragma once

#include "gpu/kernels/experts/route.h"

struct segments_args {
    struct row_range rows;
    const struct route *routes; /* [max][stride] */
    uint32_t stride, top;
    struct expert_range own;
    uint32_t *segments; /* first[own.count + 1], then pairs[max * top] */
};

OP_C cudaError_t op_segments(const struct segments_args *args, cudaStream_t stream);
