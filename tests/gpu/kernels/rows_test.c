/* Ops that work row by row: activation, gather, softcap. */
#include <math.h>

#include "gpu/kernels/activation/activation.h"
#include "gpu/kernels/cpu/number.h"
#include "gpu/kernels/sampling/gather.h"
#include "gpu/kernels/sampling/softcap.h"
#include "tests/gpu/kernels/rig.h"
#include "tests/gpu/kernels/suites.h"

/* Of many rows, some from everywhere are looked at. */
static uint32_t rows_step(uint32_t rows)
{
    return rows / 250 * 2 + 1;
}

static double activation_of(enum activation kind, double x)
{
    double u = sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
    return kind == ACTIVATE_SILU ? x / (1 + exp(-x)) : x / (1 + exp(-2 * u)); /* 1 + tanh */
}

struct activation_case {
    enum dtype dtype;
    uint32_t size, max, count;
    enum activation kind;
    bool gated;
};

static void activation_check(const struct activation_case *c)
{
    struct tensor in = tensor_random(c->dtype, c->max, (c->gated ? 2 : 1) * c->size, 4);
    struct tensor out = tensor_poison(c->dtype, c->max, c->size);
    struct activation_args args = {.rows = rig_span(c->count, 0, c->max),
                                   .in = in.device,
                                   .out = out.device,
                                   .size = c->size,
                                   .in_stride = in.stride,
                                   .out_stride = out.stride,
                                   .dtype = c->dtype,
                                   .kind = c->kind,
                                   .gated = c->gated};
    OK(op_activation(&args, rig_stream));
    ck_assert(tensor_untouched(&out, c->count));
    tensor_read(&out);
    for (uint32_t row = 0; row < c->count; row += rows_step(c->count))
        for (uint32_t i = 0; i < c->size; i++) {
            double x = (double)tensor_at(&in, row, i), want = activation_of(c->kind, x);
            double slack = fabs(want) * 1e-6;
            if (c->kind == ACTIVATE_GELU_TANH) /* far below 0 all is in the exponent's rounding, */
                slack = slack * (1 + x * x * x * x) + 0x1p-116; /* and then in its bound */
            double up = c->gated ? (double)tensor_at(&in, row, c->size + i) : 1;
            check_close((double)tensor_at(&out, row, i), want * up, c->dtype, slack * fabs(up));
        }
}

START_TEST(activation_is_silu_or_gelu_and_times_up_where_gated)
{
    static const uint32_t sizes[] = {1, 15, 1024, 2500, 16};
    rig_begin();
    for (int i = 0; i < 4; i++)
        activation_check(&(struct activation_case){(enum dtype)(_i % 3), sizes[_i % 5], 9,
                                                   (uint32_t)_i, (enum activation)(i % 2), i / 2});
    rig_end();
}
END_TEST

/* More rows than a GPU takes at once: it goes through them in turns. */
START_TEST(activation_of_many_rows)
{
    rig_begin();
    tensor_align(8);
    activation_check(
        &(struct activation_case){DTYPE_BF16, 16, 26000, 25977, (enum activation)(_i % 2), _i / 2});
    rig_end();
}
END_TEST

/* As many as are one for each processor and more, but not so many that they are taken in turns. */
START_TEST(activation_of_some_rows)
{
    rig_begin();
    activation_check(
        &(struct activation_case){DTYPE_F16, 2056, 300, 291, (enum activation)(_i % 2), _i / 2});
    rig_end();
}
END_TEST

/* What is too great for the exponent is x or nothing, as it is meant. */
START_TEST(activation_of_the_greatest_numbers)
{
    static const float from[] = {-3e38f, -1e20f, -1e5f, -100, 0, 100, 1e5f, 1e20f};
    rig_begin();
    float in[8], out[8];
    memcpy(in, from, sizeof in);
    for (int kind = 0; kind < 2; kind++) {
        struct activation_args args = {.rows = rig_span(1, 0, 1),
                                       .in = rig_new(in, sizeof in),
                                       .out = rig_new(in, sizeof out),
                                       .size = 8,
                                       .in_stride = 8,
                                       .out_stride = 8,
                                       .dtype = DTYPE_F32,
                                       .kind = (enum activation)kind};
        OK(op_activation(&args, rig_stream));
        rig_read(out, args.out, sizeof out);
        for (int i = 0; i < 8; i++)
            ck_assert_msg(in[i] > 0 ? out[i] == in[i] : fabsf(out[i]) <= 5, "%d: %g of %g", kind,
                          (double)out[i], (double)in[i]);
    }
    rig_end();
}
END_TEST

/* Activations of some models are that great; cut to what f16 holds, nobody would notice. */
START_TEST(swiglu_gives_infinity_where_f16_ends)
{
    rig_begin();
    uint16_t in[16], out[8]; /* gates, ups */
    for (uint32_t i = 0; i < 8; i++) {
        in[i] = f16_round(i % 2 ? 300.0f : 2.0f);
        in[8 + i] = f16_round(i % 4 == 3 ? -300.0f : 300.0f);
    }
    struct activation_args args = {.rows = rig_span(1, 0, 1),
                                   .in = rig_new(in, sizeof in),
                                   .out = rig_new(in, sizeof out),
                                   .size = 8,
                                   .in_stride = 16,
                                   .out_stride = 8,
                                   .dtype = DTYPE_F16,
                                   .kind = ACTIVATE_SILU,
                                   .gated = true};
    OK(op_activation(&args, rig_stream));
    rig_read(out, args.out, sizeof out);
    for (uint32_t i = 0; i < 8; i++) {
        float value = f16_widen(out[i]);
        if (i % 2)
            ck_assert(value == (i % 4 == 3 ? -INFINITY : INFINITY));
        else
            ck_assert(value > 500 && value < 600);
    }
    rig_end();
}
END_TEST

