#include "gpu/kernels/load/fill.h"

#include <math.h>

#include "gpu/kernels/cpu/body.h"

#define FILL_PIECE 1024
#define FILL_SCALE (1.0f / 209.02153f) /* of the sum of eight uniform bytes */

static uint64_t fill_mix(uint64_t value)
{
    value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9u;
    value = (value ^ value >> 27) * 0x94d049bb133111ebu;
    return value ^ value >> 31;
}

static float fill_value(uint64_t key, uint64_t element, float mean, float step)
{
    uint64_t hash = fill_mix(key + (element + 1) * 0x9e3779b97f4a7c15u);
    uint64_t pairs = (hash & 0x00ff00ff00ff00ffu) + (hash >> 8 & 0x00ff00ff00ff00ffu);
    int32_t sum = (int32_t)(pairs * 0x0001000100010001u >> 48);
    return mean + (float)(sum - 1020) * step;
}

static uint8_t fill_whole(float value, float greatest)
{
    return (uint8_t)fminf(fmaxf(rintf(value), 0), greatest);
}

/* The nearest, 6 at most; of two the lesser. */
static uint8_t fill_e2m1(float value)
{
    static const float middles[7] = {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5};
    uint8_t nearest = 0;
    for (int i = 0; i < 7; i++)
        nearest += fabsf(value) > middles[i];
    return (uint8_t)(nearest | (value < 0 ? 8 : 0));
}

static uint8_t fill_half(enum format format, float value)
{
    return format == FORMAT_E2M1 ? fill_e2m1(value) : fill_whole(value, 15);
}

/* Of `count` elements from an even one on. */
static void fill_format(uint8_t *row, enum format format, uint32_t first, const float *value,
                        uint32_t count)
{
    for (uint32_t c = 0; c < count; c++) {
        uint32_t at = first + c;
        if (format == FORMAT_E4M3)
            row[at] = e4m3_round(value[c]);
        else if (format == FORMAT_U8)
            row[at] = fill_whole(value[c], 255);
        else if (at % 2 == 0)
            row[at / 2] = fill_half(format, value[c]);
        else
            row[at / 2] |= (uint8_t)(fill_half(format, value[c]) << 4);
    }
}

static void fill_row(const struct fill_args *args, uint32_t i)
{
    const struct tensor_slice *place = &args->place;
    float value[FILL_PIECE], step = args->deviation * FILL_SCALE;
    uint64_t key = fill_mix(args->seed + fill_mix(args->tensor + 1));
    uint64_t first = (place->row + i) * place->width + place->column;
    bool plain = args->format <= FORMAT_F16;
    uint64_t row = tensor_slice_row(place, i) * place->to_stride;
    uint8_t *bytes = (uint8_t *)dev(args->to) + row;
    void *to = plain ? number_at(dev(args->to), args->to_dtype, row) : NULL;
    for (uint32_t j = 0; j < place->columns; j += FILL_PIECE) {
        uint32_t count = place->columns - j < FILL_PIECE ? place->columns - j : FILL_PIECE;
        for (uint32_t c = 0; c < count; c++)
            value[c] = fill_value(key, first + j + c, args->mean, step);
        if (plain)
            number_round(number_at(to, args->to_dtype, j), value, args->to_dtype, count);
        else
            fill_format(bytes, args->format, j, value, count);
    }
}

static void fill_share(const void *params, uint32_t index)
{
    const struct fill_args *args = params;
    uint32_t share = body_share(args->place.columns);
    for (uint32_t i = 0; i < share && index * share + i < args->place.rows; i++)
        fill_row(args, index * share + i);
}

cudaError_t op_fill(const struct fill_args *args, cudaStream_t stream)
{
    return body_launch(stream, "fill", fill_share, args, sizeof *args,
                       body_shares(args->place.rows, args->place.columns));
}
