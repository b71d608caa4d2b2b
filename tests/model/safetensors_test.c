#include "gpu/checkpoint/safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "tests/model/model_suites.h"

#define DATA_BYTES 64

/* The header as the first part of a file with 64 bytes of data. */
static int parse(const char *header, struct safetensors *ret, struct error *error)
{
    /* A copy of its very size lets the address sanitizer see a byte read too far. */
    size_t length = strlen(header);
    char *exact = malloc(length ? length : 1);
    memcpy(exact, header, length);
    int rc = safetensors_parse(exact, length, "f", 8 + length + DATA_BYTES, ret, error);
    free(exact);
    return rc;
}

#define T(dtype, shape, offsets)                                                                   \
    "{\"t\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}}"

static const struct {
    const char *header, *text;
} refusals[] = {
    {"", "f: header: does not begin with '{'"},
    {" {}", "f: header: does not begin with '{'"},
    {"[]", "f: header: does not begin with '{'"},
    {"{", "f: JSON at byte 1: the text ends too early"},
    {"{\"t\":1,\"t\":1}", "f: JSON at byte 7: duplicate key"},
    {"{\"\":{}}", "f: a tensor's name of 0 bytes, 1 to 255 are accepted"},
    {"{\"t\":7}", "f: tensor t: entry: 7 is not an object"},
    {"{\"t\":{}}", "f: tensor t: dtype: nothing is not a dtype of safetensors"},
    {"{\"t\":{\"dtype\":16}}", "f: tensor t: dtype: 16 is not a dtype of safetensors"},
    {T("F33", "[]", "[0,4]"), "f: tensor t: dtype: \"F33\" is not a dtype of safetensors"},
    {"{\"t\":{\"dtype\":\"F32\"}}", "f: tensor t: shape: nothing is not a list of at most 8 sizes"},
    {T("F32", "4", "[0,4]"), "f: tensor t: shape: 4 is not a list of at most 8 sizes"},
    {T("F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]"),
     "f: tensor t: shape: a list is not a list of at most 8 sizes"},
    {T("F32", "[-1]", "[0,4]"), "f: tensor t: shape: -1 is not a whole number from 0 to 2^53"},
    {T("F32", "[1.5]", "[0,4]"), "f: tensor t: shape: 1.5 is not a whole number from 0 to 2^53"},
    {T("F32", "[\"1\"]", "[0,4]"),
     "f: tensor t: shape: \"1\" is not a whole number from 0 to 2^53"},
    {T("F32", "[1e17]", "[0,4]"), "f: tensor t: shape: 1e+17 is not a whole number from 0 to 2^53"},
    {T("F32", "[4294967296,4294967296]", "[0,0]"),
     "f: tensor t: shape: a list is not a shape of less than 2^64 elements"},
    {T("F64", "[4294967296,1073741824]", "[0,0]"),
     "f: tensor t: shape: a list is not a shape of whole bytes below 2^61"},
    {T("F4", "[3]", "[0,2]"),
     "f: tensor t: shape: a list is not a shape of whole bytes below 2^61"},
    {"{\"t\":{\"dtype\":\"F32\",\"shape\":[]}}",
     "f: tensor t: data_offsets: nothing is not a list of two numbers"},
    {T("F32", "[]", "[4]"), "f: tensor t: data_offsets: a list is not a list of two numbers"},
    {T("F32", "[]", "[0,4,8]"), "f: tensor t: data_offsets: a list is not a list of two numbers"},
    {T("F32", "[]", "[0,\"4\"]"),
     "f: tensor t: data_offsets: \"4\" is not a whole number from 0 to 2^53"},
    {T("F32", "[]", "[-4,0]"),
     "f: tensor t: data_offsets: -4 is not a whole number from 0 to 2^53"},
    {T("F32", "[2]", "[0,4]"),
     "f: tensor t: data_offsets: 0 to 4 are not the 8 bytes of its shape"},
    {T("F32", "[0]", "[8,4]"),
     "f: tensor t: data_offsets: 8 to 4 are not the 0 bytes of its shape"},
    {T("F32", "[2]", "[60,68]"), "f: tensor t: data_offsets: ends at byte 68 of the data, but the "
                                 "file holds 64 (truncated?)"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
     "\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]}}",
     "f: tensor b: data_offsets: begins at byte 4 of the data, inside tensor a"},
    {"{\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
     "\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},\"__metadata__\":{}}",
     NULL}, /* which of the two is named does not matter */
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[16],\"data_offsets\":[0,16]},"
     "\"b\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[4,4]},"
     "\"c\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[8,12]}}",
     "f: tensor c: data_offsets: begins at byte 8 of the data, inside tensor a"},
};

START_TEST(each_bad_header_is_refused_by_tensor_and_field)
{
    struct safetensors safetensors = {.count = 77};
    struct error error = {0};
    ck_assert_int_eq(parse(refusals[_i].header, &safetensors, &error), -ERR_BAD_MODEL);
    if (refusals[_i].text)
        ck_assert_str_eq(error.text, refusals[_i].text);
    else
        ck_assert_ptr_nonnull(strstr(error.text, "begins at byte 0 of the data, inside tensor "));
    ck_assert_uint_eq(safetensors.count, 77);
}
END_TEST

