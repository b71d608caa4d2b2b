#include "gpu/kernels/matmul/matmul.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "gpu/kernels/matmul/cublaslt_tune.h"
#include "tests/gpu/kernels/rig.h"
#include "tests/gpu/kernels/suites.h"

struct shape {
    uint32_t rows, count, n, k;
    enum dtype w, x, y;
    bool bias;
};

static const struct shape shapes[] = {
    {1, 1, 1, 1, DTYPE_F32, DTYPE_F32, DTYPE_F32, false},
    {1, 1, 130, 64, DTYPE_BF16, DTYPE_F32, DTYPE_F32, true},
    {7, 7, 67, 333, DTYPE_F16, DTYPE_F32, DTYPE_F32, true},
    {9, 5, 96, 2048, DTYPE_BF16, DTYPE_BF16, DTYPE_BF16, true},
    {16, 16, 33, 1030, DTYPE_F32, DTYPE_F32, DTYPE_F32, false},
    {70, 61, 40, 4099, DTYPE_BF16, DTYPE_BF16, DTYPE_F32, false},
    {33, 33, 19, 15, DTYPE_F16, DTYPE_F16, DTYPE_F16, true},
    {9, 5, 96, 2048, DTYPE_F16, DTYPE_F16, DTYPE_F16, true},
    {70, 61, 40, 4096, DTYPE_F16, DTYPE_F16, DTYPE_F32, false},
    {40, 40, 64, 512, DTYPE_F16, DTYPE_F16, DTYPE_F16, false},
    {4, 0, 19, 15, DTYPE_F32, DTYPE_F32, DTYPE_F32, true},
};

static void check_row(const struct matmul_args *args, const struct tensor *w,
                      const struct tensor *x, const struct tensor *bias, const struct tensor *y,
                      uint32_t row)
{
    for (uint32_t n = 0; n < args->w.n; n++) {
        double sum = bias->device ? (double)tensor_at(bias, 0, n) : 0, size = fabs(sum);
        for (uint32_t k = 0; k < args->w.k; k++) {
            double term = (double)w->host[(size_t)n * args->w.k + k] * (double)tensor_at(x, row, k);
            sum += term;
            size += fabs(term);
        }
        check_close((double)tensor_at(y, row, n), sum, args->y_dtype,
                    size * 0x1p-24 * sqrt(args->w.k));
    }
}

START_TEST(products_are_those_of_a_plain_double_sum)
{
    const struct shape *s = &shapes[_i];
    rig_begin();
    struct tensor w = tensor_random(s->w, 1, s->n * s->k, 1);
    struct tensor x = tensor_random(s->x, s->rows, s->k, 1);
    struct tensor y = tensor_poison(s->y, s->rows, s->n), bias = {0};
    if (s->bias)
        bias = tensor_random(DTYPE_BF16, 1, s->n, 1);
    struct matmul_args args = {
        .rows = rig_span(s->count, 0, s->rows),
        .w = {.data = w.device, .format = format_plain(s->w), .n = s->n, .k = s->k},
        .bias = bias.device,
        .x = x.device,
        .y = y.device,
        .x_stride = x.stride,
        .y_stride = y.stride,
        .x_dtype = s->x,
        .y_dtype = s->y,
        .bias_dtype = DTYPE_BF16,
    };
    OK(op_matmul(&args, rig_stream));
    ck_assert(tensor_untouched(&y, s->rows));
    tensor_read(&y);
    for (uint32_t row = 0; row < s->count; row++)
        check_row(&args, &w, &x, &bias, &y, row);
    rig_end();
}
END_TEST

#define SAME_K 1500
#define SAME_N 37
#define SAME_ROWS 40

/* Outputs of rows first .. first + count - 1, computed together on so many threads. */
static void run(uint32_t threads, uint32_t first, uint32_t count, float *ret_y)
{
    rig_seed(9);
    rig_threads(threads);
    struct tensor w = tensor_random(DTYPE_BF16, 1, SAME_N * SAME_K, 1);
    struct tensor x = tensor_random(DTYPE_F32, SAME_ROWS, SAME_K, 1);
    struct tensor y = tensor_poison(DTYPE_F32, count, SAME_N);
    struct matmul_args args = {
        .rows = rig_span(count, 0, count),
        .w = {.data = w.device, .format = FORMAT_BF16, .n = SAME_N, .k = SAME_K},
        .x = (float *)x.device + (size_t)first * x.stride,
        .y = y.device,
        .x_stride = x.stride,
        .y_stride = y.stride,
    };
    OK(op_matmul(&args, rig_stream));
    tensor_read(&y);
    for (uint32_t r = 0; r < count; r++)
        memcpy(ret_y + (size_t)r * SAME_N, y.host + (size_t)r * y.stride, SAME_N * sizeof *ret_y);
    rig_end();
}

