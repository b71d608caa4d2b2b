/* Products of weights in whole numbers of 4 and 8 bits, against plain doubles: every way in which
 * either device makes them. */
#include <math.h>

#include "gpu/kernels/common/whole.h"
#include "gpu/kernels/load/repack.h"
#include "gpu/kernels/matmul/cublaslt_tune.h"
#include "gpu/kernels/matmul/matmul.h"
#include "tests/gpu/kernels/rig.h"
#include "tests/gpu/kernels/suites.h"

enum behind { NOTHING, BIAS, ADDS, GATED_SILU, GATED_GELU, GELU, SILU };

/* What scales are for: `group` columns (0: all) of a row, of all rows where `shared`. */
enum extra { PLAIN = 0, ZEROS = 1, ORDERED = 2, SHARED = 4, BOTH = ZEROS | ORDERED };

struct shape {
    uint32_t rows, count, n, k, group;
    enum format format;
    int extra;
    enum dtype x, y;
    enum behind behind;
};

#define U4 FORMAT_U4
#define U8 FORMAT_U8
#define F32 DTYPE_F32
#define BF16 DTYPE_BF16
#define F16 DTYPE_F16

static const struct shape shapes[] = {
    /* Few rows: groups of a whole stage, columns of one stage and of many; few tiles and many. */
    {1, 1, 300, 4096, 128, U4, ZEROS, BF16, F32, NOTHING},
    {1, 1, 64, 14336, 128, U4, ZEROS, BF16, F32, ADDS},
    {2, 2, 100, 1024, 128, U4, PLAIN, F16, F32, NOTHING},
    {8, 5, 33, 4480, 128, U4, ZEROS, BF16, BF16, BIAS},
    {16, 11, 77, 3072, 128, U4, ZEROS, F16, F16, NOTHING},
    {9, 9, 10573, 128, 128, U4, ZEROS, BF16, F32, NOTHING},
    {1, 1, 10573, 256, 128, U4, ZEROS, BF16, F32, ADDS},
    {4, 4, 12800, 128, 128, U4, ZEROS, BF16, BF16, GATED_SILU},
    {1, 1, 8640, 256, 128, U4, ZEROS, F16, F16, GATED_GELU},
    {16, 16, 170, 2048, 128, U4, ZEROS, BF16, BF16, GATED_SILU},
    {3, 3, 61, 1152, 128, U4, ZEROS, BF16, F32, GELU},
    {2, 1, 61, 1152, 128, U4, ZEROS, BF16, F32, SILU},
    {1, 1, 300, 4096, 128, U8, ZEROS, BF16, F32, NOTHING},
    {7, 7, 90, 14336, 128, U8, ZEROS, F16, F32, ADDS},
    {13, 13, 44, 512, 128, U8, PLAIN, BF16, BF16, GATED_GELU},
    /* Other groups, which end within stages or with them; numbers of them that are not even. */
    {1, 1, 100, 4096, 64, U4, ZEROS, BF16, F32, NOTHING},
    {3, 3, 70, 4096, 32, U4, ZEROS, F16, F32, NOTHING},
    {16, 16, 50, 1056, 32, U4, ZEROS, BF16, F32, ADDS},
    {5, 5, 40, 2272, 96, U4, ZEROS, BF16, F32, NOTHING},
    {1, 1, 40, 14336, 256, U4, ZEROS, BF16, F32, NOTHING},
    {6, 6, 40, 11008, 2048, U4, ZEROS, BF16, F32, NOTHING},
    {1, 1, 37, 4032, 128, U4, ZEROS, BF16, F32, NOTHING},
    {12, 12, 37, 4096, 0, U4, ZEROS, BF16, F32, NOTHING},
    {1, 1, 37, 544, 0, U4, ZEROS | SHARED, F16, F32, NOTHING},
    {2, 2, 37, 1600, 64, U4, ZEROS | SHARED, BF16, F32, NOTHING},
    {1, 1, 1, 32, 32, U4, ZEROS, BF16, F32, NOTHING},
    {15, 15, 19, 64, 32, U8, ZEROS, F16, F32, NOTHING},
    {4, 4, 55, 3616, 32, U8, ZEROS, BF16, F32, BIAS},
    {16, 2, 90, 7168, 0, U8, ZEROS, BF16, BF16, GATED_SILU},
    {8, 0, 20, 256, 128, U4, ZEROS, BF16, F32, NOTHING},
    /* As many outputs as low tiles are for, in pairs of blocks. */
    {1, 1, 4096, 512, 128, U4, ZEROS, BF16, F32, ADDS},
    {16, 15, 4096, 1024, 128, U4, PLAIN, BF16, F32, ADDS},
    {3, 3, 2890, 800, 32, U4, ZEROS, F16, F16, BIAS},
    {12, 12, 4200, 288, 96, U4, ZEROS, BF16, BF16, SILU},
    {8, 8, 3333, 1152, 0, U8, ZEROS, BF16, F32, ADDS},
    {10, 9, 4096, 640, 128, U8, ZEROS | SHARED, F16, F32, NOTHING},
    {2, 2, 4096, 1056, 32, U8, ZEROS, BF16, F32, ADDS},
    {14, 14, 3000, 320, 64, U8, PLAIN, F16, F32, ADDS},
    {5, 0, 4096, 256, 128, U4, ZEROS, BF16, F32, NOTHING},
    {1, 1, 4096, 96, 32, U4, ZEROS, BF16, F32, NOTHING}, /* nothing that a pair would share */
    /* Tiles that four blocks share, two, and none; and those of gates of many turns. */
    {2, 2, 6144, 1024, 128, U4, ZEROS, BF16, BF16, BIAS},
    {16, 16, 6144, 1056, 32, U8, ZEROS, BF16, F32, NOTHING},
    {13, 13, 10240, 640, 128, U4, ZEROS, F16, F16, NOTHING},
    {4, 3, 36000, 256, 128, U4, ZEROS, BF16, BF16, GATED_SILU},
    {9, 9, 5000, 608, 32, U8, ZEROS, BF16, BF16, GATED_GELU},
    {6, 6, 9000, 544, 0, U8, ZEROS, F16, F16, GATED_SILU},
    /* An order of columns. */
    {1, 1, 50, 4096, 128, U4, BOTH, BF16, F32, NOTHING},
    {11, 9, 50, 1056, 32, U8, BOTH, F16, F32, ADDS},
    {3, 3, 64, 512, 128, U4, BOTH, BF16, BF16, GATED_SILU},
    {40, 40, 50, 512, 128, U4, BOTH, BF16, F32, NOTHING},
    {5, 3, 21, 333, 64, U4, BOTH, BF16, F32, BIAS},
    /* More rows. */
    {17, 17, 100, 512, 128, U4, ZEROS, BF16, F32, NOTHING},
    {32, 30, 257, 1024, 128, U4, ZEROS, F16, F16, BIAS},
    {33, 33, 130, 4096, 64, U4, ZEROS, BF16, F32, ADDS},
    {64, 64, 4096, 256, 128, U4, ZEROS, BF16, BF16, NOTHING},
    {65, 65, 61, 1056, 32, U4, ZEROS, BF16, F32, ADDS},
    {128, 128, 384, 1152, 0, U4, ZEROS, F16, F32, NOTHING},
    {129, 129, 200, 640, 128, U4, PLAIN, BF16, F32, NOTHING},
    {256, 256, 640, 384, 128, U4, ZEROS, BF16, BF16, GATED_SILU},
    {100, 100, 1030, 160, 32, U4, ZEROS, F16, F16, GATED_GELU},
    {257, 257, 136, 512, 128, U4, ZEROS, BF16, F32, ADDS},
    {300, 300, 100, 2048, 128, U4, ZEROS, BF16, BF16, NOTHING},
    {20, 20, 500, 512, 128, U8, ZEROS, BF16, F32, NOTHING},
    {48, 48, 90, 4096, 32, U8, ZEROS, F16, F32, ADDS},
    {200, 200, 320, 576, 64, U8, ZEROS, BF16, BF16, GATED_SILU},
    {300, 300, 72, 544, 0, U8, ZEROS | SHARED, BF16, F32, NOTHING},
    {24, 24, 6200, 2048, 128, U4, ZEROS, BF16, F32, NOTHING},
    {64, 64, 4096, 512, 128, U4, ZEROS, F16, F32, NOTHING},
    {20, 20, 17000, 256, 128, U4, ZEROS, BF16, F32, ADDS},
    {24, 24, 16500, 2048, 128, U4, ZEROS, BF16, F32, NOTHING},
    {40, 40, 16500, 2048, 64, U4, ZEROS, BF16, BF16, NOTHING},
    {57, 57, 16500, 2048, 1024, U8, PLAIN, F16, F32, NOTHING},
    {128, 128, 16500, 1024, 128, U4, ZEROS, BF16, F32, ADDS},
    {250, 250, 9000, 1024, 32, U8, ZEROS, BF16, BF16, GATED_SILU},
    {90, 90, 260, 1280, 160, U4, ZEROS, F16, F32, BIAS},
    {512, 512, 130, 256, 128, U4, ZEROS, BF16, F32, ADDS},
    {513, 513, 136, 512, 128, U4, ZEROS, BF16, F32, ADDS},
    {600, 600, 3300, 4096, 64, U4, ZEROS, BF16, BF16, BIAS},
    {530, 530, 70, 1056, 32, U8, BOTH, F16, F32, NOTHING},
    /* The same with groups that end within a stage, up to 32 rows; scales of all rows; groups that
     * neither end with stages nor are more than one of; columns fewer than those of a stage. */
    {29, 27, 150, 1056, 32, U4, ZEROS, F16, F32, ADDS},
    {31, 31, 150, 640, 64, U4, PLAIN, BF16, BF16, BIAS},
    {19, 18, 77, 608, 32, U8, ZEROS, BF16, F32, NOTHING},
    {26, 26, 70, 864, 96, U8, ZEROS, F16, F16, GATED_GELU},
    {35, 35, 90, 1600, 64, U4, ZEROS | SHARED, BF16, F32, NOTHING},
    {66, 66, 70, 1152, 96, U4, ZEROS, BF16, F32, NOTHING},
    {45, 45, 33, 32, 32, U4, ZEROS, BF16, F32, NOTHING},
    {18, 18, 33, 64, 0, U8, ZEROS, F16, F32, ADDS},
    {50, 49, 90, 512, 128, U8, ZEROS, BF16, F32, NOTHING},
    {41, 39, 70, 608, 32, U8, ZEROS, BF16, BF16, BIAS},
    /* Columns in an order, more rows than few, and what is fused with them. */
    {44, 41, 60, 512, 128, U4, BOTH, F16, F32, ADDS},
    {70, 70, 130, 544, 32, U8, BOTH, BF16, BF16, GATED_SILU},
    {70000, 70000, 8, 32, 32, U4, BOTH, BF16, F32, NOTHING}, /* more rows than a grid has */
    /* What nothing fast takes. */
    {1, 1, 1, 1, 0, U4, ZEROS, BF16, F32, NOTHING},
    {3, 2, 20, 333, 100, U4, ZEROS, BF16, F32, ADDS},
    {18, 17, 21, 90, 16, U8, ZEROS, F16, F16, BIAS},
    {9, 9, 33, 128, 16, U4, ZEROS, BF16, F32, NOTHING},
    {10, 10, 33, 128, 64, U4, BOTH, F32, F32, NOTHING},
    {24, 22, 33, 128, 64, U8, ZEROS, F32, F32, NOTHING},
};

