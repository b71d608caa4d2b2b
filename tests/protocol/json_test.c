#include "protocol/base/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/base/utf8.h"
#include "tests/protocol/base_suites.h"

static const struct json_bounds bounds = {.bytes_max = 1 << 20, .depth_max = 4};

static int parse(const char *text, size_t length, json **ret, struct error *error)
{
    /* A copy of its very size lets the address sanitizer see a byte read too far. */
    char *exact = malloc(length ? length : 1);
    memcpy(exact, text, length);
    int rc = json_parse(exact, length, bounds, ret, error);
    free(exact);
    return rc;
}

struct refusal {
    const char *text;
    size_t length; /* 0: up to the terminating zero */
    const char *why;
};

static const struct refusal refusals[] = {
    {"", 0, "byte 0: value expected"},
    {" ", 0, "byte 1: the text ends too early"},
    {"nul", 0, "byte 0: value expected"},
    {"nulls", 0, "byte 4: more text after the value"},
    {"{} {}", 0, "byte 3: more text after the value"},
    {"1,", 0, "byte 1: more text after the value"},
    {"\xef\xbb\xbf{}", 0, "byte 0: value expected"},
    {"{\"a\":1}\0", 8, "byte 7: more text after the value"},
    {"[\0]", 3, "byte 1: value expected"},
    {"\v1", 0, "byte 0: value expected"},
    {"True", 0, "byte 0: value expected"},
    {"NaN", 0, "byte 0: value expected"},
    {"'a'", 0, "byte 0: value expected"},
    /* structure */
    {"[1", 0, "byte 2: the text ends too early"},
    {"[1,", 0, "byte 3: the text ends too early"},
    {"[1,]", 0, "byte 3: value expected"},
    {"[,1]", 0, "byte 1: value expected"},
    {"[1}", 0, "byte 2: ',' or ']' expected"},
    {"[1 2]", 0, "byte 3: ',' or ']' expected"},
    {"{\"a\":1]", 0, "byte 6: ',' or '}' expected"},
    {"{\"a\":1,}", 0, "byte 7: key expected"},
    {"{\"a\" 1}", 0, "byte 5: ':' expected"},
    {"{\"a\"}", 0, "byte 4: ':' expected"},
    {"{a:1}", 0, "byte 1: key expected"},
    {"{1:1}", 0, "byte 1: key expected"},
    {"{\"a\":}", 0, "byte 5: value expected"},
    {"[[[[[1]]]]]", 0, "byte 4: nested deeper than 4"},
    {"{\"a\":[{\"b\":[{}]}]}", 0, "byte 12: nested deeper than 4"},
    /* duplicate keys, once escapes are resolved */
    {"{\"a\":1,\"a\":2}", 0, "byte 7: duplicate key"},
    {"{\"a\":1,\"b\":2,\"\\u0061\":3}", 0, "byte 13: duplicate key"},
    {"[{\"a\":1},{\"x\":[{\"a\":1,\"a\":2}]}]", 0, "byte 22: duplicate key"},
    {"{\"x\":{\"a\":{},\"b\":{}},\"y\":1,\"x\":2}", 0, "byte 27: duplicate key"},
    {"{\"\":1,\"\":2}", 0, "byte 6: duplicate key"},
    {"{\"\xc3\xa9\":1,\"\\u00e9\":2}", 0, "byte 8: duplicate key"},
    /* numbers */
    {"9007199254740993", 0, "byte 0: integer beyond 2^53"},
    {"-9007199254740993", 0, "byte 0: integer beyond 2^53"},
    {"[18446744073709551616]", 0, "byte 1: integer beyond 2^53"},
    {"01", 0, "byte 0: number with a leading zero"},
    {"-01", 0, "byte 0: number with a leading zero"},
    {"-", 0, "byte 1: the text ends too early"},
    {"+1", 0, "byte 0: value expected"},
    {".5", 0, "byte 0: value expected"},
    {"[1.]", 0, "byte 3: digit expected"},
    {"[1e]", 0, "byte 3: digit expected"},
    {"[1e+]", 0, "byte 4: digit expected"},
    {"0x10", 0, "byte 1: more text after the value"},
    {"[1e999]", 0, "byte 1: number out of range"},
    {"[1e308]", 0, "byte 1: number out of range"},
    {"[12e307]", 0, "byte 1: number out of range"},
    {"[0.01e310]", 0, "byte 1: number out of range"},
    {"[1e99999999999999999999]", 0, "byte 1: number out of range"},
    {"[0.0000000000000000000000000000000000000000000000000000000000000001]", 0,
     "byte 1: number of more than 63 characters"},
    /* strings */
    {"\"a", 0, "byte 2: the text ends too early"},
    {"\"a\\\"", 0, "byte 4: the text ends too early"},
    {"\"a\\", 0, "byte 3: the text ends too early"},
    {"[\"\n\"]", 0, "byte 2: control character in a string"},
    {"[\"\0\"]", 5, "byte 2: control character in a string"},
    {"\"\\x41\"", 0, "byte 2: unknown escape"},
    {"\"\\u0000\"", 0, "byte 2: \\u0000 is not accepted"},
    {"{\"a\\u0000b\":1}", 0, "byte 4: \\u0000 is not accepted"},
    {"\"\\u00g0\"", 0, "byte 2: \\u needs four hexadecimal digits"},
    {"\"\\u00", 0, "byte 2: \\u needs four hexadecimal digits"},
    {"\"\\ud800\"", 0, "byte 2: half of a surrogate pair"},
    {"\"\\ud800\\u0041\"", 0, "byte 2: half of a surrogate pair"},
    {"\"\\udc00\\ud800\"", 0, "byte 2: half of a surrogate pair"},
    {"\"\\ud83d\\ud83d\"", 0, "byte 2: half of a surrogate pair"},
    /* UTF-8 */
    {"\"\x80\"", 0, "byte 1: invalid UTF-8"},
    {"\"\xc0\xaf\"", 0, "byte 1: invalid UTF-8"},
    {"\"\xc1\xbf\"", 0, "byte 1: invalid UTF-8"},
    {"\"\xe0\x9f\xbf\"", 0, "byte 1: invalid UTF-8"},
    {"\"\xed\xa0\x80\"", 0, "byte 1: invalid UTF-8"},
    {"\"\xf0\x8f\xbf\xbf\"", 0, "byte 1: invalid UTF-8"},
    {"\"\xf4\x90\x80\x80\"", 0, "byte 1: invalid UTF-8"},
    {"\"\xf5\x80\x80\x80\"", 0, "byte 1: invalid UTF-8"},
    {"\"\xff\"", 0, "byte 1: invalid UTF-8"},
    {"\"ab\xc3\"", 0, "byte 3: invalid UTF-8"},
    {"\"\xe2\x82", 0, "byte 1: invalid UTF-8"},
    {"{\"\xc3\x28\":1}", 0, "byte 2: invalid UTF-8"},
};

