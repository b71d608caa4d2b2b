/* Weights into their place: convert and fill. */
#include <math.h>

#include "gpu/kernels/cpu/number.h"
#include "gpu/kernels/load/convert.h"
#include "gpu/kernels/load/fill.h"
#include "gpu/kernels/load/narrow.h"
#include "tests/gpu/kernels/rig.h"
#include "tests/gpu/kernels/suites.h"

START_TEST(convert_puts_rows_and_columns_where_they_belong)
{
    enum dtype from_dtype = (enum dtype)(_i % 3), to_dtype = (enum dtype)(_i / 3);
    rig_begin();
    uint32_t width = 1300, rows = 24, columns = 1100;
    float *values = malloc(rows * width * sizeof *values);
    void *stored = malloc(rows * width * sizeof *values);
    for (uint32_t i = 0; i < rows * width; i++)
        values[i] = rig_normal();
    number_round(stored, values, from_dtype, rows * width);
    number_widen(values, stored, from_dtype, rows * width);
    struct tensor to = tensor_poison(to_dtype, 3 + 48, columns);
    struct convert_args args = {
        .place = {.rows = rows,
                  .column = 150,
                  .columns = columns,
                  .width = width,
                  .to = 3,
                  .run = 8,
                  .step = 16,
                  .to_stride = to.stride},
        .from = rig_new(stored, (size_t)rows * width * dtype_bytes(from_dtype)),
        .to = to.device,
        .from_dtype = from_dtype,
        .to_dtype = to_dtype,
    };
    OK(op_convert(&args, rig_stream));
    ck_assert(tensor_untouched(&to, 3 + 40));
    tensor_read(&to);
    for (uint32_t i = 0; i < rows; i++)
        for (uint32_t j = 0; j < columns; j++)
            check_close((double)tensor_at(&to, 3 + i / 8 * 16 + i % 8, j),
                        (double)values[i * width + 150 + j], to_dtype, 0);
    free(values);
    free(stored);
    rig_end();
}
END_TEST

/* Heads of 16 elements of which 12 are turned; where a model has each, by where it is wanted. */
#define HEAD 16
static const uint32_t halves_from[HEAD] = {0, 1, 2, 3, 4, 5, 12, 13, 6, 7, 8, 9, 10, 11, 14, 15};
static const uint32_t adjacent_from[HEAD] = {0, 2, 4, 6, 8, 10, 12, 13, 1, 3, 5, 7, 9, 11, 14, 15};
static const uint32_t whole_from[HEAD] = {0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15};

static const struct {
    struct slice_order order;
    const uint32_t *from;
} orders[] = {
    {{.head_dim = HEAD, .rotary = 12}, halves_from},
    {{.head_dim = HEAD, .rotary = 12, .adjacent = true}, adjacent_from},
    {{.head_dim = HEAD, .rotary = HEAD, .adjacent = true}, whole_from},
};
#define ORDERS (int)(sizeof orders / sizeof *orders)

/* Row `row` of a part's target, in the tensor's rows. */
static uint32_t ordered_from(int i, uint32_t row)
{
    return row / HEAD * HEAD + orders[i].from[row % HEAD];
}

/* In pieces that end inside a head, as a loader's do. */
START_TEST(rows_of_heads_change_places_when_they_are_converted)
{
    const uint32_t rows = 3 * HEAD, columns = _i / ORDERS ? 1 : 37, before = 5;
    static const uint32_t ends[] = {0, 7, 30, 31, 48};
    rig_begin();
    float *values = malloc(rows * columns * sizeof *values);
    for (uint32_t i = 0; i < rows * columns; i++)
        values[i] = rig_normal();
    struct tensor to = tensor_poison(DTYPE_F32, before + rows, columns);
    for (int piece = 0; piece < 4; piece++) {
        struct convert_args args = {
            .place = {.rows = ends[piece + 1] - ends[piece],
                      .columns = columns,
                      .width = columns,
                      .to = before + ends[piece],
                      .run = rows,
                      .step = rows,
                      .to_stride = to.stride,
                      .order = orders[_i % ORDERS].order},
            .from = rig_new(values + ends[piece] * columns,
                            (ends[piece + 1] - ends[piece]) * columns * sizeof *values),
            .to = to.device,
        };
        args.place.order.first = ends[piece];
        OK(op_convert(&args, rig_stream));
    }
    tensor_read(&to);
    for (uint32_t i = 0; i < rows; i++)
        for (uint32_t j = 0; j < columns; j++)
            ck_assert(tensor_at(&to, before + i, j) ==
                      values[ordered_from(_i % ORDERS, i) * columns + j]);
    free(values);
    rig_end();
}
END_TEST

