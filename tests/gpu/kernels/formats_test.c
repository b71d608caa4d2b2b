/* Products of weights in 8 and 4 bits, with inputs as they are and rounded, against plain doubles;
 * of the CPU device, the only one that has them. */
#include <math.h>

#include "gpu/kernels/matmul/matmul.h"
#include "tests/gpu/kernels/rig.h"
#include "tests/gpu/kernels/suites.h"

struct shape {
    uint32_t rows, n, k;
    uint32_t scale_n, scale_k;
    enum weight_rounding rounding;
    uint32_t group;
    enum dtype x;
    bool bias;
    enum format format;
    bool zeros, ordered;
};

static const struct shape shapes[] = {
    {1, 1, 1, 0, 0, ROUNDING_NONE, 0, DTYPE_F32, false, FORMAT_E4M3, false, false},
    {9, 67, 333, 0, 0, ROUNDING_TOKEN, 0, DTYPE_F32, true, FORMAT_E4M3, false, false},
    {17, 130, 64, 1, 0, ROUNDING_TOKEN, 0, DTYPE_BF16, true, FORMAT_E4M3, false, false},
    {3, 200, 300, 128, 128, ROUNDING_GROUP, 128, DTYPE_F32, false, FORMAT_E4M3, false, false},
    {8, 130, 1030, 2, 2, ROUNDING_GROUP, 128, DTYPE_F32, true, FORMAT_E4M3, false, false},
    {33, 65, 513, 1, 128, ROUNDING_NONE, 0, DTYPE_F16, false, FORMAT_E4M3, false, false},
    {5, 40, 2048, 0, 0, ROUNDING_STATIC, 0, DTYPE_F32, false, FORMAT_E4M3, false, false},
    {2, 7, 4099, 128, 64, ROUNDING_GROUP, 32, DTYPE_F32, false, FORMAT_E4M3, false, false},
    {9, 67, 384, 1, 128, ROUNDING_NONE, 0, DTYPE_F32, true, FORMAT_U4, true, false},
    {3, 33, 333, 1, 32, ROUNDING_NONE, 0, DTYPE_F32, false, FORMAT_U4, false, false},
    {8, 40, 2050, 1, 64, ROUNDING_NONE, 0, DTYPE_BF16, false, FORMAT_U4, true, true},
    {4, 20, 1500, 1, 0, ROUNDING_TOKEN, 0, DTYPE_F32, true, FORMAT_U8, true, true},
    {17, 9, 600, 1, 1, ROUNDING_NONE, 0, DTYPE_F16, false, FORMAT_U8, true, false},
};

struct product {
    struct tensor x, bias, scales;
    struct matmul_args args;
    uint8_t *bytes, *zeros;
    uint32_t *order;
};

static double e4m3_value(uint8_t byte)
{
    int exponent = byte >> 3 & 15, fraction = byte & 7;
    double value = exponent ? ldexp(8 + fraction, exponent - 10) : ldexp(fraction, -9);
    return byte & 0x80 ? -value : value;
}

/* By looking at all of them. */
static double e4m3_nearest(double x)
{
    uint8_t best = 0;
    for (uint8_t i = 1; i < 0x7f; i++) {
        double off = fabs(fabs(x) - e4m3_value(i)), least = fabs(fabs(x) - e4m3_value(best));
        if (off < least || (off == least && i % 2 == 0))
            best = i;
    }
    return copysign(e4m3_value(best), x);
}

/* What the element at (n, k) is, before its scale. */
static double element_of(const struct shape *s, const struct product *p, uint32_t n, uint32_t k)
{
    const uint8_t *row = p->bytes + format_bytes(p->args.w.format, n, s->k);
    uint32_t columns = s->scale_k ? (s->k + s->scale_k - 1) / s->scale_k : 1;
    uint32_t at = (s->scale_n ? n / s->scale_n : 0) * columns + (s->scale_k ? k / s->scale_k : 0);
    double zero = s->zeros ? p->zeros[at] : 0;
    if (p->args.w.format == FORMAT_E4M3)
        return e4m3_value(row[k]);
    if (p->args.w.format == FORMAT_U8)
        return row[k] - zero;
    return (row[k / 2] >> (k % 2 ? 4 : 0) & 15) - zero;
}