#define REFUSALS ((int)(sizeof(refusals) / sizeof(refusals[0])))

START_TEST(what_is_not_strict_json_is_refused_with_its_place)
{
    const struct refusal *refusal = &refusals[_i];
    size_t length = refusal->length ? refusal->length : strlen(refusal->text);
    struct error error = {0};
    json *untouched = (json *)&error, *document = untouched;
    int rc = parse(refusal->text, length, &document, &error);
    ck_assert_int_eq(rc, -error.code);
    ck_assert(error.code == ERR_BAD_HEAD || error.code == ERR_TOO_LARGE);
    ck_assert_msg(strstr(error.text, refusal->why), "%s: %s", refusal->text, error.text);
    ck_assert_ptr_eq(document, untouched);
}
END_TEST

static const char *const accepted[] = {
    "null",
    " true ",
    "false",
    "{}",
    "[]",
    "\t\r\n[ ] ",
    "{\"a\":1,\"A\":2}",
    "{\"a\":{\"a\":{\"a\":1}}}",
    "[[[[]]]]",
    "9007199254740992",
    "-9007199254740992",
    "-0",
    "0.5e-3",
    "1E+2",
    "1e307",
    "9.99e307",
    "0e999",
    "0.0e999",
    "0.001e310",
    "1e-999",
    "123456789012345678901234567890.5",
    "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0041\"",
    "\"\\ud83d\\ude00\"",
    "\"\x7f\xc2\x80\xe0\xa0\x80\xed\x9f\xbf\xef\xbf\xbf\xf0\x90\x80\x80\xf4\x8f\xbf\xbf\"",
};

