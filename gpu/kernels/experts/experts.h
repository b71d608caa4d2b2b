/* Products of pairs of a row and an expert: y[p][n] = dot(x of p, row n of the matrix of p's
 * expert).
 *
 * `gated`: a matrix is gate, then up, n / 2 each, and y[p][i] = f(gate) * up, i < n / 2, unrounded
 * in between; clamped it is g / (1 + exp(-alpha g)) * (u + 1), g = min(gate, limit), u = up held to
 * +-limit. A bias is added to products before. x is a row of the step for all its pairs (`spread`),
 * or a pair's own; pairs of a row lie side by side, so p is row p / top. Every output is computed
 * alone: a pair's bits depend neither on its neighbours nor on where it stands. Matrices of experts
 * without a pair are not read; y of pairs whose expert is not here is not written.
 *
 * Weights in 8 and 4 bits, and inputs that are rounded, are what they are to a dense product
 * (kernel.h), each expert's with scales, zeros and an order of columns of its own. On CUDA they
 * want scratch for inputs that are rounded or put in order. */
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
    bool invariant; /* only the ways that sum in one order, whatever the number of rows */
    float alpha, limit; /* of one that is clamped, whatever `activation`; limit 0: it is not */
    const void *bias;   /* [own.count][w.n], of dtype; NULL: none */
    void *scratch;      /* of experts_scratch_bytes; aligned */
    size_t scratch_bytes;
};

static inline bool experts_can(const struct experts_args *args)
{
    bool plain = args->w.format <= FORMAT_F16;
    return plain == weight_is_plain(&args->w) &&
           (args->gated ? args->w.n % 2 == 0 : args->limit == 0);
}

/* Whether the device multiplies by such a matrix. */
OP_C bool experts_takes(const struct weight *w);
/* What products of up to so many rows, each through `top` experts, want as scratch, where `own` are
 * here; `spread` and `dtype` as above. 0 on the CPU device. */
OP_C size_t experts_scratch_bytes(const struct weight *w, uint32_t own, uint32_t rows, uint32_t top,
                                  bool spread, enum dtype dtype);

OP_C cudaError_t op_experts(const struct experts_args *args, cudaStream_t stream);