struct product {
    struct tensor x, bias, scales, before, y;
    struct matmul_args args;
    uint8_t *bytes, *zeros;
    uint32_t *order;
    uint32_t columns; /* groups of a row */
};

static bool gated(const struct shape *s)
{
    return s->behind == GATED_SILU || s->behind == GATED_GELU;
}

static uint32_t outputs_of(const struct shape *s)
{
    return gated(s) ? s->n / 2 : s->n;
}

static uint32_t *order_make(uint32_t k)
{
    uint32_t *order = malloc(k * sizeof *order);
    for (uint32_t i = 0; i < k; i++)
        order[i] = i;
    for (uint32_t i = k - 1; i > 0; i--) {
        uint32_t j = rig_between(0, i), other = order[i];
        order[i] = order[j];
        order[j] = other;
    }
    return order;
}

static void weight_make(const struct shape *s, struct product *p)
{
    size_t size = format_bytes(s->format, s->n, s->k);
    p->columns = s->group ? (s->k + s->group - 1) / s->group : 1;
    uint32_t scales = (s->extra & SHARED ? 1 : s->n) * p->columns;
    p->bytes = malloc(size);
    p->zeros = malloc(scales);
    p->order = order_make(s->k);
    for (size_t i = 0; i < size; i++)
        p->bytes[i] = (uint8_t)rig_random();
    for (uint32_t i = 0; i < scales; i++)
        p->zeros[i] = (uint8_t)(rig_random() % (s->format == U4 ? 17 : 256));
    p->scales = tensor_random(F32, 1, scales, 0.01f);
    p->args.w = (struct weight){
        .data = rig_new(p->bytes, size),
        .format = s->format,
        .n = s->n,
        .k = s->k,
        .scales = {rig_new(p->scales.host, scales * sizeof(float)), F32, s->extra & SHARED ? 0 : 1,
                   s->group},
        .zeros = s->extra & ZEROS ? rig_new(p->zeros, scales) : NULL,
        .order = s->extra & ORDERED ? rig_new(p->order, s->k * sizeof *p->order) : NULL,
    };
    OK(op_repack(&p->args.w, rig_stream));
}

