#include "gpu/kernels/sampling/softcap.h"

#include "gpu/kernels/cpu/body.h"

static void softcap_share(const void *params, uint32_t index)
{
    const struct softcap_args *args = params;
    uint32_t share = body_share(args->size), rows = body_rows(&args->rows);
    for (uint32_t i = index * share; i < (index + 1) * share && i < rows; i++)
        simd_softcap(body_at(args->x, DTYPE_F32, i, args->stride), args->cap, args->size);
}

cudaError_t op_softcap(const struct softcap_args *args, cudaStream_t stream)
{
    return body_launch(stream, "softcap", softcap_share, args, sizeof *args,
                       body_shares(args->rows.max, args->size));
}