static struct tensor filled(uint64_t row, uint32_t rows, uint32_t column, uint32_t columns,
                            uint32_t tensor, uint64_t seed)
{
    struct tensor to = tensor_poison(DTYPE_F32, rows, columns);
    struct fill_args args = {
        .place = {.row = row,
                  .rows = rows,
                  .column = column,
                  .columns = columns,
                  .width = 4096,
                  .run = rows,
                  .step = rows,
                  .to_stride = to.stride},
        .to = to.device,
        .tensor = tensor,
        .seed = seed,
        .mean = 0.5f,
        .deviation = 0.02f,
    };
    OK(op_fill(&args, rig_stream));
    ck_assert(tensor_untouched(&to, rows));
    tensor_read(&to);
    return to;
}

START_TEST(filled_weights_are_normal)
{
    rig_begin();
    struct tensor to = filled(0, 256, 0, 4096, 3, 42);
    double sum = 0, squares = 0, fourth = 0, neighbours = 0, count = 256 * 4096.0;
    uint32_t within = 0;
    for (uint32_t r = 0; r < 256; r++)
        for (uint32_t c = 0; c < 4096; c++) {
            double z = ((double)tensor_at(&to, r, c) - 0.5) / 0.02;
            sum += z;
            squares += z * z;
            fourth += z * z * z * z;
            within += fabs(z) < 1;
            if (c)
                neighbours += z * ((double)tensor_at(&to, r, c - 1) - 0.5) / 0.02;
        }
    ck_assert(fabs(sum / count) < 0.005);
    ck_assert(fabs(squares / count - 1) < 0.005);
    ck_assert(fabs(fourth / count - 2.85) < 0.05);
    ck_assert(fabs(within / count - 0.6827) < 0.01);
    ck_assert(fabs(neighbours / count) < 0.005);
    rig_end();
}
END_TEST

START_TEST(a_filled_element_depends_on_seed_tensor_row_and_column_alone)
{
    rig_begin();
    struct tensor whole = filled(0, 64, 0, 4096, 1, 7), part = filled(20, 30, 1000, 1500, 1, 7);
    struct tensor other = filled(0, 64, 0, 4096, 2, 7), reseeded = filled(0, 64, 0, 4096, 1, 8);
    uint32_t same = 0;
    for (uint32_t r = 0; r < 30; r++)
        for (uint32_t c = 0; c < 1500; c++) {
            ck_assert(tensor_at(&part, r, c) == tensor_at(&whole, r + 20, c + 1000));
            same += tensor_at(&whole, r, c) == tensor_at(&other, r, c);
            same += tensor_at(&whole, r, c) == tensor_at(&reseeded, r, c);
        }
    ck_assert_uint_lt(same, 2 * 30 * 1500 / 300);
    /* A value that must never change: synthetic models are compared between devices by it. */
    ck_assert_uint_eq(float_bits(tensor_at(&whole, 0, 0)), 0x3f0664aau);
    ck_assert_uint_eq(float_bits(tensor_at(&whole, 63, 4095)), 0x3eee0547u);
    rig_end();
}
END_TEST