static void scratch_make(struct product *p)
{
    p->args.scratch_bytes = matmul_scratch_bytes(&p->args.w, p->args.rows.max);
    if (p->args.scratch_bytes)
        p->args.scratch = rig_new(NULL, p->args.scratch_bytes);
}

static struct product product_make(const struct shape *s)
{
    struct product p = {.bytes = NULL};
    weight_make(s, &p);
    tensor_align(8);
    p.x = tensor_random(s->x, s->rows, s->k, 1);
    p.bias = tensor_random(s->x, 1, s->n, 1);
    p.before = tensor_random(F32, s->rows, outputs_of(s), 1);
    p.y = tensor_poison(s->y, s->rows, outputs_of(s));
    p.args.rows = rig_span(s->count, 0, s->rows);
    p.args.x = p.x.device;
    p.args.x_stride = p.x.stride;
    p.args.x_dtype = s->x;
    p.args.y = p.y.device;
    p.args.y_stride = p.y.stride;
    p.args.y_dtype = s->y;
    p.args.bias = s->behind == BIAS || s->behind == GATED_GELU ? p.bias.device : NULL;
    p.args.bias_dtype = s->x;
    p.args.adds = s->behind == ADDS;
    p.args.gated = gated(s);
    p.args.activates = s->behind == GELU || s->behind == SILU;
    p.args.activation =
        s->behind == GELU || s->behind == GATED_GELU ? ACTIVATE_GELU_TANH : ACTIVATE_SILU;
    scratch_make(&p);
    for (uint32_t row = 0; s->behind == ADDS && row < s->rows; row++)
        OK(cudaMemcpyAsync((float *)p.y.device + (size_t)row * p.y.stride,
                           (const float *)p.before.device + (size_t)row * p.before.stride,
                           s->n * sizeof(float), cudaMemcpyDefault, rig_stream));
    return p;
}

