/* Products of weights in 8 and 4 bits, with inputs as they are and rounded, against plain doubles.
 */
#include <math.h>

#include "gpu/kernels/matmul/cublaslt_tune.h"
#include "gpu/kernels/matmul/matmul.h"
#include "gpu/kernels/norm/norm.h"
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
    enum { NOTHING, ADDS, GATED, GELU } behind;
};

#define E4M3 FORMAT_E4M3
#define BOUND 0.018f /* of scales by token, of odd numbers of rows: some rows reach it */

static const struct shape shapes[] = {
    /* CUDA: up to 16 rows by a kernel of our own, with scales of all, of rows and of blocks. */
    {1, 1000, 4096, 1, 0, ROUNDING_TOKEN, 0, DTYPE_BF16, false, E4M3, false, false, NOTHING},
    {2, 1000, 4112, 1, 0, ROUNDING_TOKEN, 0, DTYPE_BF16, true, E4M3, false, false, ADDS},
    {1, 1040, 528, 1, 0, ROUNDING_TOKEN, 0, DTYPE_F16, true, E4M3, false, false, GATED},
    {2, 80, 8192, 0, 0, ROUNDING_STATIC, 0, DTYPE_BF16, false, E4M3, false, false, GELU},
    {1, 16640, 272, 1, 0, ROUNDING_TOKEN, 0, DTYPE_BF16, false, E4M3, false, false, ADDS},
    {12, 1040, 784, 1, 0, ROUNDING_TOKEN, 0, DTYPE_BF16, true, E4M3, false, false, GATED},
    {2, 1037, 2560, 0, 0, ROUNDING_TOKEN, 0, DTYPE_F16, true, E4M3, false, false, NOTHING},
    {8, 96, 14336, 1, 0, ROUNDING_TOKEN, 0, DTYPE_BF16, false, E4M3, false, false, ADDS},
    {9, 64, 1040, 1, 0, ROUNDING_STATIC, 0, DTYPE_BF16, true, E4M3, false, false, NOTHING},
    {16, 272, 512, 1, 0, ROUNDING_TOKEN, 0, DTYPE_BF16, false, E4M3, false, false, GATED},
    {3, 48, 4608, 0, 0, ROUNDING_TOKEN, 0, DTYPE_F16, true, E4M3, false, false, GELU},
    {1, 384, 4096, 128, 128, ROUNDING_GROUP, 128, DTYPE_BF16, false, E4M3, false, false, NOTHING},
    {7, 300, 1408, 128, 128, ROUNDING_GROUP, 128, DTYPE_BF16, false, E4M3, false, false, ADDS},
    {16, 512, 896, 128, 128, ROUNDING_GROUP, 128, DTYPE_F16, false, E4M3, false, false, GATED},
    {1, 136, 4096, 1, 0, ROUNDING_NONE, 0, DTYPE_BF16, false, E4M3, false, false, NOTHING},
    {13, 72, 1536, 1, 128, ROUNDING_NONE, 0, DTYPE_F16, true, E4M3, false, false, NOTHING},
    {5, 80, 2048, 1, 0, ROUNDING_NONE, 0, DTYPE_BF16, false, E4M3, false, false, GATED},
    /* Where a block of sm_90 has several tiles, whose steps are more than its ring's stages. */
    {2, 17024, 2048, 1, 0, ROUNDING_TOKEN, 0, DTYPE_BF16, false, E4M3, false, false, GATED},
    {1, 8576, 1664, 128, 128, ROUNDING_GROUP, 128, DTYPE_BF16, false, E4M3, false, false, NOTHING},
    {1, 4096, 9216, 1, 0, ROUNDING_TOKEN, 0, DTYPE_BF16, false, E4M3, false, false, ADDS},
    /* More rows: by cuBLASLt, scaled behind it or by it; through 16 bits; shapes it refuses. */
    {17, 256, 1024, 1, 0, ROUNDING_TOKEN, 0, DTYPE_BF16, false, E4M3, false, false, ADDS},
    {33, 512, 512, 1, 0, ROUNDING_TOKEN, 0, DTYPE_BF16, false, E4M3, false, false, GATED},
    {64, 64, 2048, 0, 0, ROUNDING_STATIC, 0, DTYPE_F16, true, E4M3, false, false, NOTHING},
    {300, 128, 256, 1, 0, ROUNDING_TOKEN, 0, DTYPE_BF16, false, E4M3, false, false, NOTHING},
    {300, 128, 272, 0, 0, ROUNDING_TOKEN, 0, DTYPE_BF16, true, E4M3, false, false, ADDS},
    {66, 256, 640, 128, 128, ROUNDING_GROUP, 128, DTYPE_BF16, false, E4M3, false, false, ADDS},
    {301, 128, 512, 128, 128, ROUNDING_GROUP, 128, DTYPE_BF16, false, E4M3, false, false, NOTHING},
    {40, 256, 384, 128, 128, ROUNDING_GROUP, 128, DTYPE_BF16, true, E4M3, false, false, GATED},
    {40, 200, 272, 1, 0, ROUNDING_NONE, 0, DTYPE_BF16, true, E4M3, false, false, NOTHING},
    {25, 136, 1024, 128, 128, ROUNDING_NONE, 0, DTYPE_F16, false, E4M3, false, false, ADDS},
    {35, 50, 200, 1, 0, ROUNDING_TOKEN, 0, DTYPE_BF16, false, E4M3, false, false, NOTHING},
    {4, 528, 4096, 1, 0, ROUNDING_TOKEN, 0, DTYPE_BF16, false, E4M3, false, false, GATED},
    {3, 256, 1024, 128, 128, ROUNDING_GROUP, 128, DTYPE_BF16, false, E4M3, false, false, GATED},
    /* Blocks, added to nothing: what is left over of fours of rows, of fewer and of more. */
    {3, 256, 1024, 128, 128, ROUNDING_GROUP, 128, DTYPE_BF16, false, E4M3, false, false, NOTHING},
    {6, 384, 512, 128, 128, ROUNDING_GROUP, 128, DTYPE_F16, false, E4M3, false, false, NOTHING},
    {1, 1, 1, 0, 0, ROUNDING_NONE, 0, DTYPE_F32, false, E4M3, false, false, NOTHING},
    {9, 67, 333, 0, 0, ROUNDING_TOKEN, 0, DTYPE_F32, true, E4M3, false, false, NOTHING},
    {17, 130, 64, 1, 0, ROUNDING_TOKEN, 0, DTYPE_BF16, true, E4M3, false, false, NOTHING},
    {3, 200, 300, 128, 128, ROUNDING_GROUP, 128, DTYPE_F32, false, E4M3, false, false, NOTHING},
    {8, 130, 1030, 2, 2, ROUNDING_GROUP, 128, DTYPE_F32, true, E4M3, false, false, NOTHING},
    {33, 65, 513, 1, 128, ROUNDING_NONE, 0, DTYPE_F16, false, E4M3, false, false, NOTHING},
    {5, 40, 2048, 0, 0, ROUNDING_STATIC, 0, DTYPE_F32, false, E4M3, false, false, NOTHING},
    {2, 7, 4099, 128, 64, ROUNDING_GROUP, 32, DTYPE_F32, false, E4M3, false, false, NOTHING},
    {9, 67, 384, 1, 128, ROUNDING_NONE, 0, DTYPE_F32, true, FORMAT_U4, true, false, NOTHING},
    {3, 33, 333, 1, 32, ROUNDING_NONE, 0, DTYPE_F32, false, FORMAT_U4, false, false, NOTHING},
    {8, 40, 2050, 1, 64, ROUNDING_NONE, 0, DTYPE_BF16, false, FORMAT_U4, true, true, NOTHING},
    {4, 20, 1500, 1, 0, ROUNDING_TOKEN, 0, DTYPE_F32, true, FORMAT_U8, true, true, NOTHING},
    {17, 9, 600, 1, 1, ROUNDING_NONE, 0, DTYPE_F16, false, FORMAT_U8, true, false, NOTHING},
};

