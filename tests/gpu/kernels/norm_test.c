/* Norms: of a row with what is added to it, and of two values of a row. */
#include <math.h>

#include "gpu/kernels/norm/norm.h"
#include "gpu/kernels/norm/wide_norm.h"
#include "tests/gpu/kernels/rig.h"
#include "tests/gpu/kernels/suites.h"

/* Of many rows, some from everywhere are looked at. */
static uint32_t rows_step(uint32_t rows)
{
    return rows / 250 * 2 + 1;
}

struct norm_case {
    uint32_t max, count, size;
    enum dtype residual, delta, out;
    bool has_delta, has_weight, in_place; /* in_place: out is the delta, or else the residual */
    float delta_scale;                    /* 0: none is given */
    enum norm_form form;
    float offset; /* of both weights */
    bool has_bias, behind;
};

static const struct norm_case norm_cases[] = {
    {1, 1, 1, DTYPE_F32, DTYPE_F32, DTYPE_F32, true, true, false, 0, NORM_SCALED, 0, false, false},
    {5, 3, 100, DTYPE_F32, DTYPE_F32, DTYPE_F32, true, true, true, 0, NORM_SCALED, 0, false, false},
    {200, 131, 64, DTYPE_F32, DTYPE_BF16, DTYPE_F32, true, true, false, 0, NORM_SCALED, 0, false,
     false},
    {4, 4, 2048, DTYPE_BF16, DTYPE_BF16, DTYPE_BF16, true, true, true, 0, NORM_SCALED, 0, false,
     false},
    {4, 4, 1031, DTYPE_BF16, DTYPE_F32, DTYPE_BF16, false, true, false, 0, NORM_SCALED, 0, false,
     false},
    {3, 2, 515, DTYPE_F16, DTYPE_F16, DTYPE_F16, true, false, false, 0, NORM_SCALED, 0, false,
     false},
    {7, 6, 512, DTYPE_F32, DTYPE_F32, DTYPE_F16, true, true, false, 0, NORM_SCALED, 0, false,
     false},
    {3, 0, 515, DTYPE_F32, DTYPE_F32, DTYPE_F32, true, true, false, 0, NORM_SCALED, 0, false,
     false},
    {9, 7, 96, DTYPE_F32, DTYPE_F32, DTYPE_F32, true, true, false, 0.22f, NORM_SCALED, 0, false,
     false},
    {4, 4, 2048, DTYPE_F32, DTYPE_BF16, DTYPE_BF16, true, true, false, 0.22f, NORM_SCALED, 0, false,
     false},
    /* more rows than a GPU takes at once */
    {540, 531, 4088, DTYPE_F32, DTYPE_F32, DTYPE_BF16, false, true, false, 0, NORM_SCALED, 0, false,
     false},
    /* more of a row than threads take at once */
    {3, 2, 9000, DTYPE_F32, DTYPE_BF16, DTYPE_BF16, true, true, false, 0, NORM_SCALED, 0, false,
     false},
    {2, 2, 20008, DTYPE_F32, DTYPE_F32, DTYPE_F16, true, true, false, 0, NORM_SCALED, 0, false,
     false},
    {2, 1, 33001, DTYPE_F32, DTYPE_F32, DTYPE_F32, false, true, false, 0, NORM_SCALED, 0, false,
     false},
    /* 1 + weight */
    {5, 4, 2304, DTYPE_F32, DTYPE_F32, DTYPE_BF16, true, true, false, 0, NORM_SCALED, 1, false,
     false},
    {3, 3, 99, DTYPE_F32, DTYPE_F32, DTYPE_F32, false, false, false, 0, NORM_SCALED, 1, false,
     false},
    {540, 539, 96, DTYPE_F32, DTYPE_F32, DTYPE_F16, false, true, false, 0, NORM_SCALED, 1, false,
     false},
    /* in place of what is normed */
    {4, 3, 1031, DTYPE_BF16, DTYPE_F32, DTYPE_BF16, false, true, true, 0, NORM_SCALED, 1, false,
     false},
    {600, 590, 520, DTYPE_F32, DTYPE_F32, DTYPE_F32, false, true, true, 0, NORM_SCALED, 0, false,
     false},
    /* with the mean taken off */
    {5, 4, 1000, DTYPE_F32, DTYPE_BF16, DTYPE_BF16, true, true, true, 0, NORM_CENTERED, 0, true,
     false},
    {3, 3, 61, DTYPE_F32, DTYPE_F32, DTYPE_F32, true, true, false, 0.5f, NORM_CENTERED, 0, true,
     false},
    {2, 1, 9001, DTYPE_F16, DTYPE_F16, DTYPE_F16, false, true, true, 0, NORM_CENTERED, 0, false,
     false},
    {1, 1, 20000, DTYPE_F32, DTYPE_F32, DTYPE_F32, false, false, false, 0, NORM_CENTERED, 0, true,
     false},
    {2, 2, 33000, DTYPE_F32, DTYPE_F32, DTYPE_F32, false, true, false, 0, NORM_CENTERED, 0, true,
     false},
    {600, 599, 1004, DTYPE_F32, DTYPE_F32, DTYPE_BF16, false, true, false, 0, NORM_CENTERED, 0,
     true, false},
    /* as it is */
    {5, 4, 1000, DTYPE_F32, DTYPE_BF16, DTYPE_BF16, true, false, false, 0, NORM_ROUNDED, 0, false,
     false},
    {3, 3, 9001, DTYPE_F32, DTYPE_F32, DTYPE_F16, false, false, false, 0, NORM_ROUNDED, 0, false,
     false},
    {2, 2, 20000, DTYPE_F32, DTYPE_F32, DTYPE_BF16, false, false, false, 0, NORM_ROUNDED, 0, false,
     false},
    {1, 1, 33000, DTYPE_F32, DTYPE_F32, DTYPE_BF16, true, false, false, 0, NORM_ROUNDED, 0, false,
     false},
    {540, 500, 72, DTYPE_F32, DTYPE_F32, DTYPE_BF16, false, false, false, 0, NORM_ROUNDED, 0, false,
     false},
    /* what is added is normed before */
    {5, 4, 4096, DTYPE_F32, DTYPE_F32, DTYPE_BF16, true, true, false, 0, NORM_SCALED, 0, false,
     true},
    {7, 5, 1003, DTYPE_F32, DTYPE_BF16, DTYPE_BF16, true, true, true, 0, NORM_SCALED, 1, false,
     true},
    {3, 3, 9001, DTYPE_F32, DTYPE_F16, DTYPE_F16, true, true, false, 0.5f, NORM_SCALED, 0, false,
     true},
    {2, 1, 20000, DTYPE_F32, DTYPE_F32, DTYPE_F16, true, true, false, 0, NORM_SCALED, 1, false,
     true},
    {2, 2, 33000, DTYPE_F32, DTYPE_F32, DTYPE_F32, true, true, false, 0, NORM_SCALED, 0, false,
     true},
    {9, 8, 130, DTYPE_F32, DTYPE_F32, DTYPE_F32, true, false, false, 0, NORM_SCALED, 1, false,
     true},
    {5, 4, 4096, DTYPE_F32, DTYPE_F32, DTYPE_BF16, true, true, false, 0, NORM_ROUNDED, 0, false,
     true},
    {3, 2, 9000, DTYPE_F32, DTYPE_BF16, DTYPE_BF16, true, true, true, 0, NORM_ROUNDED, 0, false,
     true},
    {1, 1, 20000, DTYPE_F32, DTYPE_F32, DTYPE_F32, true, true, false, 0, NORM_ROUNDED, 0, false,
     true},
    {1, 1, 33000, DTYPE_F32, DTYPE_F32, DTYPE_F32, true, true, false, 0, NORM_ROUNDED, 0, false,
     true},
};

