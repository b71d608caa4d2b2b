#include "gpu/kernels/load/convert.h"

#include "gpu/kernels/cpu/body.h"

#define CONVERT_PIECE 1024

static void convert_row(const struct convert_args *args, uint32_t i)
{
    const struct tensor_slice *place = &args->place;
    float wide[CONVERT_PIECE];
    if (args->bytes) {
        const char *bytes = dev(args->from);
        char *place_of = dev(args->to);
        memcpy(place_of + tensor_slice_row(place, i) * place->to_stride,
               bytes + (size_t)i * place->width + place->column, place->columns);
        return;
    }
    const void *from =
        number_at(dev(args->from), args->from_dtype, (size_t)i * place->width + place->column);
    void *to = body_at(args->to, args->to_dtype, tensor_slice_row(place, i), place->to_stride);
    if (args->from_dtype == args->to_dtype) {
        memcpy(to, from, (size_t)place->columns * dtype_bytes(args->to_dtype));
        return;
    }
    for (uint32_t j = 0; j < place->columns; j += CONVERT_PIECE) {
        uint32_t count = place->columns - j < CONVERT_PIECE ? place->columns - j : CONVERT_PIECE;
        number_widen(wide, number_at(from, args->from_dtype, j), args->from_dtype, count);
        number_round(number_at(to, args->to_dtype, j), wide, args->to_dtype, count);
    }
}

static void convert_share(const void *params, uint32_t index)
{
    const struct convert_args *args = params;
    uint32_t share = body_share(args->place.columns);
    for (uint32_t i = 0; i < share && index * share + i < args->place.rows; i++)
        convert_row(args, index * share + i);
}

cudaError_t op_convert(const struct convert_args *args, cudaStream_t stream)
{
    return body_launch(stream, "convert", convert_share, args, sizeof *args,
                       body_shares(args->place.rows, args->place.columns));
}