struct product {
    struct tensor x, bias, scales, before;
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
              .input = {s->rounding, s->group, s->rounding == ROUNDING_STATIC ? 0.02f : 0}},
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
    if (s->rounding == ROUNDING_TOKEN && p->args.w.input.scale > 0)
        scale = fminf(scale, p->args.w.input.scale);
    return e4m3_nearest((double)(value / scale)) * (double)scale;
}

static double scale_of(const struct shape *s, const struct product *p, uint32_t n, uint32_t k)
{
    uint32_t columns = s->scale_k ? (s->k + s->scale_k - 1) / s->scale_k : 1;
    uint32_t row = s->scale_n ? n / s->scale_n : 0, column = s->scale_k ? k / s->scale_k : 0;
    return (double)tensor_at(&p->scales, 0, row * columns + column);
}

/* What CUDA loses beside the order of a sum: weights that become 16 bits first, and tensor cores
 * that multiply numbers of eight bits, the library's kernels or ours, and keep some 13 bits of what
 * they have summed until 128 of k are added up. */
static bool by_library(const struct shape *s)
{
    bool outer = !s->scale_k && s->rounding != ROUNDING_GROUP;
    bool blocks = s->scale_k == 128 && s->scale_n == 128 && s->group == 128;
    bool eight = (outer || blocks) && s->n % 16 == 0 && s->k % 16 == 0;
    uint32_t own = s->rounding == ROUNDING_NONE ? GEMV_ROWS_MAX : eight ? 0 : MATMUL_ROUNDS_MAX;
    return rig_kernels_wait && s->rows > own && s->x != DTYPE_F32;
}

