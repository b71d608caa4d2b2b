#include "gpu/kernels/norm/wide_norm_cpu.h"

#include "gpu/kernels/cpu/body.h"
#include "gpu/kernels/norm/norm_cpu.h"

static void *value_at(const struct wide_norm_args *args, uint32_t row, uint32_t value)
{
    void *at = body_at(args->at, args->dtype, row, args->stride);
    return number_at(at, args->dtype, args->value[value].first);
}

static uint32_t piece(uint32_t size, uint32_t first)
{
    return size - first < NORM_PIECE ? size - first : NORM_PIECE;
}

float wide_squares(const struct wide_norm_args *args, uint32_t row, uint32_t value)
{
    uint32_t size = args->value[value].size;
    void *from = value_at(args, row, value);
    float lanes[SIMD_LANES] = {0}, wide[NORM_PIECE];
    for (uint32_t i = 0; i < size; i += NORM_PIECE) {
        number_widen(wide, number_at(from, args->dtype, i), args->dtype, piece(size, i));
        simd_best()->squares(lanes, wide, piece(size, i));
    }
    return simd_add_lanes(lanes);
}

void wide_scale(const struct wide_norm_args *args, uint32_t row, uint32_t value, float squares)
{
    const struct wide_value *of = &args->value[value];
    float scale = norm_scale(squares, of->size * args->ranks, args->eps), wide[NORM_PIECE];
    void *at = value_at(args, row, value);
    for (uint32_t i = 0; i < of->size; i += NORM_PIECE) {
        uint32_t count = piece(of->size, i);
        number_widen(wide, number_at(at, args->dtype, i), args->dtype, count);
        norm_scaled(wide, i, count, scale, of->weight, args->weight_dtype, args->offset);
        number_round(number_at(at, args->dtype, i), wide, args->dtype, count);
    }
}

uint32_t wide_share(const struct wide_norm_args *args)
{
    return body_share(args->value[0].size + args->value[1].size);
}

uint32_t wide_shares(const struct wide_norm_args *args)
{
    return body_shares(args->rows.max, args->value[0].size + args->value[1].size);
}

static void squares_share(const void *params, uint32_t index)
{
    const struct wide_norm_args *args = params;
    uint32_t share = wide_share(args), rows = body_rows(&args->rows);
    float *squares = dev(args->squares);
    for (uint32_t row = index * share; row < (index + 1) * share && row < rows; row++) {
        for (uint32_t i = 0; i < WIDE_VALUES; i++)
            squares[(size_t)row * WIDE_VALUES + i] = wide_squares(args, row, i);
    }
}

static void wide_norm_share(const void *params, uint32_t index)
{
    const struct wide_norm_args *args = params;
    uint32_t share = wide_share(args), rows = body_rows(&args->rows);
    const float *squares = args->squares ? dev(args->squares) : NULL;
    for (uint32_t row = index * share; row < (index + 1) * share && row < rows; row++) {
        for (uint32_t i = 0; i < WIDE_VALUES; i++)
            wide_scale(args, row, i,
                       squares ? squares[(size_t)row * WIDE_VALUES + i]
                               : wide_squares(args, row, i));
    }
}

cudaError_t op_squares(const struct wide_norm_args *args, cudaStream_t stream)
{
    return body_launch(stream, "squares", squares_share, args, sizeof *args, wide_shares(args));
}

cudaError_t op_wide_norm(const struct wide_norm_args *args, cudaStream_t stream)
{
    return body_launch(stream, "wide norm", wide_norm_share, args, sizeof *args, wide_shares(args));
}