START_TEST(gather_takes_rows_by_index_from_the_first_of_a_chunk)
{
    rig_begin();
    static const float scales[] = {0, 1, 0.125f}; /* 0 stands for 1 */
    float scale = scales[_i], by = scale != 0 ? scale : 1;
    uint32_t index[20], total = 17, first = 8, max = 6, size = 33;
    struct tensor in = tensor_random(DTYPE_BF16, 50, size, 1);
    struct tensor out = tensor_poison(DTYPE_BF16, max, size);
    for (uint32_t i = 0; i < 20; i++)
        index[i] = rig_between(0, 49);
    for (; first < 24; first += max) {
        uint32_t here = first < total ? total - first < max ? total - first : max : 0;
        struct gather_args args = {.rows = rig_span(total, first, max),
                                   .index = rig_new(index, sizeof index),
                                   .in = in.device,
                                   .out = out.device,
                                   .size = size,
                                   .in_stride = in.stride,
                                   .out_stride = out.stride,
                                   .dtype = DTYPE_BF16,
                                   .scale = scale};
        OK(cudaMemsetAsync(out.device, 0xa5, (size_t)max * out.stride * 2, rig_stream));
        OK(op_gather(&args, rig_stream));
        ck_assert(tensor_untouched(&out, here));
        tensor_read(&out);
        for (uint32_t i = 0; i < here; i++)
            for (uint32_t j = 0; j < size; j++)
                ck_assert(tensor_at(&out, i, j) == by * tensor_at(&in, index[first + i], j));
    }
    rig_end();
}
END_TEST

/* Values far above and below the cap, an aligned and an odd width; the error is the cap's. */
START_TEST(softcap_is_the_cap_s_share_that_tanh_gives)
{
    static const struct {
        uint32_t size, max, count, first;
        float cap, deviation;
    } cases[] = {{1, 1, 1, 0, 30, 60},  {256, 5, 4, 0, 30, 20},    {515, 9, 12, 4, 2, 3},
                 {31, 3, 0, 0, 50, 1},  {4096, 2, 2, 0, 15, 0.01f}, {70001, 3, 3, 0, 30, 90}};
    rig_begin();
    uint32_t size = cases[_i].size, max = cases[_i].max;
    uint32_t count = cases[_i].count - cases[_i].first;
    double cap = (double)cases[_i].cap;
    struct tensor x = tensor_random(DTYPE_F32, max, size, cases[_i].deviation);
    struct tensor before = x;
    before.host = malloc((size_t)max * x.stride * sizeof(float));
    memcpy(before.host, x.host, (size_t)max * x.stride * sizeof(float));
    struct softcap_args args = {.rows = rig_span(cases[_i].count, cases[_i].first, max),
                                .x = x.device,
                                .size = size,
                                .stride = x.stride,
                                .cap = cases[_i].cap};
    OK(op_softcap(&args, rig_stream));
    tensor_read(&x);
    for (uint32_t row = 0; row < max; row++)
        for (uint32_t i = 0; i < x.stride; i++) {
            float was = before.host[(size_t)row * x.stride + i];
            float got = x.host[(size_t)row * x.stride + i];
            if (row < count && i < size)
                ck_assert(fabs((double)got - cap * tanh((double)was / cap)) <= cap * 4e-7);
            else
                ck_assert(!memcmp(&got, &was, sizeof got));
        }
    free(before.host);
    rig_end();
}
END_TEST

/* A model that overflows must not be heard as one that is sure. */
START_TEST(softcap_keeps_what_is_no_finite_number_from_being_one)
{
    rig_begin();
    float x[8] = {INFINITY, -INFINITY, NAN, 3e38f, -3e38f, 0, 1e-6f, 30};
    struct softcap_args args = {.rows = rig_span(1, 0, 1),
                                .x = rig_new(x, sizeof x),
                                .size = 8,
                                .stride = 8,
                                .cap = 30};
    OK(op_softcap(&args, rig_stream));
    rig_read(x, args.x, sizeof x);
    for (uint32_t i = 0; i < 3; i++)
        ck_assert(isnan(x[i]));
    ck_assert(x[3] == 30 && x[4] == -30 && x[5] == 0);
    rig_end();
}
END_TEST

Suite *rows_suite(void)
{
    Suite *suite = suite_create("kernels: rows");
    TCase *tcase = tcase_create("rows");
    tcase_add_loop_test(tcase, activation_is_silu_or_gelu_and_times_up_where_gated, 0, 10);
    tcase_add_loop_test(tcase, activation_of_many_rows, 0, 4);
    tcase_add_loop_test(tcase, activation_of_some_rows, 0, 4);
    tcase_add_test(tcase, activation_of_the_greatest_numbers);
    tcase_add_test(tcase, swiglu_gives_infinity_where_f16_ends);
    tcase_add_loop_test(tcase, gather_takes_rows_by_index_from_the_first_of_a_chunk, 0, 3);
    tcase_add_loop_test(tcase, softcap_is_the_cap_s_share_that_tanh_gives, 0, 6);
    tcase_add_test(tcase, softcap_keeps_what_is_no_finite_number_from_being_one);
    suite_add_tcase(suite, tcase);
    return suite;
}
