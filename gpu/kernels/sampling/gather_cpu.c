#include "gpu/kernels/sampling/gather.h"

#include "gpu/kernels/cpu/body.h"

#define GATHER_PIECE 512

static void gather_scaled(const struct gather_args *args, uint32_t row, uint32_t from)
{
    float wide[GATHER_PIECE];
    const void *in = body_at(args->in, args->dtype, from, args->in_stride);
    void *out = body_at(args->out, args->dtype, row, args->out_stride);
    for (uint32_t i = 0; i < args->size; i += GATHER_PIECE) {
        uint32_t count = args->size - i < GATHER_PIECE ? args->size - i : GATHER_PIECE;
        number_widen(wide, number_at(in, args->dtype, i), args->dtype, count);
        for (uint32_t j = 0; j < count; j++)
            wide[j] *= args->scale;
        number_round(number_at(out, args->dtype, i), wide, args->dtype, count);
    }
}

static void gather_share(const void *params, uint32_t index)
{
    const struct gather_args *args = params;
    const uint32_t *from = (const uint32_t *)dev(args->index) + args->rows.first;
    uint32_t share = body_share(args->size), rows = body_rows(&args->rows);
    bool plain = args->scale == 0 || args->scale == 1;
    for (uint32_t i = index * share; i < (index + 1) * share && i < rows; i++) {
        if (plain)
            memcpy(body_at(args->out, args->dtype, i, args->out_stride),
                   body_at(args->in, args->dtype, from[i], args->in_stride),
                   (size_t)args->size * dtype_bytes(args->dtype));
        else
            gather_scaled(args, i, from[i]);
    }
}

cudaError_t op_gather(const struct gather_args *args, cudaStream_t stream)
{
    return body_launch(stream, "gather", gather_share, args, sizeof *args,
                       body_shares(args->rows.max, args->size));
}