static float *host_copy(const struct tensor *tensor)
{
    size_t bytes = (size_t)tensor->rows * tensor->stride * sizeof(float);
    return memcpy(malloc(bytes), tensor->host, bytes);
}

static double norm_mean(const struct tensor *x, uint32_t row)
{
    double sum = 0;
    for (uint32_t i = 0; i < x->size; i++)
        sum += (double)tensor_at(x, row, i);
    return sum / x->size;
}

static double norm_scale(const struct tensor *x, uint32_t row, double mean, double eps)
{
    double squares = 0;
    for (uint32_t i = 0; i < x->size; i++)
        squares += pow((double)tensor_at(x, row, i) - mean, 2);
    return 1 / sqrt(squares / x->size + eps);
}

/* A row's weights, or biases. */
static double number_of(const struct tensor *weight, bool there, uint32_t i, double offset,
                        double otherwise)
{
    return there ? offset + (double)tensor_at(weight, 0, i) : otherwise;
}

struct norm_tensors {
    struct tensor residual, delta, weight, bias, behind; /* the first two as they were */
    struct tensor now, out;
};

static void norm_residual_check(const struct norm_case *c, const struct norm_tensors *t,
                                uint32_t row)
{
    double by = c->delta_scale != 0 ? (double)c->delta_scale : 1;
    double unit = c->delta == DTYPE_F32 ? 1e-6 : c->delta == DTYPE_F16 ? 0x1p-11 : 0x1p-8;
    double scale = c->behind ? norm_scale(&t->delta, row, 0, 1e-4) : 1;
    for (uint32_t i = 0; i < c->size; i++) {
        double add = 0, slack = c->delta_scale != 0 ? 1e-6 : 0;
        if (c->has_delta && row < c->count)
            add = (double)tensor_at(&t->delta, row, i) * by * scale;
        if (c->behind) {
            add *= number_of(&t->behind, c->has_weight, i, (double)c->offset, 1);
            slack = fabs(add) * (unit + 2e-6);
        }
        check_close((double)tensor_at(&t->now, row, i),
                    (double)tensor_at(&t->residual, row, i) + add, c->residual, slack);
    }
}

