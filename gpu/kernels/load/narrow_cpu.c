#include "gpu/kernels/load/narrow.h"

#include <math.h>

#include "gpu/kernels/cpu/body.h"

#define NARROW_PIECE 1024
#define NARROW_LEAST 0x1p-126f

static const float *narrow_take(const struct narrow_args *args, uint32_t i, uint32_t first,
                                uint32_t count, float *wide)
{
    const struct tensor_slice *place = &args->place;
    size_t at = (size_t)i * place->width + place->column + first;
    number_widen(wide, number_at(dev(args->from), args->from_dtype, at), args->from_dtype, count);
    return wide;
}

static uint32_t narrow_count(const struct narrow_args *args, uint32_t first)
{
    uint32_t left = args->place.columns - first;
    return left < NARROW_PIECE ? left : NARROW_PIECE;
}

static void narrow_row(const struct narrow_args *args, uint32_t i)
{
    const struct tensor_slice *place = &args->place;
    float piece[NARROW_PIECE], greatest = 0;
    uint64_t row = tensor_slice_row(place, i);
    uint8_t *to = (uint8_t *)dev(args->to) + row * place->to_stride;
    for (uint32_t j = 0; j < place->columns; j += NARROW_PIECE) {
        const float *x = narrow_take(args, i, j, narrow_count(args, j), piece);
        for (uint32_t c = 0; c < narrow_count(args, j); c++)
            greatest = fmaxf(greatest, fabsf(x[c]));
    }
    float scale = greatest > 0 ? fmaxf(greatest / 448.0f, NARROW_LEAST) : 1;
    for (uint32_t j = 0; j < place->columns; j += NARROW_PIECE) {
        const float *x = narrow_take(args, i, j, narrow_count(args, j), piece);
        for (uint32_t c = 0; c < narrow_count(args, j); c++)
            to[j + c] = e4m3_round(x[c] / scale);
    }
    ((float *)dev(args->scales))[row] = scale;
}

static void narrow_share(const void *params, uint32_t index)
{
    const struct narrow_args *args = params;
    uint32_t share = body_share(args->place.columns);
    for (uint32_t i = 0; i < share && index * share + i < args->place.rows; i++)
        narrow_row(args, index * share + i);
}

cudaError_t op_narrow(const struct narrow_args *args, cudaStream_t stream)
{
    return body_launch(stream, "narrow", narrow_share, args, sizeof *args,
                       body_shares(args->place.rows, args->place.columns));
}