static void product_free(struct product *p)
{
    free(p->bytes);
    free(p->zeros);
    free(p->order);
}

/* What the element at (n, k) stands for. */
static double element_of(const struct shape *s, const struct product *p, uint32_t n, uint32_t k)
{
    const uint8_t *row = p->bytes + format_bytes(s->format, n, s->k);
    uint32_t at = (s->extra & SHARED ? 0 : n) * p->columns + (s->group ? k / s->group : 0);
    double value = s->format == U8 ? row[k] : row[k / 2] >> (k % 2 ? 4 : 0) & 15;
    return (value - (s->extra & ZEROS ? p->zeros[at] : 0)) * (double)tensor_at(&p->scales, 0, at);
}

struct sum {
    double value, size; /* size: of what it is the sum of */
};

static struct sum sum_of(const struct shape *s, const struct product *p, uint32_t row, uint32_t n)
{
    struct sum sum = {.value = p->args.bias ? (double)tensor_at(&p->bias, 0, n) : 0};
    sum.size = fabs(sum.value);
    for (uint32_t k = 0; k < s->k; k++) {
        uint32_t column = s->extra & ORDERED ? p->order[k] : k;
        double term = element_of(s, p, n, k) * (double)tensor_at(&p->x, row, column);
        sum.value += term;
        sum.size += fabs(term);
    }
    return sum;
}