/* `from`: what was normed, as it was stored. */
static void norm_out_check(const struct norm_case *c, const struct norm_tensors *t,
                           const struct tensor *from, uint32_t row)
{
    double mean = c->form == NORM_CENTERED ? norm_mean(from, row) : 0, scale = 1;
    if (c->form != NORM_ROUNDED)
        scale = norm_scale(from, row, mean, 1e-5);
    for (uint32_t i = 0; i < c->size; i++) {
        double x = (double)tensor_at(from, row, i), w = 1, bias = 0;
        if (c->form != NORM_ROUNDED)
            w = number_of(&t->weight, c->has_weight, i, (double)c->offset, 1);
        if (c->form == NORM_CENTERED)
            bias = number_of(&t->bias, c->has_bias, i, 0, 0);
        double want = (x - mean) * scale * w + bias;
        double slack = ((fabs(x) + fabs(mean)) * scale * fabs(w) + fabs(bias)) * 1e-6;
        check_close((double)tensor_at(&t->out, row, i), want, c->out,
                    c->form == NORM_ROUNDED ? 0 : slack);
    }
}

static struct norm_args norm_args_of(const struct norm_case *c, const struct norm_tensors *t)
{
    return (struct norm_args){
        .rows = rig_span(c->count, 0, c->max),
        .residual = t->residual.device,
        .delta = c->has_delta ? t->delta.device : NULL,
        .weight = c->has_weight ? t->weight.device : NULL,
        .out = t->out.device,
        .size = c->size,
        .residual_stride = t->residual.stride,
        .delta_stride = t->delta.stride,
        .out_stride = t->out.stride,
        .residual_dtype = c->residual,
        .delta_dtype = c->delta,
        .weight_dtype = DTYPE_BF16,
        .out_dtype = c->out,
        .eps = 1e-5f,
        .delta_scale = c->delta_scale,
        .form = c->form,
        .offset = c->offset,
        .bias = c->has_bias ? t->bias.device : NULL,
        .delta_normed = c->behind,
        .delta_weight = c->has_weight ? t->behind.device : NULL,
        .delta_eps = 1e-4f,
        .delta_offset = c->offset,
    };
}