static double format_value(enum format format, uint8_t byte)
{
    int exponent = byte >> 3 & 15, fraction = byte & 7;
    if (format != FORMAT_E4M3)
        return byte;
    double value = exponent ? ldexp(8 + fraction, exponent - 10) : ldexp(fraction, -9);
    return byte & 0x80 ? -value : value;
}

/* The byte whose value is nearest; of two the even one, and what is too great is cut. */
static uint8_t format_nearest(enum format format, double x)
{
    uint32_t best = 0, count = format == FORMAT_U4 ? 16 : 256;
    for (uint32_t i = 1; i < count; i++) {
        double off = fabs(x - format_value(format, (uint8_t)i));
        double least = fabs(x - format_value(format, (uint8_t)best));
        if (format == FORMAT_E4M3 && (i & 0x7f) == 0x7f)
            continue;
        if (off < least || (off == least && i % 2 == 0 && i != 0x80))
            best = i;
    }
    return (uint8_t)(best == 0 && signbit(x) && format == FORMAT_E4M3 ? 0x80 : best);
}

/* Rows of odd lengths, so that those of u4 begin at any byte; some values are cut at both ends. */
START_TEST(formats_are_filled_with_the_nearest_of_the_same_values)
{
    static const enum format formats[] = {FORMAT_E4M3, FORMAT_U4, FORMAT_U8};
    static const float deviations[] = {150, 5, 80};
    enum format format = formats[_i / 2];
    uint32_t rows = 2 * HEAD, columns = _i % 2 ? 333 : 17;
    rig_begin();
    float mean = format == FORMAT_E4M3 ? 0 : format == FORMAT_U4 ? 8 : 128;
    struct tensor plain = tensor_poison(DTYPE_F32, rows, columns);
    size_t row_bytes = format_bytes(format, 1, columns), size = rows * row_bytes;
    uint8_t *bytes = malloc(size);
    struct fill_args args = {.place = {.row = 5,
                                       .rows = rows,
                                       .column = 3,
                                       .columns = columns,
                                       .width = 999,
                                       .run = rows,
                                       .step = rows,
                                       .to_stride = plain.stride,
                                       .order = orders[0].order},
                             .to = plain.device,
                             .tensor = 4,
                             .seed = 11,
                             .mean = mean,
                             .deviation = deviations[_i / 2]};
    OK(op_fill(&args, rig_stream));
    tensor_read(&plain);
    args.to = rig_new(NULL, size);
    args.format = format;
    args.place.to_stride = (uint32_t)row_bytes;
    OK(op_fill(&args, rig_stream));
    rig_read(bytes, args.to, size);
    for (uint32_t i = 0; i < rows; i++)
        for (uint32_t j = 0; j < columns; j++) {
            const uint8_t *row = bytes + i * row_bytes;
            uint8_t got = format != FORMAT_U4 ? row[j] : (uint8_t)(row[j / 2] >> j % 2 * 4 & 15);
            ck_assert_uint_eq(got, format_nearest(format, (double)tensor_at(&plain, i, j)));
        }
    if (format == FORMAT_U4 && columns % 2)
        ck_assert_uint_eq(bytes[row_bytes - 1] >> 4, 0);
    free(bytes);
    rig_end();
}
END_TEST

/* Rows of a part among others, some of zeros, next to nothing and no number, in the order of heads.
 */