static double activation_of(const struct product *p, double x)
{
    double u = sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
    return p->args.activation == ACTIVATE_SILU ? x / (1 + exp(-x)) : x / (1 + exp(-2 * u));
}

/* Weights become 16 bits first where cuBLASLt multiplies them, and nowhere else. */
static double unit_of(const struct shape *s)
{
    bool copied = rig_kernels_wait && s->rows > MATMUL_WHOLE_MAX && s->x != F32;
    double sums = 0x1p-23 * sqrt(s->k);
    return copied ? sums + (s->x == F16 ? 0x1p-11 : 0x1p-8) : sums;
}

/* Slopes of both activations are at most 1.13. */
static void check_output(const struct shape *s, const struct product *p, uint32_t row, uint32_t n)
{
    struct sum sum = sum_of(s, p, row, n), up;
    double unit = unit_of(s), slack = sum.size * unit, want = sum.value;
    if (s->behind == ADDS)
        want += (double)tensor_at(&p->before, row, n);
    if (gated(s) || p->args.activates) {
        want = activation_of(p, sum.value);
        slack = 1.15 * slack + fabs(want) * 1e-5 * (1 + pow(sum.value, 4)) + 0x1p-100;
    }
    if (gated(s)) {
        up = sum_of(s, p, row, s->n / 2 + n);
        slack = slack * fabs(up.value) + fabs(want) * up.size * unit;
        want *= up.value;
    }
    check_close((double)tensor_at(&p->y, row, n), want, s->y, slack);
}

/* All of small ones; of large ones some rows, and of wide ones outputs on all sides of a unit. */
static void check(const struct shape *s, const struct product *p)
{
    uint32_t outputs = outputs_of(s), step = s->count > 20 ? 13 : 1;
    uint64_t work = (uint64_t)s->n * s->k * (s->count / step + 1);
    uint32_t every = work > 3000000 ? (uint32_t)(work / 3000000) * 2 + 1 : 1;
    for (uint32_t row = 0; row < s->count; row += step)
        for (uint32_t n = row % every; n < outputs; n += n + every < outputs ? every : 1)
            check_output(s, p, row, n);
}