START_TEST(norm_adds_then_scales_by_the_root_mean_square)
{
    const struct norm_case *c = &norm_cases[_i];
    rig_begin();
    struct norm_tensors t = {
        .residual = tensor_random(c->residual, c->max, c->size, 2),
        .delta = tensor_random(c->delta, c->max, c->size, 1),
        .weight = tensor_random(DTYPE_BF16, 1, c->size, 1),
        .bias = tensor_random(DTYPE_BF16, 1, c->size, 1),
        .behind = tensor_random(DTYPE_BF16, 1, c->size, 1),
    };
    bool own = c->in_place && !c->has_delta;
    t.now = t.residual;
    t.out = own ? t.residual : c->in_place ? t.delta : tensor_poison(c->out, c->max, c->size);
    struct norm_args args = norm_args_of(c, &t);
    float *before = host_copy(&t.residual), *added = host_copy(&t.delta);
    OK(op_norm(&args, rig_stream));
    tensor_read(&t.now);
    t.residual.host = before;
    t.delta.host = added;
    if (!c->in_place)
        ck_assert(tensor_untouched(&t.out, c->count));
    t.out.host = host_copy(&t.out);
    tensor_read(&t.out);
    for (uint32_t row = 0; row < c->max; row += rows_step(c->max)) {
        if (!own || row >= c->count)
            norm_residual_check(c, &t, row);
        if (row < c->count)
            norm_out_check(c, &t, own ? &t.residual : &t.now, row);
    }
    free(t.out.host);
    free(before);
    free(added);
    rig_end();
}
END_TEST

START_TEST(norm_refuses_what_no_device_does)
{
    static const float row[8];
    rig_begin();
    struct norm_args args = {.rows = rig_span(1, 0, 1),
                             .residual = rig_new(row, sizeof row),
                             .delta = rig_new(row, sizeof row),
                             .out = rig_new(row, sizeof row),
                             .size = 8,
                             .residual_stride = 8,
                             .delta_stride = 8,
                             .out_stride = 8,
                             .residual_dtype = DTYPE_F32,
                             .delta_dtype = DTYPE_F32,
                             .out_dtype = DTYPE_F32,
                             .form = NORM_CENTERED,
                             .delta_normed = true};
    ck_assert_int_eq(op_norm(&args, rig_stream), cudaErrorInvalidValue);
    args.form = NORM_SCALED;
    args.delta = NULL;
    ck_assert_int_eq(op_norm(&args, rig_stream), cudaErrorInvalidValue);
    rig_end();
}
END_TEST

struct wide_case {
    uint32_t max, count, first, size[WIDE_VALUES];
    enum dtype dtype;
    float offset;
    bool has_weight;
    uint32_t ranks; /* 1: the sums are made on the way */
};

static const struct wide_case wide_cases[] = {
    {1, 1, 0, {1, 1}, DTYPE_F32, 0, true, 1},
    {5, 4, 0, {4096, 1024}, DTYPE_BF16, 0, true, 1},
    {9, 7, 3, {100, 61}, DTYPE_F16, 1, true, 1},
    {3, 3, 0, {8, 9008}, DTYPE_BF16, 1, true, 1},
    {2, 2, 8, {20001, 64}, DTYPE_F32, 0, false, 1},
    {300, 290, 0, {256, 256}, DTYPE_BF16, 0, true, 1},
    {5, 4, 0, {2048, 512}, DTYPE_BF16, 0, true, 2},
    {4, 3, 5, {61, 100}, DTYPE_F32, 1, true, 3},
    {2, 2, 0, {9000, 17000}, DTYPE_BF16, 0, true, 2},
    {3, 0, 0, {64, 64}, DTYPE_F32, 0, true, 2},
};

