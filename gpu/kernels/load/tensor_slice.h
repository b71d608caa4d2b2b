/* Where rows of a checkpoint's tensor go in the engine's fused and sharded weights.
 *
 * Row i of the part, for i = 0 .. rows - 1, goes to row to + (i / run) * step + i % run of the
 * target: run = step: consecutive rows; otherwise runs of rows with gaps that another tensor fills.
 * Columns column .. column + columns - 1 of the tensor become columns 0 .. of the target.
 *
 * Rows of heads may change their order within a head (run = step = rows then): kernels turn element
 * i of a head with element i + head_dim / 2. Of a head of which only the first `rotary` elements
 * are turned, pair i of these goes to such a place, i < rotary / 2, whether the model has it at i
 * and i + rotary / 2 or, adjacent, at 2 i and 2 i + 1; what is not turned takes the places left, in
 * order. Scores are sums over a head, so nothing else is any different. */
#pragma once

#include "gpu/kernels/common/kernel.h"

struct slice_order {
    uint32_t head_dim, rotary; /* head_dim 0: rows stay as they stand */
    bool adjacent;
    uint32_t first; /* number of row 0 here among the part's, where this is a piece of it */
};

struct tensor_slice {
    uint64_t row;  /* first row of the part within the whole tensor */
    uint32_t rows; /* of the part */
    uint32_t column, columns;
    uint32_t width; /* columns of the whole tensor */
    uint32_t to, run, step;
    uint32_t to_stride; /* elements between the target's rows */
    struct slice_order order;
};

#ifdef __CUDACC__
#define SLICE_RULE static inline __host__ __device__
#else
#define SLICE_RULE static inline
#endif

/* Where element `at` of a head goes. */
SLICE_RULE uint32_t slice_head(const struct slice_order *order, uint32_t at)
{
    uint32_t half = order->head_dim / 2, turned = order->rotary / 2;
    if (at >= order->rotary) {
        uint32_t still = at - order->rotary; /* of those that are not turned */
        return still < half - turned ? turned + still : at;
    }
    return order->adjacent ? at / 2 + at % 2 * half : at < turned ? at : at - turned + half;
}

/* The row of the target that row i goes to. */
SLICE_RULE uint64_t tensor_slice_row(const struct tensor_slice *place, uint32_t i)
{
    uint32_t number = i + place->order.first;
    if (!place->order.head_dim)
        return place->to + (uint64_t)(i / place->run) * place->step + i % place->run;
    uint32_t at = number % place->order.head_dim;
    return place->to + i - at + slice_head(&place->order, at);
}
