#include "client/program/picture.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "client/tensor/array_file.h"
#include "client/tensor/png.h"
#include "protocol/base/tensor.h"

#define CELL 16u /* pixels of a value each way, where no image came in */

/* What is drawn: rows x columns of values from 0 to 1, over an image or alone. */
struct picture {
    uint32_t width, height, rows, columns;
    double *values;
    const unsigned char *under; /* NULL: no image came in */
};

const struct task_output *picture_output(const struct task *task)
{
    for (size_t i = 0; i < task->output_count; i++)
        if (task->outputs[i].array.rank == PICTURE_RANK)
            return &task->outputs[i];
    return NULL;
}

/* The first input that is an image. */
static const sluice_array *image_of(const struct task *task)
{
    for (size_t i = 0; i < task->input_count; i++) {
        const sluice_array *input = &task->inputs[i];
        if (input->dtype == TENSOR_U8 && input->rank == 3 && input->shape[2] == 3 &&
            input->shape[0] <= PNG_SIDE_MAX && input->shape[1] <= PNG_SIDE_MAX)
            return input;
    }
    return NULL;
}

/* ---- values ------------------------------------------------------------------------------------
 */

#define VALUE(name, type)                                                                          \
    static double name(const unsigned char *data, size_t i)                                        \
    {                                                                                              \
        type value;                                                                                \
        memcpy(&value, data + i * sizeof(value), sizeof(value));                                   \
        return (double)value;                                                                      \
    }
VALUE(value_u8, uint8_t)
VALUE(value_u16, uint16_t)
VALUE(value_u32, uint32_t)
VALUE(value_u64, uint64_t)
VALUE(value_i8, int8_t)
VALUE(value_i16, int16_t)
VALUE(value_i32, int32_t)
VALUE(value_i64, int64_t)
VALUE(value_f32, float)
VALUE(value_f64, double)

static double (*reader_of(int dtype))(const unsigned char *data, size_t i)
{
    static double (*const readers[])(const unsigned char *data, size_t i) = {
        [TENSOR_BOOL] = value_u8, [TENSOR_U8] = value_u8,   [TENSOR_U16] = value_u16,
        [TENSOR_U32] = value_u32, [TENSOR_U64] = value_u64, [TENSOR_I8] = value_i8,
        [TENSOR_I16] = value_i16, [TENSOR_I32] = value_i32, [TENSOR_I64] = value_i64,
        [TENSOR_F32] = value_f32, [TENSOR_F64] = value_f64};
    return dtype > 0 && (size_t)dtype < sizeof(readers) / sizeof(readers[0]) ? readers[dtype]
                                                                             : NULL;
}

/* From the least to the greatest; what is no number is the least, and if all are alike, in the
 * middle. */
static void stretch(double *values, size_t count)
{
    double least = INFINITY, greatest = -INFINITY;
    for (size_t i = 0; i < count; i++) {
        if (!isfinite(values[i]))
            continue;
        least = fmin(least, values[i]);
        greatest = fmax(greatest, values[i]);
    }
    for (size_t i = 0; i < count; i++)
        values[i] = !(greatest > least) ? 0.5
                    : !isfinite(values[i])
                        ? 0
                        : (values[i] / 2 - least / 2) / (greatest / 2 - least / 2);
}

static int read_values(struct picture *picture, const struct task_output *output,
                       struct error *error)
{
    double (*read)(const unsigned char *data, size_t i) = reader_of(output->array.dtype);
    const size_t count = (size_t)picture->rows * picture->columns;
    if (!read)
        return error_set(error, ERR_UNSUPPORTED, "output %s is %s, of which no picture is drawn",
                         output->name, tensor_dtype_name((uint32_t)output->array.dtype));
    picture->values = malloc(count * sizeof(double));
    if (!picture->values)
        return error_set(error, ERR_NO_MEMORY, "no memory for a picture");
    for (size_t i = 0; i < count; i++)
        picture->values[i] = read(output->data, i);
    stretch(picture->values, count);
    return 0;
}

/* ---- pixels ------------------------------------------------------------------------------------
 */

/* From dark blue by red to light yellow: darker is less in grey, too. */
static void colour(double value, double rgb[3])
{
    static const double stops[5][3] = {
        {10, 10, 60}, {90, 20, 110}, {200, 50, 80}, {250, 140, 40}, {250, 250, 170}};
    const int last = 3, below = (int)(value * 4) < last ? (int)(value * 4) : last;
    const double rest = value * 4 - below;
    for (int i = 0; i < 3; i++)
        rgb[i] = stops[below][i] + (stops[below + 1][i] - stops[below][i]) * rest;
}

/* Which of `cells` the place of so many is in: cell c begins at c * places / cells, rounded down.
 */
static uint32_t cell_of(uint32_t place, uint32_t places, uint32_t cells)
{
    return (uint32_t)((((uint64_t)place + 1) * cells - 1) / places);
}

static void draw_pixel(const struct picture *picture, uint32_t x, uint32_t y, unsigned char *out)
{
    const uint32_t row = cell_of(y, picture->height, picture->rows);
    const uint32_t column = cell_of(x, picture->width, picture->columns);
    double rgb[3], light = 0;
    colour(picture->values[(size_t)row * picture->columns + column], rgb);
    if (picture->under) {
        const unsigned char *at = picture->under + ((size_t)y * picture->width + x) * 3;
        light = 0.2126 * at[0] + 0.7152 * at[1] + 0.0722 * at[2];
    }
    for (int i = 0; i < 3; i++)
        out[i] = (unsigned char)lround(picture->under ? 0.6 * rgb[i] + 0.4 * light : rgb[i]);
}

static int draw(const struct picture *picture, const char *path, struct error *error)
{
    unsigned char *pixels = malloc((size_t)picture->width * picture->height * 3);
    if (!pixels)
        return error_set(error, ERR_NO_MEMORY, "no memory for a picture");
    for (uint32_t y = 0; y < picture->height; y++)
        for (uint32_t x = 0; x < picture->width; x++)
            draw_pixel(picture, x, y, pixels + ((size_t)y * picture->width + x) * 3);
    int rc = array_write_picture(path, picture->width, picture->height, pixels, error);
    free(pixels);
    return rc;
}

int picture_write(const struct task *task, struct error *error)
{
    const struct task_output *output = picture_output(task);
    const sluice_array *image = image_of(task);
    const uint64_t rows = output->array.shape[0], columns = output->array.shape[1];
    const uint64_t height = image ? image->shape[0] : rows * CELL;
    const uint64_t width = image ? image->shape[1] : columns * CELL;
    if (rows > height || columns > width || height > PNG_SIDE_MAX || width > PNG_SIDE_MAX)
        return error_limit(error, ERR_TOO_LARGE, PNG_SIDE_MAX, rows > columns ? rows : columns,
                           "output %s has more values than a picture has pixels for", output->name);
    struct picture picture = {.width = (uint32_t)width,
                              .height = (uint32_t)height,
                              .rows = (uint32_t)rows,
                              .columns = (uint32_t)columns,
                              .under = image ? image->data : NULL};
    int rc = read_values(&picture, output, error);
    if (!rc)
        rc = draw(&picture, task->picture, error);
    free(picture.values);
    return rc;
}