#define ACCEPTED ((int)(sizeof(accepted) / sizeof(accepted[0])))

START_TEST(strict_json_is_accepted)
{
    struct error error = {0};
    json *document = NULL;
    int rc = parse(accepted[_i], strlen(accepted[_i]), &document, &error);
    ck_assert_msg(rc == 0, "%s: %s", accepted[_i], error.text);
    json_free(document);
}
END_TEST

START_TEST(every_cut_of_a_document_is_refused)
{
    static const char text[] = "{\"a\":[1.5e3,true,null,\"x\\u00e9\\n\xe2\x82\xac\"],\"b\":{}}";
    json *document;
    struct error error;
    for (size_t length = 0; length < sizeof(text) - 1; length++)
        ck_assert_int_eq(parse(text, length, &document, &error), -ERR_BAD_HEAD);
    ck_assert_int_eq(parse(text, sizeof(text) - 1, &document, &error), 0);
    json_free(document);
}
END_TEST

START_TEST(size_and_depth_are_bounded_with_their_limits)
{
    json *document;
    struct error error;
    ck_assert_int_eq(json_parse("[1]", 3, (struct json_bounds){.bytes_max = 2, .depth_max = 4},
                                &document, &error),
                     -ERR_TOO_LARGE);
    ck_assert_uint_eq(error.limit, 2);
    ck_assert_uint_eq(error.value, 3);
    ck_assert_int_eq(json_parse("[1]", 3, (struct json_bounds){.bytes_max = 3}, &document, &error),
                     -ERR_TOO_LARGE);
    ck_assert_uint_eq(error.limit, 0);
    ck_assert_uint_eq(error.value, 1);

    char deep[128];
    memset(deep, '[', 64);
    memset(deep + 64, ']', 64);
    struct json_bounds deepest = {.bytes_max = 128, .depth_max = 64};
    ck_assert_int_eq(json_parse(deep, 128, deepest, &document, &error), 0);
    json_free(document);
}
END_TEST

START_TEST(the_number_of_values_is_bounded)
{
    static const char text[] = "{\"a\":[1,[],{}],\"b\":\"x\"}"; /* 6 of them */
    json *document;
    struct error error;
    struct json_bounds some = {.bytes_max = 64, .depth_max = 4, .values_max = 6};
    ck_assert_int_eq(json_parse(text, strlen(text), some, &document, &error), 0);
    json_free(document);
    some.values_max = 5;
    ck_assert_int_eq(json_parse(text, strlen(text), some, &document, &error), -ERR_TOO_LARGE);
    ck_assert_uint_eq(error.limit, 5);
    ck_assert_uint_eq(error.value, 6);
    ck_assert_str_eq(error.text, "JSON at byte 19: more than 5 values");
}
END_TEST

START_TEST(all_members_but_some_can_be_freed)
{
    static const char text[] = "{\"a\":[1],\"A\":2,\"b\":{},\"c\":\"x\",\"d\":[]}";
    static const char *const some[] = {"A", "c", "e"};
    json *document;
    ck_assert_int_eq(json_parse(text, strlen(text), bounds, &document, NULL), 0);
    json_keep(document, some, 3);
    ck_assert_uint_eq(json_count(document), 2);
    ck_assert(json_is_number(json_get(document, "A")));
    ck_assert_str_eq(json_string(json_get(document, "c")), "x");
    json_keep(document, some + 2, 1);
    ck_assert_ptr_null(json_child(document));
    json_keep(document, some, 3);
    json_free(document);
}
END_TEST