static double unit_of(const struct shape *s)
{
    return !by_library(s) ? 0x1p-23 * sqrt(s->k) : s->rounding == ROUNDING_NONE ? 0x1p-9 : 0x1p-11;
}

struct sum {
    double value, size; /* size: of what it is the sum of */
};

static struct sum sum_of(const struct shape *s, const struct product *p, const double *x,
                         uint32_t n)
{
    struct sum sum = {.value = s->bias ? (double)tensor_at(&p->bias, 0, n) : 0};
    sum.size = fabs(sum.value);
    for (uint32_t k = 0; k < s->k; k++) {
        double term = x[k] * element_of(s, p, n, k) * scale_of(s, p, n, k);
        sum.value += term;
        sum.size += fabs(term);
    }
    return sum;
}

static double silu(double x)
{
    return x / (1 + exp(-x));
}

static double gelu(double x)
{
    return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

/* Slopes of both are at most 1.13. */
static struct sum output_of(const struct shape *s, const struct product *p, const double *x,
                            uint32_t row, uint32_t n)
{
    struct sum sum = sum_of(s, p, x, n), up;
    switch (s->behind) {
    case ADDS:
        sum.value += (double)tensor_at(&p->before, row, n);
        sum.size += fabs((double)tensor_at(&p->before, row, n));
        return sum;
    case GATED:
        up = sum_of(s, p, x, s->n / 2 + n);
        return (struct sum){silu(sum.value) * up.value,
                            1.2 * sum.size * fabs(up.value) + fabs(silu(sum.value)) * up.size};
    case GELU:
        return (struct sum){gelu(sum.value), 1.2 * sum.size};
    case NOTHING:
        break;
    }
    return sum;
}

static uint32_t outputs_of(const struct shape *s)
{
    return s->behind == GATED ? s->n / 2 : s->n;
}

static void check_row(const struct shape *s, const struct product *p, const struct tensor *y,
                      uint32_t row)
{
    double *x = malloc(s->k * sizeof *x);
    for (uint32_t k = 0; k < s->k; k++)
        x[k] = input_of(s, p, row, s->ordered ? p->order[k] : k);
    for (uint32_t n = 0; n < outputs_of(s); n++) {
        struct sum sum = output_of(s, p, x, row, n);
        check_close((double)tensor_at(y, row, n), sum.value, DTYPE_F32, sum.size * unit_of(s));
    }
    free(x);
}

static void behind_set(const struct shape *s, struct product *p)
{
    p->before = tensor_random(DTYPE_F32, s->rows, outputs_of(s), 1);
    p->args.adds = s->behind == ADDS;
    p->args.gated = s->behind == GATED;
    p->args.activates = s->behind == GELU;
    p->args.activation = s->behind == GELU ? ACTIVATE_GELU_TANH : ACTIVATE_SILU;
    p->args.scratch_bytes = matmul_scratch_bytes(&p->args.w, s->rows);
    if (p->args.scratch_bytes)
        p->args.scratch = rig_new(NULL, p->args.scratch_bytes);
}

static struct tensor outputs_make(const struct shape *s, const struct product *p, uint32_t first,
                                  uint32_t rows)
{
    struct tensor y = tensor_poison(DTYPE_F32, rows, outputs_of(s));
    for (uint32_t row = 0; s->behind == ADDS && row < rows; row++)
        OK(cudaMemcpyAsync((float *)y.device + (size_t)row * y.stride,
                           (const float *)p->before.device +
                               (size_t)(first + row) * p->before.stride,
                           outputs_of(s) * sizeof(float), cudaMemcpyDefault, rig_stream));
    return y;
}

START_TEST(products_are_those_of_what_the_bytes_stand_for)
{
    const struct shape *s = &shapes[_i];
    rig_begin();
    tensor_align(s->x == DTYPE_F32 ? 1 : 8);
    struct product p = product_make(s);
    if (s->rounding == ROUNDING_TOKEN && s->rows % 2)
        p.args.w.input.scale = BOUND;
    behind_set(s, &p);
    struct tensor y = outputs_make(s, &p, 0, s->rows);
    p.args.y = y.device;
    p.args.y_stride = y.stride;
    ck_assert(matmul_fuses(&p.args));
    OK(op_matmul(&p.args, rig_stream));
    ck_assert(tensor_untouched(&y, s->rows));
    tensor_read(&y);
    for (uint32_t row = 0; row<s->rows; row += s->rows> 64 ? 29 : 1)
        check_row(s, &p, &y, row);
    if (by_library(s)) {
        product_free(&p);
        rig_end();
        return;
    }
    /* Each row alone has the same bits. */
    uint32_t row = s->rows / 2;
    struct tensor one = outputs_make(s, &p, row, 1);
    p.args.rows = rig_span(1, 0, 1);
    p.args.x = (const char *)p.x.device + (size_t)row * p.x.stride * dtype_bytes(s->x);
    p.args.y = one.device;
    p.args.y_stride = one.stride;
    OK(op_matmul(&p.args, rig_stream));
    tensor_read(&one);
    for (uint32_t n = 0; n < outputs_of(s); n++)
        ck_assert(tensor_at(&one, 0, n) == tensor_at(&y, row, n));
    product_free(&p);
    rig_end();
}
END_TEST

/* Rows of zeros have no greatest to go by; what is infinite is no number in the end. */
START_TEST(rows_of_zeros_give_zeros_and_infinity_is_not_hidden)
{
    static const struct shape shape = {2,         5,     200,  1,     0,     ROUNDING_TOKEN, 0,
                                       DTYPE_F32, false, E4M3, false, false, NOTHING};
    struct shape s = shape;
    s.rounding = _i == 1 ? ROUNDING_GROUP : ROUNDING_TOKEN;
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
    p.args.w.input.scale = _i == 2 ? BOUND : 0;
    behind_set(&s, &p);
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

#define NORM_WIDTH 1024
#define NORM_EPS 1e-5f

static float bf16_of(double value)
{
    float rounded = (float)value;
    uint32_t bits;
    memcpy(&bits, &rounded, sizeof bits);
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
    memcpy(&rounded, &bits, sizeof rounded);
    return rounded;
}

/* What the norm of a row of the residual gives the product behind it. */
static void normed_of(const struct tensor *residual, const struct tensor *weight, uint32_t row,
                      double *ret_x)
{
    double squares = 0, greatest = 0;
    for (uint32_t k = 0; k < NORM_WIDTH; k++)
        squares += pow((double)tensor_at(residual, row, k), 2);
    double scale = 1 / sqrt(squares / NORM_WIDTH + (double)NORM_EPS);
    for (uint32_t k = 0; k < NORM_WIDTH; k++) {
        ret_x[k] = (double)bf16_of((double)tensor_at(residual, row, k) * scale *
                                   (double)tensor_at(weight, 0, k));
        greatest = fmax(greatest, fabs(ret_x[k]));
    }
    float to = (float)greatest / 448.0f;
    for (uint32_t k = 0; k < NORM_WIDTH; k++)
        ret_x[k] = e4m3_nearest((double)((float)ret_x[k] / to)) * (double)to;
}

/* A product that adds hands the norm on, and the one behind it makes it before it rounds. Where a
 * last bit decides how a value is rounded, it is up to 1/16 off: what that may do to a sum of 1,024
 * is far below what a norm left out does. */
START_TEST(a_norm_between_two_products_is_made_before_inputs_are_rounded)
{
    const uint32_t rows = (uint32_t)_i + 1;
    const struct shape giver = {rows,  NORM_WIDTH, 512,   1,     0,   ROUNDING_TOKEN, 0, DTYPE_BF16,
                                false, E4M3,       false, false, ADDS};
    const struct shape reader = {rows,       200,   NORM_WIDTH, 1,     0,     ROUNDING_TOKEN, 0,
                                 DTYPE_BF16, false, E4M3,       false, false, NOTHING};
    rig_begin();
    tensor_align(8);
    struct product one = product_make(&giver), two = product_make(&reader);
    behind_set(&giver, &one);
    struct tensor residual = outputs_make(&giver, &one, 0, rows);
    struct tensor weight = tensor_random(DTYPE_BF16, 1, NORM_WIDTH, 1);
    struct tensor y = tensor_poison(DTYPE_F32, rows, reader.n);
    one.args.y = residual.device;
    one.args.y_stride = residual.stride;
    one.args.norm_out = (struct matmul_norm_out){
        .weight = weight.device,
        .out = tensor_poison(DTYPE_BF16, rows, NORM_WIDTH).device,
        .squares = tensor_poison(DTYPE_F32, rows, MATMUL_PARTS).device,
        .out_stride = NORM_WIDTH,
        .weight_dtype = DTYPE_BF16,
    };
    OK(op_matmul(&one.args, rig_stream));
    two.args.y = y.device;
    two.args.y_stride = y.stride;
    two.args.norm_in = (struct matmul_norm_in){.squares = one.args.norm_out.squares,
                                               .eps = NORM_EPS,
                                               .residual = residual.device,
                                               .weight = weight.device,
                                               .residual_stride = residual.stride,
                                               .weight_dtype = DTYPE_BF16};
    OK(op_matmul(&two.args, rig_stream));
    tensor_read(&residual);
    tensor_read(&y);
    double x[NORM_WIDTH];
    for (uint32_t row = 0; row < rows; row++) {
        check_row(&giver, &one, &residual, row);
        normed_of(&residual, &weight, row, x);
        for (uint32_t n = 0; n < reader.n; n++) {
            struct sum sum = sum_of(&reader, &two, x, n);
            check_close((double)tensor_at(&y, row, n), sum.value, DTYPE_F32, sum.size * 1e-3);
        }
    }
    product_free(&one);
    product_free(&two);
    rig_end();
}
END_TEST

/* What a product makes of its results for one behind it that rounds them, by kernels apart and by
 * one: `width` values, normed or activated. */
static const struct {
    uint32_t rows, width, k;
    bool activates;
    enum weight_rounding rounding;
    enum dtype x;
} handed[] = {
    {3, 1024, 512, false, ROUNDING_TOKEN, DTYPE_BF16},
    {1, 4096, 528, false, ROUNDING_TOKEN, DTYPE_BF16},
    {2, 14336, 256, true, ROUNDING_TOKEN, DTYPE_BF16},
    {64, 4096, 256, false, ROUNDING_TOKEN, DTYPE_BF16},
    {17, 9232, 128, false, ROUNDING_TOKEN, DTYPE_F16},
    {256, 272, 1024, false, ROUNDING_STATIC, DTYPE_BF16},
    {4, 14336, 256, true, ROUNDING_TOKEN, DTYPE_BF16},
    {33, 1040, 512, true, ROUNDING_TOKEN, DTYPE_F16},
    {200, 28672, 64, true, ROUNDING_TOKEN, DTYPE_BF16},
    {65, 48, 2048, true, ROUNDING_STATIC, DTYPE_BF16},
};

struct handing {
    struct shape giver, reader;
    struct product one, two;
    struct tensor y, x, weight; /* what is stored, what the reader reads, the norm's weight */
};

static struct handing handing_make(int i)
{
    uint32_t rows = handed[i].rows, width = handed[i].width;
    bool norm = !handed[i].activates;
    enum dtype x = handed[i].x;
    struct handing h = {.giver = {rows, norm ? width : 2 * width, handed[i].k, 1, 0, ROUNDING_TOKEN,
                                  0, x, false, E4M3, false, false, norm ? ADDS : GATED},
                        .reader = {rows, 208, width, 1, 0, handed[i].rounding, 0, x, true, E4M3,
                                   false, false, NOTHING}};
    h.one = product_make(&h.giver);
    h.two = product_make(&h.reader);
    h.two.args.w.input.scale = i % 2 ? BOUND : h.two.args.w.input.scale;
    behind_set(&h.giver, &h.one);
    behind_set(&h.reader, &h.two);
    h.weight = tensor_random(handed[i].x, 1, width, 1);
    h.y = outputs_make(&h.giver, &h.one, 0, rows);
    h.x = tensor_poison(handed[i].x, rows, width);
    if (!norm)
        h.y = h.x;
    h.one.args.y = h.y.device;
    h.one.args.y_stride = h.y.stride;
    h.one.args.y_dtype = norm ? DTYPE_F32 : handed[i].x;
    h.one.args.norm_out.eps = NORM_EPS;
    return h;
}

static void handing_apart(struct handing *h)
{
    struct norm_args norm = {.rows = h->one.args.rows,
                             .residual = h->y.device,
                             .weight = h->weight.device,
                             .out = h->x.device,
                             .size = h->x.size,
                             .residual_stride = h->y.stride,
                             .out_stride = h->x.stride,
                             .residual_dtype = DTYPE_F32,
                             .weight_dtype = h->weight.dtype,
                             .out_dtype = h->x.dtype,
                             .eps = NORM_EPS};
    OK(op_matmul(&h->one.args, rig_stream));
    if (h->giver.behind == ADDS)
        OK(op_norm(&norm, rig_stream));
    tensor_read(&h->y);
    tensor_read(&h->x);
}

/* The same, handed on rounded; in *ret_bytes, as it lies. */
static struct matmul_args handing_at_once(struct handing *h, struct tensor *y, struct tensor *x,
                                          uint8_t **ret_bytes)
{
    struct matmul_args args = h->one.args;
    size_t size = (size_t)x->rows * x->stride * 2;
    args.hands = h->two.args.w.input;
    args.y = y->device;
    args.y_stride = y->stride;
    if (h->giver.behind == ADDS)
        args.norm_out = (struct matmul_norm_out){.weight = h->weight.device,
                                                 .out = x->device,
                                                 .out_stride = x->stride,
                                                 .weight_dtype = h->weight.dtype,
                                                 .eps = NORM_EPS};
    ck_assert(matmul_fuses(&args));
    OK(op_matmul(&args, rig_stream));
    *ret_bytes = malloc(size);
    rig_read(*ret_bytes, x->device, size);
    return args;
}

/* A row of bytes is that of the reader's input, each what the values rounded alone give. */
static void check_handed(const struct handing *h, const uint8_t *bytes, uint32_t row, double *ret_x)
{
    size_t scales = MATMUL_ROUNDED_SCALES_AT(h->x.rows, h->x.size), first = row * h->x.size;
    float scale, greatest = 0, want = h->two.args.w.input.scale;
    memcpy(&scale, bytes + scales + row * sizeof scale, sizeof scale);
    for (uint32_t k = 0; k < h->x.size; k++)
        greatest = fmaxf(greatest, fabsf(tensor_at(&h->x, row, k)));
    if (h->reader.rounding == ROUNDING_TOKEN)
        want = want > 0 ? fminf(greatest / 448.0f, want) : greatest / 448.0f;
    ck_assert_msg(scale == want, "row %u: scale %.9g, not %.9g", row, (double)scale, (double)want);
    for (uint32_t k = 0; k < h->x.size; k++) {
        double value = fmin(fmax((double)(tensor_at(&h->x, row, k) / scale), -448), 448);
        ck_assert_msg(e4m3_value(bytes[first + k]) == e4m3_nearest(value), "row %u: %u of %.9g is %g",
                      row, k, value, e4m3_value(bytes[first + k]));
        ret_x[k] = e4m3_value(bytes[first + k]) * (double)scale;
    }
}

START_TEST(what_is_handed_on_rounded_is_what_kernels_apart_give)
{
    rig_begin();
    tensor_align(8);
    struct handing h = handing_make(_i);
    bool norm = h.giver.behind == ADDS;
    handing_apart(&h);
    struct tensor y = norm ? outputs_make(&h.giver, &h.one, 0, h.giver.rows)
                           : tensor_poison(h.x.dtype, h.x.rows, h.x.size);
    struct tensor x = norm ? tensor_poison(h.x.dtype, h.x.rows, h.x.size) : y;
    struct tensor sums = tensor_poison(DTYPE_F32, h.reader.rows, h.reader.n);
    uint8_t *bytes;
    handing_at_once(&h, &y, &x, &bytes);
    if (norm)
        tensor_read(&y);
    h.two.args.x = x.device;
    h.two.args.x_stride = x.stride;
    h.two.args.x_rounded = true;
    h.two.args.y = sums.device;
    h.two.args.y_stride = sums.stride;
    ck_assert(matmul_fuses(&h.two.args));
    OK(op_matmul(&h.two.args, rig_stream));
    tensor_read(&sums);
    double *values = malloc(h.x.size * sizeof *values);
    for (uint32_t row = 0; row<h.giver.rows; row += h.giver.rows> 32 ? 31 : 1) {
        for (uint32_t n = 0; norm && n < h.x.size; n++)
            ck_assert(tensor_at(&y, row, n) == tensor_at(&h.y, row, n));
        check_handed(&h, bytes, row, values);
        for (uint32_t n = 0; n < h.reader.n; n++) {
            struct sum sum = sum_of(&h.reader, &h.two, values, n);
            check_close((double)tensor_at(&sums, row, n), sum.value, DTYPE_F32, sum.size * 0x1p-11);
        }
    }
    free(values);
    free(bytes);
    product_free(&h.one);
    product_free(&h.two);
    rig_end();
}
END_TEST

/* What nothing hands on: more rows, other shapes, blocks, no sum, too little room. */
START_TEST(what_cannot_be_handed_on_is_refused)
{
    rig_begin();
    tensor_align(8);
    struct handing h = handing_make(0);
    struct matmul_args good = h.one.args, taken = h.two.args;
    good.hands = h.two.args.w.input;
    good.norm_out = (struct matmul_norm_out){.weight = h.weight.device,
                                             .out = h.x.device,
                                             .out_stride = h.x.stride,
                                             .weight_dtype = h.weight.dtype};
    taken.x_rounded = true;
    good.scratch_bytes = taken.scratch_bytes = SIZE_MAX;
    ck_assert(matmul_fuses(&good) && matmul_fuses(&taken));
    struct matmul_args bad[] = {good, good, good, good, good, taken, taken, taken};
    bad[0].rows.max = 257;
    bad[1].w.n += 8;
    bad[2].hands.rounding = ROUNDING_GROUP;
    bad[2].hands.group = 128;
    bad[3].adds = false;
    bad[4].norm_out.out_stride = NORM_WIDTH / 2;
    bad[5].rows.max = 257;
    bad[5].gated = true;
    bad[6].w.input.rounding = ROUNDING_NONE;
    bad[7].x_stride = NORM_WIDTH / 2;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        ck_assert_msg(!matmul_fuses(&bad[i]), "%zu", i);
    product_free(&h.one);
    product_free(&h.two);
    rig_end();
}
END_TEST

/* Sums that are scaled behind, and those that the library scales. */
START_TEST(products_are_right_by_the_algorithm_that_was_timed)
{
    const struct shape s = {_i ? 320 : 130, 256,   512,  1,     0,     ROUNDING_TOKEN, 0,
                            DTYPE_BF16,     false, E4M3, false, false, NOTHING};
    rig_begin();
    tensor_align(8);
    struct product p = product_make(&s);
    behind_set(&s, &p);
    struct tensor y = outputs_make(&s, &p, 0, s.rows);
    struct matmul_args timed = p.args;
    size_t workspace = 4u << 20;
    p.args.y = y.device;
    p.args.y_stride = y.stride;
    p.args.workspace = timed.workspace = rig_new(NULL, workspace);
    p.args.workspace_bytes = timed.workspace_bytes = workspace;
    timed.x = rig_new(NULL, (size_t)s.rows * s.k * 2);
    timed.y = rig_new(NULL, (size_t)s.rows * s.n * sizeof(float));
    timed.y_stride = s.n;
    timed.y_dtype = DTYPE_F32;
    ck_assert(!tune_known(&timed));
    OK(tune_matmul(&timed, &timed.w.data, 1, rig_stream));
    ck_assert(tune_known(&timed));
    OK(op_matmul(&p.args, rig_stream));
    tensor_read(&y);
    for (uint32_t row = 0; row < s.rows; row += 29)
        check_row(&s, &p, &y, row);
    product_free(&p);
    rig_end();
}
END_TEST

Suite *formats_suite(void)
{
    Suite *suite = suite_create("formats");
    TCase *tcase = tcase_create("formats");
    tcase_set_timeout(tcase, 60);
    for (int i = 0; i < (int)(sizeof shapes / sizeof *shapes); i++)
        if ((rig_formats >> shapes[i].format & 1) && (rig_kernels_wait || !shapes[i].behind))
            tcase_add_loop_test(tcase, products_are_those_of_what_the_bytes_stand_for, i, i + 1);
    tcase_add_loop_test(tcase, rows_of_zeros_give_zeros_and_infinity_is_not_hidden, 0, 3);
    if (rig_kernels_wait) /* the CPU device fuses no norms */
        tcase_add_loop_test(tcase, a_norm_between_two_products_is_made_before_inputs_are_rounded, 0,
                            MATMUL_ROUNDS_MAX);
    if (rig_kernels_wait)
        tcase_add_loop_test(tcase, what_is_handed_on_rounded_is_what_kernels_apart_give, 0,
                            sizeof handed / sizeof *handed);
    if (rig_kernels_wait)
        tcase_add_test(tcase, what_cannot_be_handed_on_is_refused);
    if (rig_kernels_wait)
        tcase_add_loop_test(tcase, products_are_right_by_the_algorithm_that_was_timed, 0, 2);
    suite_add_tcase(suite, tcase);
    return suite;
}