START_TEST(tensors_are_found_by_name_with_their_place_in_the_file)
{
    static const char header[] =
        "{\"__metadata__\":{\"format\":\"pt\"},"
        "\"z\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[4,16]},"
        "\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]},"
        "\"empty\":{\"dtype\":\"I64\",\"shape\":[4,0],\"data_offsets\":[16,16]},"
        "\"q\":{\"dtype\":\"F4\",\"shape\":[6],\"data_offsets\":[61,64]}}   ";
    struct safetensors safetensors;
    struct error error = {0};
    ck_assert_msg(parse(header, &safetensors, &error) == 0, "%s", error.text);
    ck_assert_uint_eq(safetensors.count, 4);
    uint64_t data = 8 + strlen(header);
    const struct safetensors_tensor *z = safetensors_find(&safetensors, "z");
    ck_assert_ptr_nonnull(z);
    ck_assert_str_eq(z->dtype, "BF16");
    ck_assert_uint_eq(z->rank, 2);
    ck_assert_uint_eq(z->shape[0], 2);
    ck_assert_uint_eq(z->shape[1], 3);
    ck_assert_uint_eq(z->offset, data + 4);
    ck_assert_uint_eq(z->bytes, 12);
    const struct safetensors_tensor *a = safetensors_find(&safetensors, "a");
    ck_assert_ptr_nonnull(a);
    ck_assert_uint_eq(a->rank, 0);
    ck_assert_uint_eq(a->offset, data);
    ck_assert_uint_eq(a->bytes, 4);
    ck_assert_uint_eq(safetensors_find(&safetensors, "empty")->bytes, 0);
    ck_assert_uint_eq(safetensors_find(&safetensors, "q")->bytes, 3);
    ck_assert_ptr_null(safetensors_find(&safetensors, "__metadata__"));
    ck_assert_ptr_null(safetensors_find(&safetensors, "zz"));
    ck_assert_ptr_null(safetensors_find(&safetensors, ""));
    safetensors_free(&safetensors);
}
END_TEST

START_TEST(a_header_without_tensors_is_empty)
{
    struct safetensors safetensors;
    ck_assert_int_eq(parse("{}", &safetensors, NULL), 0);
    ck_assert_uint_eq(safetensors.count, 0);
    ck_assert_ptr_null(safetensors_find(&safetensors, "a"));
    safetensors_free(&safetensors);
}
END_TEST

START_TEST(a_header_over_the_file_or_16_mib_is_refused)
{
    struct safetensors safetensors;
    struct error error = {0};
    ck_assert_int_eq(safetensors_parse("{}", 2, "f", 9, &safetensors, &error), -ERR_BAD_MODEL);
    ck_assert_str_eq(error.text, "f: header: 2 bytes are over 16 MiB or the file's end");
    size_t length = SAFETENSORS_HEADER_MAX + 1;
    char *header = malloc(length);
    ck_assert_ptr_nonnull(header);
    memset(header, ' ', length);
    memcpy(header, "{}", 2);
    ck_assert_int_eq(safetensors_parse(header, length, "f", 8 + length, &safetensors, &error),
                     -ERR_BAD_MODEL);
    ck_assert_uint_eq(error.limit, SAFETENSORS_HEADER_MAX);
    ck_assert_int_eq(safetensors_parse(header, length - 1, "f", 8 + length, &safetensors, &error),
                     0);
    safetensors_free(&safetensors);
    free(header);
}
END_TEST

START_TEST(a_header_of_too_many_values_is_refused_before_any_is_built)
{
    size_t length = (SAFETENSORS_VALUES_MAX + 8) * 2;
    char *header = malloc(length);
    ck_assert_ptr_nonnull(header);
    memcpy(header, "{\"t\":[", 6);
    for (size_t i = 6; i < length; i += 2)
        memcpy(header + i, "0,", 2);
    memcpy(header + length - 2, "]}", 2);
    struct safetensors safetensors;
    struct error error = {0};
    ck_assert_int_eq(safetensors_parse(header, length, "f", 8 + length, &safetensors, &error),
                     -ERR_BAD_MODEL);
    ck_assert_uint_eq(error.limit, SAFETENSORS_VALUES_MAX);
    free(header);
}
END_TEST

START_TEST(a_header_cut_anywhere_is_refused)
{
    static const char header[] = T("F32", "[2]", "[0,8]");
    char cut[sizeof(header)];
    for (size_t length = 0; length + 1 < sizeof(header); length++) {
        memcpy(cut, header, length);
        cut[length] = '\0';
        struct safetensors safetensors;
        ck_assert_int_eq(parse(cut, &safetensors, NULL), -ERR_BAD_MODEL);
    }
}
END_TEST

Suite *safetensors_suite(void)
{
    Suite *suite = suite_create("safetensors");
    TCase *tcase = tcase_create("safetensors");
    tcase_add_loop_test(tcase, each_bad_header_is_refused_by_tensor_and_field, 0,
                        sizeof(refusals) / sizeof(refusals[0]));
    tcase_add_test(tcase, tensors_are_found_by_name_with_their_place_in_the_file);
    tcase_add_test(tcase, a_header_without_tensors_is_empty);
    tcase_add_test(tcase, a_header_over_the_file_or_16_mib_is_refused);
    tcase_add_test(tcase, a_header_of_too_many_values_is_refused_before_any_is_built);
    tcase_add_test(tcase, a_header_cut_anywhere_is_refused);
    suite_add_tcase(suite, tcase);
    return suite;
}