/* {"0":0,"1":1,...} of `count` members; then one more with the given key. */
static char *large_object(size_t count, const char *last, size_t *ret_length)
{
    char *text = malloc(count * 24 + 64);
    size_t used = 0;
    text[used++] = '{';
    for (size_t i = 0; i < count; i++)
        used += (size_t)sprintf(text + used, "\"%zu\":%zu,", i, i);
    used += (size_t)sprintf(text + used, "\"%s\":{\"0\":1}}", last);
    *ret_length = used;
    return text;
}

static const size_t object_sizes[] = {1, 2, 15, 16, 17, 18, 1000, 20000};

START_TEST(a_duplicate_is_found_in_objects_of_any_size)
{
    size_t count = object_sizes[_i], length;
    struct error error;
    json *document;
    char last[24], expected[64];
    char *text = large_object(count, "last", &length);
    ck_assert_int_eq(parse(text, length, &document, &error), 0);
    ck_assert_uint_eq(json_count(document), count + 1);
    json_free(document);
    free(text);

    snprintf(last, sizeof(last), "%zu", count / 2);
    text = large_object(count, last, &length);
    ck_assert_int_eq(parse(text, length, &document, &error), -ERR_BAD_HEAD);
    snprintf(expected, sizeof(expected), "JSON at byte %zu: duplicate key",
             length - strlen(last) - strlen("\"\":{\"0\":1}}"));
    ck_assert_str_eq(error.text, expected);
    free(text);
}
END_TEST

START_TEST(values_are_read_back)
{
    static const char text[] =
        "{\"s\":\"a\\u00e9\\n\",\"n\":-2.5,\"t\":true,\"f\":false,\"z\":null,"
        "\"a\":[1,2,3],\"o\":{\"k\":\"v\"}}";
    struct error error;
    json *root;
    ck_assert_int_eq(parse(text, strlen(text), &root, &error), 0);
    ck_assert(json_is_object(root));
    ck_assert_uint_eq(json_count(root), 7);
    ck_assert_str_eq(json_string(json_get(root, "s")), "a\xc3\xa9\n");
    ck_assert(json_number(json_get(root, "n")) == -2.5);
    ck_assert(json_is_bool(json_get(root, "t")) && json_bool(json_get(root, "t")));
    ck_assert(json_is_bool(json_get(root, "f")) && !json_bool(json_get(root, "f")));
    ck_assert(json_is_null(json_get(root, "z")));
    ck_assert(json_is_array(json_get(root, "a")) && json_count(json_get(root, "a")) == 3);
    ck_assert_str_eq(json_string(json_get(json_get(root, "o"), "k")), "v");
    ck_assert_ptr_null(json_get(root, "S"));
    ck_assert_ptr_null(json_get(json_get(root, "a"), "s"));
    ck_assert_ptr_null(json_get(NULL, "s"));
    ck_assert_ptr_null(json_child(NULL));
    ck_assert_uint_eq(json_count(NULL), 0);
    ck_assert_str_eq(json_string(json_get(root, "n")), "");
    ck_assert_str_eq(json_string(NULL), "");
    ck_assert(json_number(json_get(root, "s")) == 0.0);
    ck_assert(!json_bool(NULL) && !json_is_string(NULL));
    double sum = 0;
    for (const json *item = json_child(json_get(root, "a")); item; item = json_next(item))
        sum += json_number(item);
    ck_assert(sum == 6.0);
    ck_assert_str_eq(json_key(json_child(root)), "s");
    ck_assert_str_eq(json_key(json_child(json_get(root, "a"))), "");
    ck_assert_str_eq(json_key(root), "");
    json_free(root);
}
END_TEST

struct integer_case {
    const char *text;
    int64_t min, max;
    const char *refusal; /* NULL when accepted */
    int64_t value;
};