/* A turn of the columns by a third, and pairs exchanged. */
static uint32_t *order_make(uint32_t k)
{
    uint32_t *order = malloc(k * sizeof *order);
    for (uint32_t i = 0; i < k; i++)
        order[i] = (i + k / 3) % k;
    for (uint32_t i = 0; i + 1 < k; i += 2) {
        uint32_t first = order[i];
        order[i] = order[i + 1];
        order[i + 1] = first;
    }
    return order;
}

static void product_free(struct product *p)
{
    free(p->bytes);
    free(p->zeros);
    free(p->order);
}

static struct product product_make(const struct shape *s)
{
    enum format format = s->format;
    size_t size = format_bytes(format, s->n, s->k);
    struct product p = {.bytes = malloc(size), .order = order_make(s->k)};
    for (size_t i = 0; i < size; i++)
        while (((p.bytes[i] = (uint8_t)rig_random()) & 0x7f) == 0x7f)
            continue;
    uint32_t rows = s->scale_n ? (s->n + s->scale_n - 1) / s->scale_n : 1;
    uint32_t columns = s->scale_k ? (s->k + s->scale_k - 1) / s->scale_k : 1;
    p.zeros = malloc((size_t)rows * columns);
    for (uint32_t i = 0; i < rows * columns; i++)
        p.zeros[i] = (uint8_t)(rig_random() % (format == FORMAT_U4 ? 17 : 256));
    p.scales = tensor_random(DTYPE_F32, 1, rows * columns, 0.01f);
    p.x = tensor_random(s->x, s->rows, s->k, 3);
    p.bias = tensor_random(DTYPE_F32, 1, s->n, 1);
    p.args = (struct matmul_args){
        .rows = rig_span(s->rows, 0, s->rows),
        .w = {.data = rig_new(p.bytes, size),
              .format = format,
              .n = s->n,
              .k = s->k,
              .scales = {p.scales.device, DTYPE_F32, s->scale_n, s->scale_k},
              .zeros = s->zeros ? rig_new(p.zeros, (size_t)rows * columns) : NULL,
              .order = s->ordered ? rig_new(p.order, s->k * sizeof *p.order) : NULL,
              .input = {s->rounding, s->group, 0.02f}},
        .bias = s->bias ? p.bias.device : NULL,
        .x = p.x.device,
        .x_stride = p.x.stride,
        .x_dtype = s->x,
    };
    return p;
}

/* What the element of x becomes; the arithmetic of the scale is float32, as it is defined. */
static double input_of(const struct shape *s, const struct product *p, uint32_t row, uint32_t k)
{
    float value = tensor_at(&p->x, row, k), greatest = 0, scale;
    uint32_t size = s->rounding == ROUNDING_GROUP ? s->group : s->k, first = k / size * size;
    if (s->rounding == ROUNDING_NONE)
        return (double)value;
    for (uint32_t i = first; i < s->k && i < first + size; i++)
        greatest = fmaxf(greatest, fabsf(tensor_at(&p->x, row, i)));
    scale = s->rounding == ROUNDING_STATIC ? p->args.w.input.scale : greatest / 448.0f;
    return e4m3_nearest((double)(value / scale)) * (double)scale;
}

static double scale_of(const struct shape *s, const struct product *p, uint32_t n, uint32_t k)
{
    uint32_t columns = s->scale_k ? (s->k + s->scale_k - 1) / s->scale_k : 1;
    uint32_t row = s->scale_n ? n / s->scale_n : 0, column = s->scale_k ? k / s->scale_k : 0;
    return (double)tensor_at(&p->scales, 0, row * columns + column);
}

