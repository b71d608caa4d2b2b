#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "protocol/base/json.h"
#include "tests/protocol/base_suites.h"

static char buffer[4096];

static void write_sample(struct json_writer *writer)
{
    json_open(writer, NULL, '{');
    json_put_text(writer, "text", "a\"b\\c\n\t\x01/\xc3\xa9");
    json_put_int(writer, "int", -12);
    json_put_uint(writer, "uint", UINT64_MAX);
    json_put_int(writer, "least", INT64_MIN);
    json_put_uint(writer, "zero", 0);
    json_put_double(writer, "double", 0.1);
    json_put_double(writer, "whole", 3.0);
    json_put_double(writer, "nan", NAN);
    json_put_double(writer, "inf", -INFINITY);
    json_put_bool(writer, "yes", true);
    json_put_bool(writer, "no", false);
    json_put_null(writer, "null");
    json_open(writer, "empty", '[');
    json_close(writer, ']');
    json_open(writer, "list", '[');
    json_put_int(writer, NULL, 1);
    json_open(writer, NULL, '{');
    json_close(writer, '}');
    json_put_string(writer, NULL, "xyz", 2);
    json_close(writer, ']');
    json_close(writer, '}');
}

static const char sample[] =
    "{\"text\":\"a\\\"b\\\\c\\n\\t\\u0001/\xc3\xa9\",\"int\":-12,\"uint\":18446744073709551615,"
    "\"least\":-9223372036854775808,\"zero\":0,\"double\":0.1,\"whole\":3,\"nan\":null,"
    "\"inf\":null,\"yes\":true,\"no\":false,\"null\":null,\"empty\":[],\"list\":[1,{},\"xy\"]}";

START_TEST(values_are_written_with_commas_where_they_belong)
{
    struct json_writer writer;
    json_writer_init(&writer, buffer, sizeof(buffer));
    write_sample(&writer);
    ck_assert_uint_eq(writer.used, strlen(sample));
    ck_assert_mem_eq(buffer, sample, strlen(sample));
}
END_TEST

START_TEST(nothing_is_written_over_the_end_and_used_tells_the_room_it_takes)
{
    for (size_t size = 0; size <= strlen(sample); size++) {
        struct json_writer writer;
        memset(buffer, '#', sizeof(buffer));
        json_writer_init(&writer, buffer, size);
        write_sample(&writer);
        ck_assert_uint_eq(writer.used, strlen(sample));
        ck_assert_mem_eq(buffer, sample, size);
        ck_assert_int_eq(buffer[size], '#');
    }
}
END_TEST

START_TEST(bytes_that_are_no_utf8_are_replaced)
{
    static const char bad[] = "a\xff\x62\xe2\x82\0\xed\xa0\x80z\xf0\x9f";
    struct json_writer writer;
    json_writer_init(&writer, buffer, sizeof(buffer));
    json_put_string(&writer, NULL, bad, sizeof(bad) - 1);
#define R "\xef\xbf\xbd"
    static const char expected[] = "\"a" R "b" R R R R R R "z" R R "\"";
#undef R
    ck_assert_uint_eq(writer.used, sizeof(expected) - 1);
    ck_assert_mem_eq(buffer, expected, sizeof(expected) - 1);
}
END_TEST

/* Every string of two bytes goes out as text that the strict parser takes. */
START_TEST(whatever_is_written_can_be_parsed)
{
    for (unsigned pair = 0; pair < 0x10000; pair++) {
        char bytes[2] = {(char)(pair >> 8), (char)pair};
        struct json_writer writer;
        struct error error;
        json *document;
        json_writer_init(&writer, buffer, sizeof(buffer));
        json_open(&writer, NULL, '[');
        json_put_string(&writer, NULL, bytes, 2);
        json_close(&writer, ']');
        struct json_bounds bounds = {.bytes_max = writer.used, .depth_max = 1};
        ck_assert_int_eq(json_parse(buffer, writer.used, bounds, &document, &error), 0);
        if (bytes[0] > 0 && bytes[1] > 0)
            ck_assert_mem_eq(json_string(json_child(document)), bytes, 2);
        json_free(document);
    }
}
END_TEST

START_TEST(exact_doubles_read_back_as_the_same)
{
    static const double values[] = {0.1,
                                    3.141592653589793,
                                    -48.858370123456,
                                    9.1e15,
                                    9007199254740994.0,
                                    1.2345678901234567e19,
                                    5e-324,
                                    -0.0,
                                    9.9999999999999e307};
    const struct json_bounds bounds = {.bytes_max = 64, .depth_max = 1};
    struct json_writer writer;
    char text[64];
    json *value;
    json_writer_init(&writer, text, sizeof(text));
    json_put_exact(&writer, NULL, values[_i]);
    ck_assert_int_eq(json_parse(text, writer.used, bounds, &value, NULL), 0);
    ck_assert(json_number(value) == values[_i]);
    json_free(value);
}
END_TEST

START_TEST(doubles_do_not_depend_on_the_locale)
{
    struct json_writer writer;
    /* Where the locale is not installed this repeats the plain case. */
    setlocale(LC_ALL, "de_DE.UTF-8");
    json_writer_init(&writer, buffer, sizeof(buffer));
    json_open(&writer, NULL, '[');
    json_put_double(&writer, NULL, -1234.5625);
    json_put_double(&writer, NULL, 1.5e-300);
    json_close(&writer, ']');
    static const char expected[] = "[-1234.5625,1.5e-300]";
    ck_assert_uint_eq(writer.used, strlen(expected));
    ck_assert_mem_eq(buffer, expected, strlen(expected));
}
END_TEST

START_TEST(floats_survive_the_nine_digits)
{
    float value = 1.0f;
    for (int i = 0; i < 200; i++, value = value * -1.7f + 0.3f) {
        struct json_writer writer;
        struct error error;
        json *document;
        if (!isfinite(value))
            break;
        json_writer_init(&writer, buffer, sizeof(buffer));
        json_put_double(&writer, NULL, (double)value);
        struct json_bounds bounds = {.bytes_max = 64};
        ck_assert_int_eq(json_parse(buffer, writer.used, bounds, &document, &error), 0);
        ck_assert((float)json_number(document) == value);
        json_free(document);
    }
}
END_TEST

Suite *json_write_suite(void)
{
    Suite *suite = suite_create("json_write");
    TCase *tcase = tcase_create("json_write");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, values_are_written_with_commas_where_they_belong);
    tcase_add_test(tcase, nothing_is_written_over_the_end_and_used_tells_the_room_it_takes);
    tcase_add_test(tcase, bytes_that_are_no_utf8_are_replaced);
    tcase_add_test(tcase, whatever_is_written_can_be_parsed);
    tcase_add_loop_test(tcase, exact_doubles_read_back_as_the_same, 0, 9);
    tcase_add_test(tcase, doubles_do_not_depend_on_the_locale);
    tcase_add_test(tcase, floats_survive_the_nine_digits);
    suite_add_tcase(suite, tcase);
    return suite;
}
