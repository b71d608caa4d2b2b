/* Where rows of a checkpoint's tensor go in the engine's fused and sharded weights.
 *
 * Row i of the part, for i = 0 .. rows - 1, goes to row to + (i / run) * step + i % run of the
 * target: run = step: consecutive rows; otherwise runs of rows with gaps that another tensor fills.
 * Columns column .. column + columns - 1 of the tensor become columns 0 .. of the target. */
#pragma once

#include "gpu/kernels/common/kernel.h"

struct tensor_slice {
    uint64_t row;  /* first row of the part within the whole tensor */
    uint32_t rows; /* of the part */
    uint32_t column, columns;
    uint32_t width; /* columns of the whole tensor */
    uint32_t to, run, step;
    uint32_t to_stride; /* elements between the target's rows */
};

/* The target's row for the part's row i. */
static inline uint64_t tensor_slice_row(const struct tensor_slice *place, uint32_t i)
{
    return place->to + (uint64_t)(i / place->run) * place->step + i % place->run;
}
