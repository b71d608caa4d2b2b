/* Products of pairs of a row and an expert: y[p][n] = dot(x of p, row n of the matrix of p's
 * expert).
 *
 * `gated`: a matrix is gate, then up, n / 2 each, and y[p][i] = f(gate) * up, i < n / 2, unrounded
 * in between. x is a row of the step for all its pairs (`spread`), or a pair's own; pairs of a row
 * lie side by side, so p is row p / top. Every output is computed alone: a pair's bits depend
 * neither on its neighbours nor on where it stands. Matrices of experts without a pair are not
 * read; y of pairs whose expert is not here is not written. */
#pragma once

#include "gpu/kernels/activation/activation.h"
#include "gpu/kernels/experts/segments.h"

struct experts_args {
    struct row_range rows;      /* of the step */
    struct weight w;            /* of one expert; own.count of them behind one another */
    const uint32_t *segments;   /* segments.h */
    const struct route *routes; /* [max][route_stride]: the same, row by row */
    uint32_t route_stride;
    uint32_t top;
    struct expert_range own;
    const void *x; /* [max][x_stride], or [max * top][x_stride] */
    void *y;       /* [max * top][y_stride] */
    uint32_t x_stride, y_stride;
    enum dtype dtype; /* of both */
    bool spread, gated;
    enum activation activation;
};

static inline bool experts_can(const struct experts_args *args)
{
    return weight_is_plain(&args->w) && args->w.format <= FORMAT_F16 &&
           (!args->gated || args->w.n % 2 == 0);
}

OP_C cudaError_t op_experts(const struct experts_args *args, cudaStream_t stream);
