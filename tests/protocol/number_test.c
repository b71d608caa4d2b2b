#include "protocol/base/number.h"

#include <math.h>
#include <stdlib.h>

#include "tests/protocol/base_suites.h"
#include "tests/sim/chance.h"

static const struct {
    double number;
    const char *text;
} shown[] = {
    {0, "0"},
    {-0.0, "-0"},
    {1, "1"},
    {-8, "-8"},
    {1e-6, "0.000001"},
    {9.99e-7, "9.99e-07"},
    {0.1, "0.1"},
    {0.999999, "0.999999"},
    {1e-12, "1e-12"},
    {100000, "100000"},
    {1099511627776.0, "1099511627776"},
    {9007199254740992.0, "9007199254740992"},
    {1e16, "1e+16"},
    {0.1 + 0.2, "0.30000000000000004"},
    {1.0 / 3, "0.3333333333333333"},
    {-1234.5, "-1234.5"},
    {INFINITY, "inf"},
    {-INFINITY, "-inf"},
};

START_TEST(a_number_is_shown_as_it_is_written)
{
    char text[NUMBER_SHOWN_MAX];
    number_show(text, shown[_i].number);
    ck_assert_str_eq(text, shown[_i].text);
}
END_TEST

START_TEST(what_is_shown_reads_back)
{
    uint64_t random = 7;
    for (int i = 0; i < 20000; i++) {
        char text[NUMBER_SHOWN_MAX];
        double number =
            ldexp((double)(int64_t)chance_draw(&random), (int)chance_below(&random, 200) - 160);
        number_show(text, number);
        ck_assert_msg(strtod(text, NULL) == number, "%s", text);
    }
    char text[NUMBER_SHOWN_MAX];
    number_show(text, NAN);
    ck_assert(isnan(strtod(text, NULL)));
}
END_TEST

Suite *number_suite(void)
{
    Suite *suite = suite_create("number");
    TCase *tcase = tcase_create("number");
    tcase_add_loop_test(tcase, a_number_is_shown_as_it_is_written, 0,
                        (int)(sizeof(shown) / sizeof(shown[0])));
    tcase_add_test(tcase, what_is_shown_reads_back);
    suite_add_tcase(suite, tcase);
    return suite;
}