static void check_row(const struct shape *s, const struct product *p, const struct tensor *y,
                      uint32_t row)
{
    double *x = malloc(s->k * sizeof *x);
    for (uint32_t k = 0; k < s->k; k++)
        x[k] = input_of(s, p, row, s->ordered ? p->order[k] : k);
    for (uint32_t n = 0; n < s->n; n++) {
        double sum = s->bias ? (double)tensor_at(&p->bias, 0, n) : 0, size = fabs(sum);
        for (uint32_t k = 0; k < s->k; k++) {
            double term = x[k] * element_of(s, p, n, k) * scale_of(s, p, n, k);
            sum += term;
            size += fabs(term);
        }
        check_close((double)tensor_at(y, row, n), sum, DTYPE_F32, size * 0x1p-23 * sqrt(s->k));
    }
    free(x);
}

START_TEST(products_are_those_of_what_the_bytes_stand_for)
{
    const struct shape *s = &shapes[_i];
    rig_begin();
    struct product p = product_make(s);
    struct tensor y = tensor_poison(DTYPE_F32, s->rows, s->n);
    p.args.y = y.device;
    p.args.y_stride = y.stride;
    OK(op_matmul(&p.args, rig_stream));
    ck_assert(tensor_untouched(&y, s->rows));
    tensor_read(&y);
    for (uint32_t row = 0; row < s->rows; row++)
        check_row(s, &p, &y, row);
    /* Each row alone has the same bits. */
    struct tensor one = tensor_poison(DTYPE_F32, 1, s->n);
    uint32_t row = s->rows / 2;
    p.args.rows = rig_span(1, 0, 1);
    p.args.x = (const char *)p.x.device + (size_t)row * p.x.stride * dtype_bytes(s->x);
    p.args.y = one.device;
    p.args.y_stride = one.stride;
    OK(op_matmul(&p.args, rig_stream));
    tensor_read(&one);
    for (uint32_t n = 0; n < s->n; n++)
        ck_assert(tensor_at(&one, 0, n) == tensor_at(&y, row, n));
    product_free(&p);
    rig_end();
}
END_TEST

/* Rows of zeros have no greatest to go by; what is infinite is no number in the end. */
START_TEST(rows_of_zeros_give_zeros_and_infinity_is_not_hidden)
{
    static const struct shape shape = {2, 5,         200,   1,           0,     ROUNDING_TOKEN,
                                       0, DTYPE_F32, false, FORMAT_E4M3, false, false};
    struct shape s = shape;
    s.rounding = _i ? ROUNDING_GROUP : ROUNDING_TOKEN;
    s.group = 128;
    rig_begin();
    struct product p = product_make(&s);
    float x[400] = {0};
    x[203] = INFINITY;
    struct tensor y = tensor_poison(DTYPE_F32, 2, s.n);
    p.args.x = rig_new(x, sizeof x);
    p.args.x_stride = 200;
    p.args.y = y.device;
    p.args.y_stride = y.stride;
    OK(op_matmul(&p.args, rig_stream));
    tensor_read(&y);
    for (uint32_t n = 0; n < s.n; n++) {
        ck_assert(tensor_at(&y, 0, n) == 0);
        ck_assert(!isfinite(tensor_at(&y, 1, n)));
    }
    product_free(&p);
    rig_end();
}
END_TEST

Suite *formats_suite(void)
{
    Suite *suite = suite_create("formats");
    TCase *tcase = tcase_create("formats");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, products_are_those_of_what_the_bytes_stand_for, 0,
                        (int)(sizeof shapes / sizeof *shapes));
    tcase_add_loop_test(tcase, rows_of_zeros_give_zeros_and_infinity_is_not_hidden, 0, 2);
    suite_add_tcase(suite, tcase);
    return suite;
}
