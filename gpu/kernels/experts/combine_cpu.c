#include "gpu/kernels/experts/combine.h"

#include "gpu/kernels/cpu/body.h"

#define COMBINE_PIECE 1024

static void combine_add(const struct combine_args *args, const void *from, size_t row,
                        uint32_t first, uint32_t count, float weight, float *sum)
{
    float x[COMBINE_PIECE];
    number_widen(x, number_at(body_at(from, args->dtype, row, args->size), args->dtype, first),
                 args->dtype, count);
    for (uint32_t i = 0; i < count; i++)
        sum[i] += weight * x[i];
}

static void combine_piece(const struct combine_args *args, uint32_t row, uint32_t first,
                          uint32_t count)
{
    uint32_t stride = args->top + (args->shared != NULL);
    const struct route *all = dev(args->routes), *routes = all + (size_t)row * stride;
    float sum[COMBINE_PIECE] = {0};
    for (uint32_t i = 0; i < args->top; i++)
        if (routes[i].expert - args->own.first < args->own.count)
            combine_add(args, args->x, (size_t)row * args->top + i, first, count, routes[i].weight,
                        sum);
    if (args->shared)
        combine_add(args, args->shared, row, first, count, routes[args->top].weight, sum);
    void *out = body_at(args->out, args->out_dtype, row, args->size);
    number_round(number_at(out, args->out_dtype, first), sum, args->out_dtype, count);
}

static void combine_share(const void *params, uint32_t index)
{
    const struct combine_args *args = params;
    uint32_t share = body_share(args->size), rows = body_rows(&args->rows);
    for (uint32_t r = index * share; r < (index + 1) * share && r < rows; r++) {
        for (uint32_t i = 0; i < args->size; i += COMBINE_PIECE)
            combine_piece(args, r, i,
                          args->size - i < COMBINE_PIECE ? args->size - i : COMBINE_PIECE);
    }
}

cudaError_t op_combine(const struct combine_args *args, cudaStream_t stream)
{
    return body_launch(stream, "combine", combine_share, args, sizeof *args,
                       body_shares(args->rows.max, args->size));
}

cudaError_t op_combine_norm(const struct combine_args *combine, const struct norm_args *norm,
                            cudaStream_t stream)
{
    cudaError_t result = op_combine(combine, stream);
    return result == cudaSuccess ? op_norm(norm, stream) : result;
}
