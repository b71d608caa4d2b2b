#include <math.h>

#include "gpu/kernels/cpu/number.h"
#include "gpu/kernels/cpu/simd.h"
#include "tests/gpu/kernels/rig.h"
#include "tests/gpu/kernels/suites.h"

static float f16_slow(uint16_t half)
{
    int exponent = half >> 10 & 31, fraction = half & 1023;
    double value = exponent == 31 ? (fraction ? NAN : INFINITY)
                   : exponent     ? ldexp(1024 + fraction, exponent - 25)
                                  : ldexp(fraction, -24);
    return (float)(half & 0x8000 ? -value : value);
}

START_TEST(every_16_bit_number_survives_widening_and_rounding)
{
    for (uint32_t i = 0; i < 65536; i++) {
        uint16_t half = (uint16_t)i;
        float half_t = f16_widen(half), brain = bf16_widen(half);
        if (f16_slow(half) != f16_slow(half)) {
            ck_assert(half_t != half_t);
            ck_assert(f16_widen(f16_round(half_t)) != f16_widen(f16_round(half_t)));
        } else {
            ck_assert_uint_eq(float_bits(half_t), float_bits(f16_slow(half)));
            ck_assert_uint_eq(f16_round(half_t), half);
        }
        if (brain != brain)
            ck_assert(bf16_widen(bf16_round(brain)) != bf16_widen(bf16_round(brain)));
        else
            ck_assert_uint_eq(bf16_round(brain), half);
    }
}
END_TEST

/* Between two neighbours, the nearer one; in the middle, the even one. */
static void check_between(float (*widen)(uint16_t), uint16_t (*round)(float), uint16_t low)
{
    double a = (double)widen(low), b = (double)widen((uint16_t)(low + 1)), middle = (a + b) / 2;
    uint16_t even = low & 1 ? (uint16_t)(low + 1) : low;
    ck_assert_uint_eq(round((float)middle), even);
    ck_assert_uint_eq(round(nextafterf((float)middle, (float)a)), low);
    ck_assert_uint_eq(round(nextafterf((float)middle, (float)b)), low + 1);
    ck_assert_uint_eq(round(-(float)middle), even | 0x8000);
}

START_TEST(rounding_goes_to_the_nearest_and_ties_to_even)
{
    for (uint32_t i = 0; i < 0x7bff; i++)
        check_between(f16_widen, f16_round, (uint16_t)i);
    for (uint32_t i = 1; i < 0x7f7f; i++)
        check_between(bf16_widen, bf16_round, (uint16_t)i);
    ck_assert_uint_eq(f16_round(65519.0f), 0x7bff);
    ck_assert_uint_eq(f16_round(65520.0f), 0x7c00);
    ck_assert_uint_eq(f16_round(-INFINITY), 0xfc00);
    ck_assert_uint_eq(bf16_round(3.4e38f), 0x7f80);
}
END_TEST

static double e4m3_slow(uint8_t byte)
{
    int exponent = byte >> 3 & 15, fraction = byte & 7;
    double value = exponent ? ldexp(8 + fraction, exponent - 10) : ldexp(fraction, -9);
    return byte & 0x80 ? -value : value;
}

START_TEST(eight_bits_are_rounded_to_the_nearest_and_kept_to_448)
{
    for (uint32_t i = 0; i < 256; i++) {
        float value = e4m3_widen((uint8_t)i);
        if ((i & 0x7f) == 0x7f) {
            ck_assert(value != value);
            continue;
        }
        ck_assert_uint_eq(float_bits(value), float_bits((float)e4m3_slow((uint8_t)i)));
        ck_assert_uint_eq(e4m3_round(value), i);
    }
    for (uint32_t low = 0; low < 0x7e; low++) {
        double a = e4m3_slow((uint8_t)low), b = e4m3_slow((uint8_t)(low + 1)), middle = (a + b) / 2;
        ck_assert_uint_eq(e4m3_round((float)middle), low + (low & 1));
        ck_assert_uint_eq(e4m3_round(nextafterf((float)middle, (float)a)), low);
        ck_assert_uint_eq(e4m3_round(nextafterf((float)middle, (float)b)), low + 1);
        ck_assert_uint_eq(e4m3_round(-(float)middle), (low + (low & 1)) | 0x80);
    }
    static const float much[] = {448.0f, 449.0f, 464.0f, 480.0f, 1e30f, INFINITY};
    for (size_t i = 0; i < sizeof much / sizeof *much; i++) {
        ck_assert_uint_eq(e4m3_round(much[i]), 0x7e);
        ck_assert_uint_eq(e4m3_round(-much[i]), 0xfe);
    }
    ck_assert_uint_eq(e4m3_round(NAN) & 0x7f, 0x7f);
}
END_TEST

START_TEST(the_exponential_is_within_two_units_of_the_last_place)
{
    for (double x = -86.9; x < 88; x += 0.000971) {
        double want = exp((double)(float)x), got = (double)simd_exp((float)x);
        ck_assert_msg(fabs(got - want) <= want * 0x1p-22, "exp(%.9g) = %.9g", x, got);
    }
    ck_assert(simd_exp(0.0f) == 1.0f);
    ck_assert(simd_exp(-INFINITY) == 0.0f);
    ck_assert(simd_exp(-88.0f) == 0.0f);
    ck_assert(simd_exp(NAN) == 0.0f);
    ck_assert(simd_exp(INFINITY) > 1e38f);
}
END_TEST

Suite *number_suite(void)
{
    Suite *suite = suite_create("kernels: numbers");
    TCase *tcase = tcase_create("number");
    tcase_add_test(tcase, every_16_bit_number_survives_widening_and_rounding);
    tcase_add_test(tcase, rounding_goes_to_the_nearest_and_ties_to_even);
    tcase_add_test(tcase, eight_bits_are_rounded_to_the_nearest_and_kept_to_448);
    tcase_add_test(tcase, the_exponential_is_within_two_units_of_the_last_place);
    suite_add_tcase(suite, tcase);
    return suite;
}
