#include "gpu/kernels/activation/activation.h"

#include "gpu/kernels/cpu/body.h"

#define ACTIVATION_PIECE 1024

static void activation_row(const struct activation_args *args, uint32_t row)
{
    const struct simd *simd = simd_best();
    float x[ACTIVATION_PIECE], up[ACTIVATION_PIECE];
    const void *in = body_at(args->in, args->dtype, row, args->in_stride);
    void *out = body_at(args->out, args->dtype, row, args->out_stride);
    for (uint32_t i = 0; i < args->size; i += ACTIVATION_PIECE) {
        uint32_t count = args->size - i < ACTIVATION_PIECE ? args->size - i : ACTIVATION_PIECE;
        number_widen(x, number_at(in, args->dtype, i), args->dtype, count);
        if (args->gated)
            number_widen(up, number_at(in, args->dtype, (size_t)args->size + i), args->dtype,
                         count);
        (args->kind == ACTIVATE_SILU ? simd->silu : simd->gelu)(x, x, args->gated ? up : NULL,
                                                                count);
        number_round(number_at(out, args->dtype, i), x, args->dtype, count);
    }
}

static void activation_share(const void *params, uint32_t index)
{
    const struct activation_args *args = params;
    uint32_t share = body_share(args->size), rows = body_rows(&args->rows);
    for (uint32_t i = 0; i < share && index * share + i < rows; i++)
        activation_row(args, index * share + i);
}

cudaError_t op_activation(const struct activation_args *args, cudaStream_t stream)
{
    return body_launch(stream, "activation", activation_share, args, sizeof *args,
                       body_shares(args->rows.max, args->size));
}