/* A row of few has the same bits alone. */
static void check_alone(const struct shape *s, struct product *p)
{
    if (!s->count || (rig_kernels_wait && s->rows > GEMV_ROWS_MAX))
        return;
    uint32_t row = s->count - 1;
    struct tensor one = tensor_poison(s->y, 1, outputs_of(s));
    struct matmul_args args = p->args;
    args.rows = rig_span(1, 0, 1);
    args.x = (const char *)p->x.device + (size_t)row * p->x.stride * dtype_bytes(s->x);
    args.y = one.device;
    args.y_stride = one.stride;
    if (s->behind == ADDS)
        OK(cudaMemcpyAsync(one.device, (float *)p->before.device + (size_t)row * p->before.stride,
                           s->n * sizeof(float), cudaMemcpyDefault, rig_stream));
    OK(op_matmul(&args, rig_stream));
    tensor_read(&one);
    for (uint32_t n = 0; n < outputs_of(s); n++)
        ck_assert_msg(tensor_at(&one, 0, n) == tensor_at(&p->y, row, n),
                      "output %u of row %u: %.9g alone, %.9g among %u", n, row,
                      (double)tensor_at(&one, 0, n), (double)tensor_at(&p->y, row, n), s->rows);
}

START_TEST(products_are_those_of_the_numbers_less_their_zeros_times_their_scales)
{
    const struct shape *s = &shapes[_i];
    rig_begin();
    struct product p = product_make(s);
    bool fuses = matmul_fuses(&p.args);
    bool few = s->rows <= GEMV_ROWS_MAX;
    ck_assert(fuses || (s->behind != NOTHING && s->behind != BIAS));
    if (rig_gates_many && (few || s->behind == ADDS))
        ck_assert(fuses);
    ck_assert(tune_known(&p.args)); /* else bytes would be timed as the numbers they become */
    ck_assert_int_eq(op_matmul(&p.args, rig_stream), fuses ? cudaSuccess : cudaErrorNotSupported);
    if (s->behind != ADDS)
        ck_assert(tensor_untouched(&p.y, !fuses ? 0 : few ? s->count : s->rows));
    tensor_read(&p.y);
    if (fuses) {
        check(s, &p);
        check_alone(s, &p);
    }
    product_free(&p);
    rig_end();
}
END_TEST

/* Two products with a norm between them, of which each does a half (matmul.h). */
#define EPS 1e-5f

static const struct norm {
    uint32_t rows, middle;
    bool whole_first, whole_second; /* else of 16 bits: a model may have both */
} norms[] = {{1, 2176, true, true},  {8, 2176, true, true},   {13, 2176, true, true},
             {3, 2176, true, false}, {16, 2176, false, true}, {1, 4096, true, true},
             {16, 4096, true, true}, {7, 96, true, true},     {5, 9024, true, true},
             {11, 9024, true, false}};

static struct shape giver_of(const struct norm *norm)
{
    return (struct shape){norm->rows, norm->rows, norm->middle, 256, 128, U4,
                          ZEROS,      BF16,       F32,          ADDS};
}

static struct shape reader_of(const struct norm *norm)
{
    return (struct shape){norm->rows, norm->rows, 50,  norm->middle, 32, U4,
                          ZEROS,      BF16,       F32, NOTHING};
}

/* The same product of 16-bit numbers. */
static void make_plain(const struct shape *s, struct product *p)
{
    size_t count = (size_t)s->n * s->k;
    uint16_t *bits = malloc(count * sizeof *bits);
    for (uint32_t n = 0; n < s->n; n++)
        for (uint32_t k = 0; k < s->k; k++) {
            uint32_t word;
            float value = (float)element_of(s, p, n, k);
            memcpy(&word, &value, sizeof word);
            bits[(size_t)n * s->k + k] = (uint16_t)(word >> 16);
        }
    p->args.w = (struct weight){
        .data = rig_new(bits, count * sizeof *bits), .format = FORMAT_BF16, .n = s->n, .k = s->k};
    free(bits);
}