START_TEST(rows_are_narrowed_each_by_its_own_scale)
{
    const uint32_t rows = 2 * HEAD, columns = 333, column = 5, width = 400;
    enum dtype dtype = (enum dtype)(_i % 3);
    rig_begin();
    struct tensor from = tensor_random(dtype, rows, width, 0.02f);
    float *x = malloc((size_t)rows * width * sizeof *x);
    for (uint32_t i = 0; i < rows; i++)
        for (uint32_t j = 0; j < width; j++)
            x[i * width + j] = i == 3                         ? 0
                               : i == 4 && dtype == DTYPE_F32 ? 1e-43f
                               : i == 5 && j == 200           ? INFINITY
                                                              : tensor_at(&from, i, j);
    uint8_t *numbers = malloc((size_t)rows * width * 4), *bytes = malloc((size_t)rows * columns);
    for (uint32_t i = 0; i < rows * width; i++)
        number_round(number_at(numbers, dtype, i), &x[i], dtype, 1);
    float scales[2 * HEAD];
    struct narrow_args args = {.place = {.rows = rows,
                                         .column = column,
                                         .columns = columns,
                                         .width = width,
                                         .run = rows,
                                         .step = rows,
                                         .to_stride = columns,
                                         .order = orders[_i / 3].order},
                               .from = rig_new(numbers, (size_t)rows * width * dtype_bytes(dtype)),
                               .from_dtype = dtype,
                               .to = rig_new(NULL, (size_t)rows * columns),
                               .scales = rig_new(NULL, sizeof scales)};
    OK(op_narrow(&args, rig_stream));
    rig_read(bytes, args.to, (size_t)rows * columns);
    rig_read(scales, args.scales, sizeof scales);
    for (uint32_t i = 0; i < rows; i++) {
        const float *row = x + ordered_from(_i / 3, i) * width + column;
        float greatest = 0;
        for (uint32_t j = 0; j < columns; j++)
            greatest = fmaxf(greatest, fabsf(row[j]));
        float scale = greatest > 0 ? fmaxf(greatest / 448, 0x1p-126f) : 1;
        ck_assert(scales[i] == scale);
        for (uint32_t j = 0; j < columns; j++) {
            uint8_t got = bytes[i * columns + j];
            float value = row[j] / scale;
            if (isinf(scale))
                ck_assert_uint_eq(got & 0x7f, isinf(row[j]) ? 0x7f : 0);
            else
                ck_assert_uint_eq(got, format_nearest(FORMAT_E4M3, (double)value));
        }
    }
    free(x);
    free(numbers);
    free(bytes);
    rig_end();
}
END_TEST

START_TEST(rows_of_heads_change_places_when_they_are_filled)
{
    rig_begin();
    struct tensor plain = filled(20, 3 * HEAD, 100, 50, 1, 7);
    struct tensor to = tensor_poison(DTYPE_F32, 3 * HEAD, 50);
    struct fill_args args = {
        .place = {.row = 20,
                  .rows = 3 * HEAD,
                  .column = 100,
                  .columns = 50,
                  .width = 4096,
                  .run = 3 * HEAD,
                  .step = 3 * HEAD,
                  .to_stride = to.stride,
                  .order = orders[_i].order},
        .to = to.device,
        .tensor = 1,
        .seed = 7,
        .mean = 0.5f,
        .deviation = 0.02f,
    };
    OK(op_fill(&args, rig_stream));
    tensor_read(&to);
    for (uint32_t i = 0; i < 3 * HEAD; i++)
        for (uint32_t j = 0; j < 50; j++)
            ck_assert(tensor_at(&to, i, j) == tensor_at(&plain, ordered_from(_i, i), j));
    rig_end();
}
END_TEST

Suite *place_suite(void)
{
    Suite *suite = suite_create("kernels: weights");
    TCase *tcase = tcase_create("place");
    tcase_add_loop_test(tcase, convert_puts_rows_and_columns_where_they_belong, 0, 9);
    tcase_add_loop_test(tcase, rows_of_heads_change_places_when_they_are_converted, 0, 2 * ORDERS);
    tcase_add_loop_test(tcase, rows_of_heads_change_places_when_they_are_filled, 0, ORDERS);
    tcase_add_loop_test(tcase, formats_are_filled_with_the_nearest_of_the_same_values, 0, 6);
    tcase_add_loop_test(tcase, rows_are_narrowed_each_by_its_own_scale, 0, 3 * ORDERS);
    tcase_add_test(tcase, filled_weights_are_normal);
    tcase_add_test(tcase, a_filled_element_depends_on_seed_tensor_row_and_column_alone);
    suite_add_tcase(suite, tcase);
    return suite;
}
