#include "gpu/kernels/activation/swiglu.h"

#include "gpu/kernels/cpu/body.h"

#define SWIGLU_PIECE 1024

static void swiglu_row(const struct swiglu_args *args, uint32_t row)
{
    float gate[SWIGLU_PIECE], up[SWIGLU_PIECE];
    const void *in = body_at(args->in, args->dtype, row, args->in_stride);
    void *out = body_at(args->out, args->dtype, row, args->out_stride);
    for (uint32_t i = 0; i < args->size; i += SWIGLU_PIECE) {
        uint32_t count = args->size - i < SWIGLU_PIECE ? args->size - i : SWIGLU_PIECE;
        number_widen(gate, number_at(in, args->dtype, i), args->dtype, count);
        number_widen(up, number_at(in, args->dtype, (size_t)args->size + i), args->dtype, count);
        simd_best()->swiglu(gate, gate, up, count);
        number_round(number_at(out, args->dtype, i), gate, args->dtype, count);
    }
}

static void swiglu_share(const void *params, uint32_t index)
{
    const struct swiglu_args *args = params;
    uint32_t share = body_share(args->size), rows = body_rows(&args->rows);
    for (uint32_t i = 0; i < share && index * share + i < rows; i++)
        swiglu_row(args, index * share + i);
}

cudaError_t op_swiglu(const struct swiglu_args *args, cudaStream_t stream)
{
    return body_launch(stream, "swiglu", swiglu_share, args, sizeof *args,
                       body_shares(args->rows.max, args->size));
}
