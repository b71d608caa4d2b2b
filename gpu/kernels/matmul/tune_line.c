#include "gpu/kernels/matmul/tune_line.h"

#include <stdio.h>
#include <string.h>

#include "gpu/kernels/matmul/matmul.h"

/* A kind of factors: what the words say together. */
struct kind {
    uint8_t w_format, x_dtype;
    const char *x;
};

static const struct kind kinds[] = {
    {FORMAT_F32, DTYPE_F32, "f32"},
    {FORMAT_BF16, DTYPE_BF16, "bf16"},
    {FORMAT_F16, DTYPE_F16, "f16"},
    {FORMAT_E4M3, LT_X_SCALED + LT_UNSCALED, "e4m3"},
    {FORMAT_E4M3, LT_X_SCALED + LT_OUTER, "e4m3-rows"},
    {FORMAT_E4M3, LT_X_SCALED + LT_BLOCKS, "e4m3-blocks"},
};

#define KINDS (sizeof kinds / sizeof *kinds)

static const char *const choices[TUNE_TILES + 1] = {"0", "1", "2", "3",    "4",
                                                    "5", "6", "7", "tiles"};

static const char *dtype_word(uint32_t dtype)
{
    return format_info(format_plain((enum dtype)dtype)).name;
}

size_t tune_line_write(const struct lt_shape *shape, uint32_t choice, char line[TUNE_LINE_BYTES])
{
    size_t i = 0;
    while (i < KINDS &&
           (kinds[i].w_format != shape->w_format || kinds[i].x_dtype != shape->x_dtype))
        i++;
    if (i == KINDS || shape->y_dtype > DTYPE_F16 || choice > TUNE_TILES)
        return 0;
    int length = snprintf(line, TUNE_LINE_BYTES, "%u %u %u %s %s %s %u %s\n", shape->rows, shape->n,
                          shape->k, format_info((enum format)shape->w_format).name, kinds[i].x,
                          dtype_word(shape->y_dtype), shape->bias, choices[choice]);
    return length > 0 && length < TUNE_LINE_BYTES ? (size_t)length : 0;
}

static bool kind_read(const char *w, const char *x, struct lt_shape *to)
{
    for (size_t i = 0; i < KINDS; i++)
        if (!strcmp(x, kinds[i].x) &&
            !strcmp(w, format_info((enum format)kinds[i].w_format).name)) {
            to->w_format = kinds[i].w_format;
            to->x_dtype = kinds[i].x_dtype;
            return true;
        }
    return false;
}

static bool dtype_read(const char *word, uint8_t *ret)
{
    for (uint32_t dtype = DTYPE_F32; dtype <= DTYPE_F16; dtype++)
        if (!strcmp(word, dtype_word(dtype))) {
            *ret = (uint8_t)dtype;
            return true;
        }
    return false;
}

static bool choice_read(const char *word, uint32_t *ret)
{
    for (uint32_t choice = 0; choice <= TUNE_TILES; choice++)
        if (!strcmp(word, choices[choice])) {
            *ret = choice;
            return true;
        }
    return false;
}

bool tune_line_read(const char *line, struct lt_shape *ret_shape, uint32_t *ret_choice)
{
    struct lt_shape shape = {.rows = 0};
    char w[16], x[16], y[16], chosen[16];
    unsigned bias;
    uint32_t choice;
    int used = 0;
    if (sscanf(line, "%7u %9u %9u %15s %15s %15s %1u %15s%n", &shape.rows, &shape.n, &shape.k, w, x,
               y, &bias, chosen, &used) != 8 ||
        line[used] != '\n')
        return false;
    bool wraps = shape.rows > 9999999 || shape.n > 999999999 || shape.k > 999999999; /* a sign */
    if (wraps || shape.rows <= GEMV_ROWS_MAX || !shape.n || !shape.k || bias > 1 ||
        !choice_read(chosen, &choice) || !kind_read(w, x, &shape) || !dtype_read(y, &shape.y_dtype))
        return false;
    shape.bias = (uint8_t)bias;
    *ret_shape = shape;
    *ret_choice = choice;
    return true;
}
