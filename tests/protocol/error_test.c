#include "protocol/base/error.h"

#include <string.h>

#include "tests/protocol/base_suites.h"

START_TEST(every_name_leads_back_to_its_number)
{
#define ERROR(name, number, retry, text)                                                           \
    ck_assert_int_eq(error_from_name(error_name(number)), number);                                 \
    ck_assert_str_eq(error_text(number), text);                                                    \
    ck_assert_int_eq(error_retry(number), RETRY_##retry);
#include "protocol/base/error.def"
#undef ERROR
}
END_TEST

START_TEST(numbers_and_names_are_the_ones_of_the_wire)
{
    ck_assert_str_eq(error_name(21), "busy");
    ck_assert_str_eq(error_name(20), "too_large");
    ck_assert_str_eq(error_name(41), "device_memory");
    ck_assert_int_eq(error_from_name("busy"), ERR_BUSY);
}
END_TEST

START_TEST(no_number_stands_twice)
{
    static const int numbers[] = {
#define ERROR(name, number, retry, text) number,
#include "protocol/base/error.def"
#undef ERROR
    };
    size_t count = sizeof(numbers) / sizeof(numbers[0]);
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < i; j++)
            ck_assert_int_ne(numbers[i], numbers[j]);
}
END_TEST

START_TEST(other_numbers_and_names_are_unknown)
{
    ck_assert_str_eq(error_name(0), "unknown");
    ck_assert_str_eq(error_name(-21), "unknown");
    ck_assert_str_eq(error_name(9999), "unknown");
    ck_assert_str_eq(error_text(9999), "unknown error");
    ck_assert_int_eq(error_retry(9999), RETRY_NEVER);
    ck_assert_int_eq(error_from_name(""), 0);
    ck_assert_int_eq(error_from_name("BUSY"), 0);
    ck_assert_int_eq(error_from_name("unknown"), 0);
}
END_TEST

START_TEST(a_set_error_returns_its_negative_code)
{
    struct error error = {.limit = 7, .value = 8, .retry_after_ms = 9};
    ck_assert_int_eq(error_set(&error, ERR_IO, "open %s: %d", "x", 3), -ERR_IO);
    ck_assert_int_eq(error.code, ERR_IO);
    ck_assert_str_eq(error.text, "open x: 3");
    ck_assert_uint_eq(error.limit, 0);
    ck_assert_uint_eq(error.value, 0);
    ck_assert_uint_eq(error.retry_after_ms, 0);
}
END_TEST

START_TEST(a_limit_keeps_both_numbers)
{
    struct error error;
    ck_assert_int_eq(error_limit(&error, ERR_TOO_LARGE, 10, 11, "batch"), -ERR_TOO_LARGE);
    ck_assert_uint_eq(error.limit, 10);
    ck_assert_uint_eq(error.value, 11);
    ck_assert_str_eq(error.text, "batch");
}
END_TEST

START_TEST(without_an_error_only_the_code_comes_back)
{
    ck_assert_int_eq(error_set(NULL, ERR_BUSY, "%s", "x"), -ERR_BUSY);
    ck_assert_int_eq(error_limit(NULL, ERR_BUSY, 1, 2, "%s", "x"), -ERR_BUSY);
}
END_TEST

START_TEST(a_text_can_be_built_from_itself)
{
    struct error error;
    error_set(&error, ERR_IO, "no such file");
    error_set(&error, ERR_BAD_MODEL, "config.json: %s", error.text);
    ck_assert_str_eq(error.text, "config.json: no such file");
}
END_TEST

START_TEST(a_long_text_is_cut_and_stays_one_line)
{
    struct error error;
    char text[2 * ERROR_TEXT_MAX];
    memset(text, 'a', sizeof(text) - 1);
    text[sizeof(text) - 1] = 0;
    text[1] = '\n';
    text[2] = '\x1b';
    error_set(&error, ERR_IO, "%s", text);
    ck_assert_uint_eq(strlen(error.text), ERROR_TEXT_MAX - 1);
    ck_assert_int_eq(strncmp(error.text, "a??a", 4), 0);
}
END_TEST

Suite *error_suite(void)
{
    Suite *suite = suite_create("error");
    TCase *tcase = tcase_create("error");
    tcase_add_test(tcase, every_name_leads_back_to_its_number);
    tcase_add_test(tcase, numbers_and_names_are_the_ones_of_the_wire);
    tcase_add_test(tcase, no_number_stands_twice);
    tcase_add_test(tcase, other_numbers_and_names_are_unknown);
    tcase_add_test(tcase, a_set_error_returns_its_negative_code);
    tcase_add_test(tcase, a_limit_keeps_both_numbers);
    tcase_add_test(tcase, without_an_error_only_the_code_comes_back);
    tcase_add_test(tcase, a_text_can_be_built_from_itself);
    tcase_add_test(tcase, a_long_text_is_cut_and_stays_one_line);
    suite_add_tcase(suite, tcase);
    return suite;
}