START_TEST(a_row_has_the_same_bits_alone_and_among_others_on_any_number_of_threads)
{
    static float all[SAME_ROWS * SAME_N], some[SAME_ROWS * SAME_N];
    static const uint32_t sizes[] = {1, 2, 3, 5, 8, 17, 40};
    run(1, 0, SAME_ROWS, all);
    for (uint32_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (uint32_t threads = 1; threads <= 2; threads++) {
            uint32_t first = (SAME_ROWS - sizes[i]) / 2;
            run(threads, first, sizes[i], some);
            ck_assert_mem_eq(some, all + (size_t)first * SAME_N,
                             (size_t)sizes[i] * SAME_N * sizeof *some);
        }
}
END_TEST

/* What a product does behind itself, where the device can; else it refuses. */
struct fused_case {
    uint32_t rows, count, n, k;
    bool gated, adds, bias;
    bool activates; /* each output, by GELU */
};

static double activation_of(enum activation kind, double x)
{
    double u = sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
    return kind == ACTIVATE_SILU ? x / (1 + exp(-x)) : x / (1 + exp(-2 * u)); /* 1 + tanh */
}

static struct matmul_args matmul_of(struct row_range rows, const struct tensor *w, uint32_t n,
                                    uint32_t k, const struct tensor *x, const struct tensor *y)
{
    return (struct matmul_args){
        .rows = rows,
        .w = {.data = w->device, .format = format_plain(w->dtype), .n = n, .k = k},
        .x = x->device,
        .y = y->device,
        .x_stride = x->stride,
        .y_stride = y->stride,
        .x_dtype = x->dtype,
        .y_dtype = y->dtype,
        .bias_dtype = w->dtype,
    };
}

static struct tensor aligned_rows(enum dtype dtype, uint32_t rows, uint32_t size)
{
    tensor_align(8); /* as products read them */
    struct tensor out = tensor_random(dtype, rows, size, 1);
    tensor_align(1);
    return out;
}

/* Above GEMV_ROWS_MAX all rows up to the bound may be computed, so all of them exist. */
static const struct fused_case fused_cases[] = {
    {1, 1, 4320, 200, true, false, false, false},
    {8, 5, 48, 2048, true, false, true, false},
    {7, 7, 2160, 576, true, false, true, false},
    {16, 11, 2176, 1544, true, false, false, false},
    {1, 1, 64, 14336, false, true, false, false},
    {16, 13, 1061, 640, false, true, true, false},
    {3, 3, 33, 264, false, true, true, false},
    {4, 1, 1090, 4096, false, true, false, false},
    {40, 40, 128, 512, false, true, false, false},
    {24, 24, 61, 40, false, true, true, false},
    {17, 17, 4, 8, true, false, false, false},
    {64, 64, 1000, 72, true, false, false, false},
    {128, 128, 196, 1032, true, false, false, false},
    {129, 129, 96, 4096, true, false, false, false},
    {256, 256, 388, 576, true, false, false, false},
    {130, 130, 48, 64, true, false, true, false},
    {19, 19, 13732, 136, true, false, false, false},
    {20, 20, 24004, 72, true, false, false, false},
    {70, 70, 28676, 64, true, false, false, false},
    {200, 200, 14000, 64, true, false, false, false},
    {150, 150, 14784, 64, true, false, false, false},
    {33, 33, 16388, 200, true, false, false, false},
    {140, 140, 25400, 72, true, false, false, false},
    {256, 256, 4096, 72, false, true, false, false},
    /* tiles; rows and columns that end within one; two turns; more than a band */
    {321, 321, 544, 72, true, false, false, false},
    {384, 384, 16, 8, true, false, false, false},
    {257, 257, 64, 64, true, false, false, false},
    {320, 320, 64, 64, true, false, false, false},
    {513, 513, 176, 136, true, false, false, false},
    {2100, 2100, 48, 64, true, false, false, false},
    {322, 322, 34000, 8, true, false, false, false},
    {400, 400, 96, 72, true, false, true, false},
    {2, 2, 40, 3072, false, true, false, false},
    {16, 15, 48, 2560, true, false, false, false},
    {9, 9, 35, 5632, false, true, false, false},
    /* of no two halves: with few rows alone */
    {1, 1, 4320, 200, false, false, true, true},
    {8, 5, 45, 2048, false, false, false, true},
    {16, 11, 1090, 576, false, false, true, true},
    {17, 17, 64, 64, false, false, false, true},
    {256, 256, 64, 64, false, false, true, true},
};

static double sum_of(const struct matmul_args *args, const struct tensor *w, const struct tensor *x,
                     const struct tensor *bias, uint32_t row, uint32_t n, double *ret_size)
{
    double sum = args->bias ? (double)tensor_at(bias, 0, n) : 0;
    *ret_size = fabs(sum);
    for (uint32_t k = 0; k < args->w.k; k++) {
        double term = (double)w->host[(size_t)n * args->w.k + k] * (double)tensor_at(x, row, k);
        sum += term;
        *ret_size += fabs(term);
    }
    return sum;
}

/* A product's activation of what has `error`: what is wanted, and how far off it may be. */
static double activated(enum activation kind, double x, double error, double *ret_slack)
{
    double want = activation_of(kind, x), power = kind == ACTIVATE_SILU ? 1 : 1 + x * x * x * x;
    *ret_slack = 1.15 * error + fabs(want) * 1e-6 * power + 0x1p-116; /* at the exponent's bound */
    return want;
}

START_TEST(a_product_gates_and_adds_where_the_device_can)
{
    const struct fused_case *c = &fused_cases[_i / 4];
    enum dtype dtype = _i % 2 ? DTYPE_BF16 : DTYPE_F16;
    enum activation kind = _i / 2 % 2 || c->activates ? ACTIVATE_GELU_TANH : ACTIVATE_SILU;
    rig_begin();
    uint32_t width = c->gated ? c->n / 2 : c->n;
    struct tensor w = tensor_random(dtype, 1, c->n * c->k, 0.1f);
    struct tensor bias = tensor_random(dtype, 1, c->n, 1);
    struct tensor x = aligned_rows(dtype, c->rows, c->k);
    bool many = c->gated && c->rows > GEMV_ROWS_MAX;
    tensor_align(c->rows > MATMUL_GATED_MAX ? 8 : many ? 2 : 1); /* as they are stored */
    struct tensor y = c->adds ? tensor_random(DTYPE_F32, c->rows, width, 3)
                              : tensor_poison(dtype, c->rows, width);
    struct matmul_args args = matmul_of(rig_span(c->count, 0, c->rows), &w, c->n, c->k, &x, &y);
    args.bias = c->bias ? bias.device : NULL;
    args.gated = c->gated;
    args.activates = c->activates;
    args.activation = kind;
    args.adds = c->adds;
    size_t elements = (size_t)c->rows * y.stride;
    float *before = malloc(elements * sizeof *before);
    memcpy(before, y.host, elements * sizeof *before);
    bool fuses = matmul_fuses(&args);
    bool apart = c->rows > MATMUL_GATED_MAX && c->rows <= MATMUL_APART_MAX;
    if (rig_gates_many && many && !c->bias)
        ck_assert_int_eq(fuses, !apart);
    ck_assert(!c->activates || !fuses || c->rows <= GEMV_ROWS_MAX);
    ck_assert_int_eq(op_matmul(&args, rig_stream), fuses ? cudaSuccess : cudaErrorNotSupported);
    if (!c->adds)
        ck_assert(tensor_untouched(&y, fuses ? c->count : 0));
    tensor_read(&y);
    for (uint32_t row = 0; fuses && row < c->count; row++)
        for (uint32_t n = 0; n < width; n++) {
            double unit = 0x1p-24 * sqrt(c->k), size, up_size;
            double want = sum_of(&args, &w, &x, &bias, row, n, &size), slack = size * unit;
            if (c->gated) {
                double gate = want, up = sum_of(&args, &w, &x, &bias, row, width + n, &up_size);
                want = activated(kind, gate, slack, &slack) * up;
                slack = slack * fabs(up) + up_size * unit * fabs(gate);
            }
            if (c->activates)
                want = activated(kind, want, slack, &slack);
            if (c->adds)
                want += (double)before[(size_t)row * y.stride + n];
            check_close((double)tensor_at(&y, row, n), want, y.dtype, slack);
        }
    for (size_t i = fuses ? (size_t)c->count * y.stride : 0; c->adds && i < elements; i++)
        ck_assert(y.host[i] == before[i]);
    free(before);
    rig_end();
}
END_TEST

/* Two products with a norm between them, of which each does a half. */
struct normed_case {
    uint32_t rows, count, middle; /* middle: outputs of the one, inputs of the other */
    bool gated, bias; /* with a bias the norm's weight has an offset, too */
    bool gelu; /* of what is gated, else of each output; else SiLU of what is gated */
};

static const struct normed_case normed_cases[] = {
    {1, 1, 4096, true, false, false},  {4, 3, 2048, false, true, false},
    {8, 8, 264, true, true, false},    {9, 7, 8, false, false, false},
    {16, 16, 1064, true, true, false}, {16, 2, 5120, false, false, false},
    {3, 3, 2048, true, true, true},    {11, 9, 264, true, false, true},
    {5, 4, 2048, false, true, true},   {16, 16, 1064, false, false, true},
};

#define NORMED_K 64 /* inputs of the one */
#define NORMED_N 48 /* outputs of the other */
#define NORMED_EPS 1e-5f

static struct matmul_norm_out handing(const struct tensor *weight, const struct tensor *out,
                                      float *squares, float offset)
{
    return (struct matmul_norm_out){.weight = weight->device,
                                    .out = out->device,
                                    .squares = squares,
                                    .out_stride = out->stride,
                                    .weight_dtype = weight->dtype,
                                    .offset = offset};
}

/* What a norm of `residual` gives, rounded where the two products round it. */
static double *normed(const struct tensor *residual, const struct tensor *weight, double offset,
                      uint32_t row, double *ret_scale)
{
    double *out = malloc(residual->size * sizeof *out), squares = 0;
    for (uint32_t i = 0; i < residual->size; i++) {
        double value = (double)tensor_at(residual, row, i);
        squares += value * value;
        out[i] = value * (offset + (double)tensor_at(weight, 0, i));
    }
    *ret_scale = 1 / sqrt(squares / residual->size + (double)NORMED_EPS);
    return out;
}

/* Scales are float32, and their root is the device's: four times what a sum alone is given. */
static void check_normed(const struct matmul_args *args, const struct tensor *w,
                         const struct tensor *bias, const struct tensor *x, const struct tensor *y,
                         double scale, uint32_t row)
{
    uint32_t width = args->gated ? args->w.n / 2 : args->w.n;
    struct matmul_args plain = *args;
    plain.bias = NULL;
    for (uint32_t n = 0; n < width; n++) {
        double unit = 0x1p-22 * sqrt(args->w.k), size, up_size;
        double want = sum_of(&plain, w, x, bias, row, n, &size) * scale,
               slack = size * scale * unit;
        if (args->bias)
            want += (double)tensor_at(bias, 0, n);
        if (args->gated) {
            double gate = want, up = sum_of(&plain, w, x, bias, row, width + n, &up_size) * scale;
            if (args->bias)
                up += (double)tensor_at(bias, 0, width + n);
            want = activated(args->activation, gate, slack, &slack) * up;
            slack = slack * fabs(up) + up_size * scale * unit * fabs(gate);
        }
        if (args->activates)
            want = activated(args->activation, want, slack, &slack);
        check_close((double)tensor_at(y, row, n), want, y->dtype, slack);
    }
}

START_TEST(two_products_do_the_norm_between_them_where_the_device_can)
{
    const struct normed_case *c = &normed_cases[_i / 2];
    enum dtype dtype = _i % 2 ? DTYPE_BF16 : DTYPE_F16;
    rig_begin();
    struct tensor w1 = tensor_random(dtype, 1, c->middle * NORMED_K, 0.1f);
    struct tensor w2 = tensor_random(dtype, 1, NORMED_N * c->middle, 0.1f);
    struct tensor bias = tensor_random(dtype, 1, NORMED_N, 1);
    struct tensor weight = tensor_random(dtype, 1, c->middle, 1);
    struct tensor x = aligned_rows(dtype, c->rows, NORMED_K);
    struct tensor residual = tensor_random(DTYPE_F32, c->rows, c->middle, 3);
    struct tensor handed = aligned_rows(dtype, c->rows, c->middle);
    uint32_t width = c->gated ? NORMED_N / 2 : NORMED_N;
    struct tensor y = tensor_poison(dtype, c->rows, width);
    float *squares = rig_new(NULL, (size_t)c->rows * MATMUL_PARTS * sizeof *squares);
    struct row_range rows = rig_span(c->count, 0, c->rows);
    struct matmul_args giver = matmul_of(rows, &w1, c->middle, NORMED_K, &x, &residual);
    giver.adds = true;
    giver.norm_out = handing(&weight, &handed, squares, c->bias ? 1 : 0);
    struct matmul_args reader = matmul_of(rows, &w2, NORMED_N, c->middle, &handed, &y);
    reader.bias = c->bias ? bias.device : NULL;
    reader.gated = c->gated;
    reader.activates = c->gelu && !c->gated;
    reader.activation = c->gelu ? ACTIVATE_GELU_TANH : ACTIVATE_SILU;
    reader.norm_in = (struct matmul_norm_in){.squares = squares, .eps = NORMED_EPS};
    bool fuses = matmul_fuses(&giver);
    ck_assert_int_eq(fuses, matmul_fuses(&reader));
    cudaError_t expected = fuses ? cudaSuccess : cudaErrorNotSupported;
    ck_assert_int_eq(op_matmul(&giver, rig_stream), expected);
    ck_assert_int_eq(op_matmul(&reader, rig_stream), expected);
    ck_assert(tensor_untouched(&y, fuses ? c->count : 0));
    tensor_read(&residual);
    tensor_read(&handed);
    tensor_read(&y);
    for (uint32_t row = 0; fuses && row < c->count; row++) {
        double scale, *want = normed(&residual, &weight, c->bias ? 1 : 0, row, &scale);
        for (uint32_t i = 0; i < c->middle; i++)
            check_close((double)tensor_at(&handed, row, i), want[i], dtype,
                        fabs(want[i]) * 0x1p-23);
        check_normed(&reader, &w2, &bias, &handed, &y, scale, row);
        free(want);
    }
    rig_end();
}
END_TEST

START_TEST(a_row_is_handed_on_with_the_same_bits_alone_and_among_others)
{
    rig_begin();
    const uint32_t rows = 16, n = 9000, k = 64; /* two turns for the blocks */
    struct tensor w = tensor_random(DTYPE_BF16, 1, n * k, 0.1f);
    struct tensor weight = tensor_random(DTYPE_BF16, 1, n, 1);
    struct tensor x = aligned_rows(DTYPE_BF16, rows, k), out = aligned_rows(DTYPE_BF16, rows, n);
    struct tensor residual = tensor_random(DTYPE_F32, rows, n, 3);
    size_t bytes = (size_t)rows * out.stride * 2, parts_bytes = rows * MATMUL_PARTS * 4;
    float *parts = rig_new(NULL, parts_bytes);
    char *together = malloc(bytes + parts_bytes), *alone = malloc(bytes + parts_bytes);
    bool fuses = true;
    for (uint32_t few = 0; few < 2 && fuses; few++) {
        OK(cudaMemsetAsync(residual.device, 0x3f, (size_t)rows * residual.stride * 4, rig_stream));
        for (uint32_t row = 0; row < (few ? rows : 1) && fuses; row++) {
            struct row_range span = rig_span(few ? 1 : rows, 0, few ? 1 : rows);
            struct matmul_args args = matmul_of(span, &w, n, k, &x, &residual);
            args.adds = true;
            args.norm_out = handing(&weight, &out, parts + (size_t)row * MATMUL_PARTS, 0);
            args.x = (char *)x.device + (size_t)row * x.stride * 2;
            args.y = (char *)residual.device + (size_t)row * residual.stride * 4;
            args.norm_out.out = (char *)out.device + (size_t)row * out.stride * 2;
            fuses = matmul_fuses(&args);
            ck_assert_int_eq(op_matmul(&args, rig_stream),
                             fuses ? cudaSuccess : cudaErrorNotSupported);
        }
        rig_read(few ? alone : together, out.device, bytes);
        rig_read((few ? alone : together) + bytes, parts, parts_bytes);
    }
    if (fuses)
        ck_assert_mem_eq(together, alone, bytes + parts_bytes);
    free(together);
    free(alone);
    rig_end();
}
END_TEST

/* However the rows are shared by warpgroups, and whether a tile of the last block is whole. */
START_TEST(a_gated_row_of_many_has_the_same_bits_whatever_their_number)
{
    rig_begin();
    static const uint32_t few[] = {256, 17, 64, 100, 190, 255};
    static const uint32_t many[] = {2100, 321, 400, 513, 768, 1030};
    const uint32_t *sizes = _i < 4 ? few : many;
    /* Of 28672 outputs, tiles of 190 rows, and of 768, are of another width. */
    const uint32_t n = _i % 2 ? 28672 : 992, k = _i % 2 ? 72 : 600, first = sizes[1];
    struct tensor w = tensor_random(DTYPE_BF16, 1, n * k, 0.1f);
    struct tensor x = aligned_rows(DTYPE_BF16, sizes[0], k);
    tensor_align(8);
    struct tensor y = tensor_poison(DTYPE_BF16, sizes[0], n / 2);
    size_t bytes = (size_t)first * y.stride * 2;
    char *all = malloc(bytes), *some = malloc(bytes);
    for (uint32_t i = 0; i < sizeof few / sizeof *few; i++) {
        struct row_range span = rig_span(sizes[i], 0, sizes[i]);
        struct matmul_args args = matmul_of(span, &w, n, k, &x, &y);
        args.gated = true;
        args.activation = (enum activation)(_i / 2 % 2);
        OK(cudaMemsetAsync(y.device, 0x3f, (size_t)sizes[0] * y.stride * 2, rig_stream));
        bool fuses = matmul_fuses(&args);
        ck_assert_int_eq(op_matmul(&args, rig_stream), fuses ? cudaSuccess : cudaErrorNotSupported);
        rig_read(i ? some : all, y.device, bytes);
        if (i && fuses)
            ck_assert_mem_eq(some, all, bytes);
    }
    free(all);
    free(some);
    rig_end();
}
END_TEST

/* Adds `line` to the file of choices in `dir`, where the device has one. */
static void choice_add(const char *dir, const char *line)
{
    ck_assert_int_eq(tune_save(dir), 0);
    DIR *all = opendir(dir);
    ck_assert_ptr_nonnull(all);
    for (struct dirent *at = readdir(all); at; at = readdir(all)) {
        char path[512];
        snprintf(path, sizeof path, "%s/%s", dir, at->d_name);
        FILE *file = at->d_name[0] == '.' ? NULL : fopen(path, "ae");
        if (!file)
            continue;
        ck_assert_int_ge(fputs(line, file), 0);
        ck_assert_int_eq(fclose(file), 0);
        ck_assert_int_ge(tune_load(dir), 1);
        ck_assert_int_eq(unlink(path), 0);
    }
    closedir(all);
}

static const struct chosen_case {
    uint32_t rows, n, k;
    enum dtype y; /* BF16: the dtype of the others */
    bool adds, bias;
} chosen_cases[] = {
    {321, 264, 136, DTYPE_BF16, false, false}, {384, 72, 72, DTYPE_BF16, false, true},
    {400, 520, 64, DTYPE_F32, false, false},   {513, 88, 264, DTYPE_F32, true, false},
    {2100, 40, 8, DTYPE_F32, true, false},     {322, 17000, 8, DTYPE_BF16, false, false},
    {140, 64, 64, DTYPE_BF16, false, false}, /* too few rows: the library's all the same */
};

START_TEST(a_product_that_is_chosen_to_be_ours_is_right)
{
    const struct chosen_case *c = &chosen_cases[_i / 2];
    enum dtype dtype = _i % 2 ? DTYPE_BF16 : DTYPE_F16, of_y = c->y == DTYPE_F32 ? c->y : dtype;
    char dir[] = "/tmp/sluice-choices-XXXXXX", line[128];
    const char *name = format_info(format_plain(dtype)).name;
    rig_begin();
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(line, sizeof line, "%u %u %u %s %s %s %d tiles\n", c->rows, c->n, c->k, name, name,
             format_info(format_plain(of_y)).name, c->bias);
    choice_add(dir, line);
    ck_assert_int_eq(rmdir(dir), 0);
    struct tensor w = tensor_random(dtype, 1, c->n * c->k, 0.1f);
    struct tensor bias = tensor_random(dtype, 1, c->n, 1);
    struct tensor x = aligned_rows(dtype, c->rows, c->k);
    struct tensor y = aligned_rows(of_y, c->rows, c->n);
    struct matmul_args args = matmul_of(rig_span(c->rows, 0, c->rows), &w, c->n, c->k, &x, &y);
    args.bias = c->bias ? bias.device : NULL;
    args.adds = c->adds;
    bool fuses = matmul_fuses(&args);
    float *before = malloc((size_t)c->rows * y.stride * sizeof *before);
    memcpy(before, y.host, (size_t)c->rows * y.stride * sizeof *before);
    ck_assert_int_eq(op_matmul(&args, rig_stream),
                     fuses || !c->adds ? cudaSuccess : cudaErrorNotSupported);
    tensor_read(&y);
    for (uint32_t row = 0; row < c->rows; row++) {
        for (uint32_t n = 0; n < y.stride; n++) {
            double size, want = (double)before[(size_t)row * y.stride + n];
            double got = (double)y.host[(size_t)row * y.stride + n];
            if (n < c->n && (fuses || !c->adds)) {
                want = sum_of(&args, &w, &x, &bias, row, n, &size) + (c->adds ? want : 0);
                check_close(got, want, of_y, size * 0x1p-24 * sqrt(c->k));
            } else {
                ck_assert(got == want);
            }
        }
    }
    free(before);
    rig_end();
}
END_TEST

/* No backend reads them today: one that took their elements for numbers would be wrong. */
START_TEST(weights_with_scales_zeros_or_an_order_are_refused)
{
    static const uint32_t something[1];
    const struct weight weights[] = {
        {.n = 1, .k = 1, .scales = {.data = something}},
        {.n = 1, .k = 1, .zeros = (const uint8_t *)something},
        {.n = 1, .k = 1, .order = something},
        {.n = 1, .k = 1, .input = {.rounding = ROUNDING_TOKEN}},
    };
    rig_begin();
    for (size_t i = 0; i < sizeof weights / sizeof *weights; i++) {
        struct matmul_args args = {.w = weights[i]};
        ck_assert(!matmul_fuses(&args));
        ck_assert_int_eq(op_matmul(&args, rig_stream), cudaErrorNotSupported);
    }
    rig_end();
}
END_TEST

Suite *matmul_suite(void)
{
    Suite *suite = suite_create("kernels: product");
    TCase *tcase = tcase_create("product");
    tcase_add_loop_test(tcase, products_are_those_of_a_plain_double_sum, 0,
                        sizeof shapes / sizeof *shapes);
    tcase_add_test(tcase, a_row_has_the_same_bits_alone_and_among_others_on_any_number_of_threads);
    tcase_add_loop_test(tcase, a_product_gates_and_adds_where_the_device_can, 0,
                        4 * sizeof fused_cases / sizeof *fused_cases);
    tcase_add_loop_test(tcase, two_products_do_the_norm_between_them_where_the_device_can, 0,
                        2 * sizeof normed_cases / sizeof *normed_cases);
    tcase_add_test(tcase, a_row_is_handed_on_with_the_same_bits_alone_and_among_others);
    tcase_add_loop_test(tcase, a_gated_row_of_many_has_the_same_bits_whatever_their_number, 0, 8);
    tcase_add_loop_test(tcase, a_product_that_is_chosen_to_be_ours_is_right, 0,
                        2 * sizeof chosen_cases / sizeof *chosen_cases);
    tcase_add_test(tcase, weights_with_scales_zeros_or_an_order_are_refused);
    suite_add_tcase(suite, tcase);
    return suite;
}
