/* What a row's experts gave becomes one: out[r] = sum of routes[r][i].weight * x[r][i] for i in
 * order, of those whose expert is here, then, with `shared`, + routes[r][top].weight * shared[r].
 * In float32, multiply and add rounded apart; a row's bits depend on the row alone. */
#pragma once

#include "gpu/kernels/experts/route.h"
#include "gpu/kernels/norm/norm.h"

struct combine_args {
    struct row_range rows;
    const struct route *routes; /* [max][top], with `shared` [top + 1] */
    const void *x;              /* [max * top][size] */
    const void *shared;         /* [max][size]; NULL: none */
    void *out;                  /* [max][size] */
    uint32_t size, top;
    struct expert_range own;
    enum dtype dtype, out_dtype; /* of x and shared; of out */
};

OP_C cudaError_t op_combine(const struct combine_args *args, cudaStream_t stream);
/* As op_combine, then op_norm, whose delta is what is combined: on CUDA in one kernel, which leaves
 * combine->out as it was. */
OP_C cudaError_t op_combine_norm(const struct combine_args *combine, const struct norm_args *norm,
                                 cudaStream_t stream);