static void check_normed(const struct shape *s, const struct product *one,
                         const struct product *two, const struct tensor *handed, bool whole)
{
    for (uint32_t row = 0; row < s->rows; row++) {
        double squares = 0;
        for (uint32_t k = 0; k < s->k; k++)
            squares += pow((double)tensor_at(&one->y, row, k), 2);
        double scale = 1 / sqrt(squares / s->k + (double)EPS);
        for (uint32_t n = 0; n < s->n; n++) {
            double sum = 0, size = 0;
            for (uint32_t k = 0; k < s->k; k++) {
                double term = element_of(s, two, n, k) * (double)tensor_at(handed, row, k);
                sum += term;
                size += fabs(term);
            }
            double unit = 0x1p-21 * sqrt(s->k) + (whole ? 0 : 0x1p-7);
            check_close((double)tensor_at(&two->y, row, n), sum * scale, F32, size * scale * unit);
        }
    }
}

START_TEST(two_products_of_whole_numbers_do_the_norm_between_them)
{
    uint32_t rows = norms[_i].rows;
    const struct shape giver = giver_of(&norms[_i]), reader = reader_of(&norms[_i]);
    rig_begin();
    if (!rig_gates_many) { /* no sm_90: every norm is an op of its own */
        rig_end();
        return;
    }
    struct product one = product_make(&giver), two = product_make(&reader);
    struct tensor weight = tensor_random(BF16, 1, reader.k, 1);
    struct tensor handed = tensor_poison(BF16, rows, reader.k);
    if (!norms[_i].whole_first)
        make_plain(&giver, &one);
    if (!norms[_i].whole_second)
        make_plain(&reader, &two);
    one.args.norm_out =
        (struct matmul_norm_out){.weight = weight.device,
                                 .out = handed.device,
                                 .squares = rig_new(NULL, (size_t)rows * MATMUL_PARTS * 4),
                                 .out_stride = handed.stride,
                                 .weight_dtype = BF16};
    two.args.x = handed.device;
    two.args.x_stride = handed.stride;
    two.args.norm_in = (struct matmul_norm_in){.squares = one.args.norm_out.squares, .eps = EPS};
    ck_assert(matmul_fuses(&one.args) && matmul_fuses(&two.args));
    OK(op_matmul(&one.args, rig_stream));
    OK(op_matmul(&two.args, rig_stream));
    tensor_read(&one.y);
    tensor_read(&two.y);
    tensor_read(&handed);
    for (uint32_t row = 0; row < rows; row++)
        for (uint32_t k = 0; k < reader.k; k++)
            check_close((double)tensor_at(&handed, row, k),
                        (double)tensor_at(&one.y, row, k) * (double)tensor_at(&weight, 0, k), BF16,
                        0x1p-20);
    if (norms[_i].whole_first)
        check(&giver, &one);
    check_normed(&reader, &one, &two, &handed, norms[_i].whole_second);
    product_free(&one);
    product_free(&two);
    rig_end();
}
END_TEST

/* It fuses nothing, and is slow. */
static bool on_cpu(const struct shape *s)
{
    return s->behind <= BIAS && (uint64_t)s->rows * s->n * s->k < 100000000;
}

Suite *whole_suite(void)
{
    Suite *suite = suite_create("whole numbers");
    TCase *tcase = tcase_create("whole numbers");
    tcase_set_timeout(tcase, 60);
    for (int i = 0; i < (int)(sizeof shapes / sizeof *shapes); i++)
        if (rig_kernels_wait || on_cpu(&shapes[i]))
            tcase_add_loop_test(
                tcase, products_are_those_of_the_numbers_less_their_zeros_times_their_scales, i,
                i + 1);
    if (rig_kernels_wait)
        tcase_add_loop_test(tcase, two_products_of_whole_numbers_do_the_norm_between_them, 0,
                            (int)(sizeof norms / sizeof *norms));
    suite_add_tcase(suite, tcase);
    return suite;
}
