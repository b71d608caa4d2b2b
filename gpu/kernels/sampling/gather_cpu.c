#include "gpu/kernels/sampling/gather.h"

#include "gpu/kernels/cpu/body.h"

static void gather_share(const void *params, uint32_t index)
{
    const struct gather_args *args = params;
    const uint32_t *from = (const uint32_t *)dev(args->index) + args->rows.first;
    uint32_t share = body_share(args->size), rows = body_rows(&args->rows);
    for (uint32_t i = index * share; i < (index + 1) * share && i < rows; i++)
        memcpy(body_at(args->out, args->dtype, i, args->out_stride),
               body_at(args->in, args->dtype, from[i], args->in_stride),
               (size_t)args->size * dtype_bytes(args->dtype));
}

cudaError_t op_gather(const struct gather_args *args, cudaStream_t stream)
{
    return body_launch(stream, "gather", gather_share, args, sizeof *args,
                       body_shares(args->rows.max, args->size));
}