/* Where it was not normed, it is as it was. */
static void wide_check(const struct wide_case *c, const struct wide_norm_args *args,
                       const struct tensor *was, const struct tensor *now,
                       const struct tensor *weight, uint32_t row)
{
    double scale[WIDE_VALUES];
    for (uint32_t v = 0; v < WIDE_VALUES; v++) {
        double squares = 0;
        for (uint32_t j = 0; j < c->size[v]; j++)
            squares += pow((double)tensor_at(was, row, args->value[v].first + j), 2);
        scale[v] = 1 / sqrt(squares / c->size[v] + 1e-5);
    }
    for (uint32_t i = 0; i < was->stride; i++) {
        double x = (double)tensor_at(was, row, i);
        uint32_t v = 0;
        while (v < WIDE_VALUES &&
               (i < args->value[v].first || i >= args->value[v].first + c->size[v]))
            v++;
        if (v == WIDE_VALUES || row >= c->count) {
            ck_assert((double)tensor_at(now, row, i) == x);
            continue;
        }
        double w =
            number_of(&weight[v], c->has_weight, i - args->value[v].first, (double)c->offset, 1);
        check_close((double)tensor_at(now, row, i), x * scale[v] * w, c->dtype,
                    fabs(x * scale[v] * w) * 2e-6);
    }
}

/* Sums over ranks that all have what this one has. */
static void squares_multiply(float *device, uint32_t count, uint32_t by)
{
    float host[1024];
    ck_assert_uint_le(count, 1024);
    rig_read(host, device, count * sizeof *host);
    for (uint32_t i = 0; i < count; i++)
        host[i] *= (float)by;
    OK(cudaMemcpyAsync(device, host, count * sizeof *host, cudaMemcpyHostToDevice, rig_stream));
    rig_wait();
}

START_TEST(two_values_of_a_row_are_normed_over_their_whole_widths)
{
    const struct wide_case *c = &wide_cases[_i];
    rig_begin();
    struct tensor was = tensor_random(c->dtype, c->max, c->first + c->size[0] + c->size[1] + 3, 2);
    struct tensor now = was, weight[WIDE_VALUES];
    struct wide_norm_args args = {.rows = rig_span(c->count, 0, c->max),
                                  .at = was.device,
                                  .stride = was.stride,
                                  .dtype = c->dtype,
                                  .weight_dtype = DTYPE_BF16,
                                  .ranks = c->ranks,
                                  .eps = 1e-5f,
                                  .offset = c->offset};
    for (uint32_t v = 0; v < WIDE_VALUES; v++) {
        weight[v] = tensor_random(DTYPE_BF16, 1, c->size[v], 1);
        args.value[v] = (struct wide_value){.first = c->first + v * c->size[0],
                                            .size = c->size[v],
                                            .weight = c->has_weight ? weight[v].device : NULL};
    }
    if (c->ranks > 1) {
        args.squares = rig_new(NULL, (size_t)c->max * WIDE_VALUES * sizeof(float));
        OK(op_squares(&args, rig_stream));
        squares_multiply(args.squares, c->count * WIDE_VALUES, c->ranks);
    }
    now.host = host_copy(&was);
    OK(op_wide_norm(&args, rig_stream));
    tensor_read(&now);
    for (uint32_t row = 0; row<c->max; row += c->size[0]> 8000 ? 1 : rows_step(c->max))
        wide_check(c, &args, &was, &now, weight, row);
    free(now.host);
    rig_end();
}
END_TEST

Suite *norm_suite(void)
{
    Suite *suite = suite_create("kernels: norm");
    TCase *tcase = tcase_create("norm");
    tcase_add_loop_test(tcase, norm_adds_then_scales_by_the_root_mean_square, 0,
                        sizeof norm_cases / sizeof *norm_cases);
    tcase_add_test(tcase, norm_refuses_what_no_device_does);
    tcase_add_loop_test(tcase, two_values_of_a_row_are_normed_over_their_whole_widths, 0,
                        sizeof wide_cases / sizeof *wide_cases);
    suite_add_tcase(suite, tcase);
    return suite;
}
