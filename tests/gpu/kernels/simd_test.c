/* All variants that this machine has, against the narrowest: the same bits. */
#include "gpu/kernels/cpu/simd.h"

#include "gpu/kernels/cpu/number.h"
#include "tests/gpu/kernels/rig.h"
#include "tests/gpu/kernels/suites.h"

#define COUNT_MAX_HERE 1100
#define ROWS_MAX_HERE 11

static float numbers[ROWS_MAX_HERE * COUNT_MAX_HERE], others[ROWS_MAX_HERE * COUNT_MAX_HERE];
static uint16_t halves[ROWS_MAX_HERE * COUNT_MAX_HERE];
static float got[2][ROWS_MAX_HERE * COUNT_MAX_HERE];

static void fill(enum dtype dtype)
{
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        numbers[i] = rig_normal();
        others[i] = rig_normal();
    }
    if (dtype != DTYPE_F32)
        number_round(halves, others, dtype, sizeof halves / sizeof *halves);
    memset(got, 0, sizeof got);
}

static void check_same(const char *what, const struct simd *simd)
{
    ck_assert_msg(!memcmp(got[0], got[1], sizeof got[0]), "%s: %s differs", simd->name, what);
}

START_TEST(panels_have_the_same_bits_in_every_variant)
{
    enum dtype w_dtype = (enum dtype)(_i % 3), x_dtype = (enum dtype)(_i / 3 % 3);
    static uint16_t x_halves[sizeof numbers / sizeof *numbers];
    rig_seed((uint64_t)_i);
    fill(w_dtype);
    number_round(x_dtype == DTYPE_F32 ? (void *)got : (void *)x_halves, numbers, x_dtype,
                 sizeof numbers / sizeof *numbers);
    memset(got, 0, sizeof got);
    uint32_t k = rig_between(1, COUNT_MAX_HERE), n = rig_between(1, 11), rows = rig_between(1, 11);
    for (uint32_t v = 0; simd_variant(v); v++) {
        struct simd_panel panel = {
            .w = w_dtype == DTYPE_F32 ? (void *)others : (void *)halves,
            .x = x_dtype == DTYPE_F32 ? (void *)numbers : (void *)x_halves,
            .y = got[v > 0],
            .w_stride = k,
            .x_stride = k,
            .y_stride = 16,
            .n = n,
            .rows = rows,
            .k = k,
            .w_dtype = w_dtype,
            .x_dtype = x_dtype,
        };
        simd_variant(v)->panel(&panel);
        if (v)
            check_same("panel", simd_variant(v));
    }
}
END_TEST

START_TEST(sums_along_a_row_have_the_same_bits_in_every_variant)
{
    rig_seed((uint64_t)_i);
    fill(DTYPE_BF16);
    size_t count = rig_between(1, COUNT_MAX_HERE);
    for (uint32_t v = 0; simd_variant(v); v++) {
        const struct simd *simd = simd_variant(v);
        float *out = got[v > 0];
        memset(out, 0, sizeof got[0]);
        simd->squares(out, numbers, count);
        simd->exps(out + 16, out + 64, numbers, 0.5f, count);
        simd->silu(out + 64 + COUNT_MAX_HERE, numbers, others, count);
        float *behind = out + 64 + 2 * COUNT_MAX_HERE + 9 * 256; /* values' sums */
        simd->gelu(behind, numbers, others, count);
        simd->silu(behind + COUNT_MAX_HERE, numbers, NULL, count);
        simd->gelu(behind + 2 * COUNT_MAX_HERE, numbers, NULL, count);
        struct simd_values values = {
            .v = halves,
            .p = numbers,
            .sum = out + 64 + 2 * COUNT_MAX_HERE,
            .stride = 256,
            .heads = (uint32_t)count % 9 + 1,
            .count = 17,
            .head_dim = (uint32_t)count % 256 + 1,
            .v_dtype = DTYPE_BF16,
        };
        simd->values(&values);
        if (v)
            check_same("squares, exps, silu, gelu or values", simd);
    }
}
END_TEST

START_TEST(a_dot_product_runs_over_sixteen_lanes_and_a_tree)
{
    fill(DTYPE_F32);
    uint32_t k = 1003;
    float lanes[16] = {0}, y;
    for (uint32_t i = 0; i < k; i++) {
        volatile float product = numbers[i] * others[i];
        lanes[i % 16] += product;
    }
    for (int apart = 8; apart; apart /= 2)
        for (int i = 0; i < apart; i++)
            lanes[i] += lanes[i + apart];
    struct simd_panel panel = {.w = others,
                               .x = numbers,
                               .y = &y,
                               .w_stride = k,
                               .x_stride = k,
                               .y_stride = 1,
                               .n = 1,
                               .rows = 1,
                               .k = k};
    simd_best()->panel(&panel);
    ck_assert_uint_eq(float_bits(y), float_bits(lanes[0]));
    ck_assert_uint_eq(float_bits(simd_add_lanes((float[16]){1})), float_bits(1.0f));
}
END_TEST

Suite *simd_suite(void)
{
    Suite *suite = suite_create("kernels: inner loops");
    TCase *tcase = tcase_create("simd");
    tcase_add_loop_test(tcase, panels_have_the_same_bits_in_every_variant, 0, 36);
    tcase_add_loop_test(tcase, sums_along_a_row_have_the_same_bits_in_every_variant, 0, 20);
    tcase_add_test(tcase, a_dot_product_runs_over_sixteen_lanes_and_a_tree);
    suite_add_tcase(suite, tcase);
    return suite;
}