static const struct integer_case integer_cases[] = {
    {"{\"n\":5}", 1, 10, NULL, 5},
    {"{\"n\":1}", 1, 10, NULL, 1},
    {"{\"n\":1e1}", 1, 10, NULL, 10},
    {"{\"n\":-7.0}", -10, 10, NULL, -7},
    {"{\"n\":9007199254740992}", 0, INT64_MAX, NULL, (int64_t)1 << 53},
    {"{\"n\":0}", 1, 10, "n is 0, at least 1 is needed", 0},
    {"{\"n\":11}", 1, 10, "n is 11, at most 10 is accepted", 0},
    {"{\"n\":1.5}", 1, 10, "n is not a whole number", 0},
    {"{\"n\":1e300}", INT64_MIN, INT64_MAX, "n is not a whole number", 0},
    {"{\"n\":-1e17}", INT64_MIN, INT64_MAX, "n is not a whole number", 0},
    {"{\"n\":\"5\"}", 1, 10, "n is not a whole number", 0},
    {"{\"n\":true}", 1, 10, "n is not a whole number", 0},
    {"{\"n\":null}", 0, 10, "n is not a whole number", 0},
    {"{}", 1, 10, "n is missing", 0},
};

#define INTEGER_CASES ((int)(sizeof(integer_cases) / sizeof(integer_cases[0])))

START_TEST(integers_are_whole_and_within_their_range)
{
    const struct integer_case *c = &integer_cases[_i];
    struct error error = {0};
    json *root;
    int64_t value = -99;
    ck_assert_int_eq(parse(c->text, strlen(c->text), &root, &error), 0);
    int rc = json_integer(json_get(root, "n"), "n", c->min, c->max, &value, &error);
    if (c->refusal) {
        ck_assert_int_eq(rc, -ERR_BAD_VALUE);
        ck_assert_str_eq(error.text, c->refusal);
        ck_assert_int_eq(value, -99);
    } else {
        ck_assert_int_eq(rc, 0);
        ck_assert_int_eq(value, c->value);
    }
    json_free(root);
}
END_TEST

/* A code point in the shortest form is valid but for surrogates, and none is when a byte is
 * missing. */
START_TEST(utf8_agrees_with_encoding_every_code_point)
{
    unsigned wrong = 0;
    for (unsigned code = 0; code < 0x110000; code++) {
        unsigned char text[4];
        size_t length = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
        static const unsigned char leads[] = {0, 0, 0xc0, 0xe0, 0xf0};
        for (size_t i = length; i-- > 1;)
            text[i] = (unsigned char)(0x80 | (code >> (6 * (length - 1 - i)) & 0x3f));
        text[0] = (unsigned char)(leads[length] | code >> (6 * (length - 1)));
        bool surrogate = code >= 0xd800 && code <= 0xdfff;
        wrong += utf8_length(text, length) != (surrogate ? 0 : length);
        wrong += utf8_length(text, length - 1) != 0;
    }
    ck_assert_uint_eq(wrong, 0);
}
END_TEST

Suite *json_suite(void)
{
    Suite *suite = suite_create("json");
    TCase *tcase = tcase_create("json");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, what_is_not_strict_json_is_refused_with_its_place, 0, REFUSALS);
    tcase_add_loop_test(tcase, strict_json_is_accepted, 0, ACCEPTED);
    tcase_add_test(tcase, every_cut_of_a_document_is_refused);
    tcase_add_test(tcase, size_and_depth_are_bounded_with_their_limits);
    tcase_add_test(tcase, the_number_of_values_is_bounded);
    tcase_add_test(tcase, all_members_but_some_can_be_freed);
    tcase_add_loop_test(tcase, a_duplicate_is_found_in_objects_of_any_size, 0, 8);
    tcase_add_test(tcase, values_are_read_back);
    tcase_add_loop_test(tcase, integers_are_whole_and_within_their_range, 0, INTEGER_CASES);
    tcase_add_test(tcase, utf8_agrees_with_encoding_every_code_point);
    suite_add_tcase(suite, tcase);
    return suite;
}
