/* Bodies that carry tensors: what is read to the bit, what is refused and by what name, and bodies
 * that come compressed. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "daemon/http/inflate.h"
#include "daemon/http/query/query_tensors.h"
#include "daemon/http/query/tensor_text.h"
#include "tests/http/http_suites.h"

#define INPUT(members) "{\"inputs\":[{\"name\":\"x\"," members "}]}"
#define F32(shape, data) INPUT("\"datatype\":\"FP32\",\"shape\":" shape ",\"data\":" data)

/* ---- what is refused ---------------------------------------------------------------------------
 */

static const struct {
    const char *body, *part;
} refused[] = {
    {"", ""},
    {"[]", "no JSON object"},
    {"{}", "inputs must be"},
    {"{\"inputs\":[]}", "inputs must be"},
    {"{\"inputs\":[1]}", "it is no object"},
    {"{\"inputs\":[],\"more\":1}", "more is not known"},
    {INPUT("\"shape\":[1],\"data\":[1]"), "datatype is missing"},
    {INPUT("\"datatype\":\"FP32\",\"data\":[1]"), "shape is missing"},
    {INPUT("\"datatype\":\"FP32\",\"shape\":[1]"), "data is missing"},
    {INPUT("\"datatype\":\"FP32\",\"shape\":[1],\"data\":null"), "data is missing"},
    {INPUT("\"datatype\":\"FP32\",\"shape\":[1],\"data\":1"), "data must be an array"},
    {INPUT("\"datatype\":\"FP32\",\"shape\":[1],\"d\\u0061ta\":[1]"), "data must be an array"},
    {INPUT("\"datatype\":\"FP33\",\"shape\":[1],\"data\":[1]"), "FP33 is not known"},
    {INPUT("\"datatype\":\"BYTES\",\"shape\":[1],\"data\":[\"a\"]"), "BYTES is not supported"},
    {INPUT("\"datatype\":\"FP16\",\"shape\":[1],\"data\":[1]"), "FP16 has no numbers in JSON"},
    {INPUT("\"datatype\":\"FP32\",\"shape\":[1],\"data\":[1],\"data\":[2]"), "duplicate"},
    {F32("[0]", "[]"), "shape[0]"},
    {F32("[-1]", "[1]"), "shape[0]"},
    {F32("[1.5]", "[1]"), "shape[0]"},
    {F32("[1,1,1,1,1,1,1,1]", "[1]"), "shape must be"},
    {F32("[1099511627776,1099511627776]", "[1]"), "2^53"},
    {F32("[68719476736]", "[1,2]"), "fewer elements"},
    {F32("[2]", "[1]"), "fewer elements"},
    {F32("[2]", "[1  ]"), "element 1 is missing"},
    {F32("[1]", "[1,2]"), "element 1 is one too many"},
    {F32("[2]", "[1,]"), "element 1 is no number"},
    {F32("[1]", "[]  "), "element 0 is no number"},
    {F32("[2,1]", "[[1],2]"), "not nested"},
    {F32("[2,1]", "[[1],[2],[3]]"), "one too many"},
    {F32("[2,2]", "[[1,2],[3,4] 5]"), "one too many"},
    {F32("[2,2]", "[[1,2],[3]     ]"), "element 3 is missing"},
    {F32("[1]", "[01]"), "is no number"},
    {F32("[1]", "[1.]"), "is no number"},
    {F32("[1]", "[.5]"), "is no number"},
    {F32("[1]", "[1e]"), "is no number"},
    {F32("[1]", "[+1]"), "is no number"},
    {F32("[1]", "[0x1]"), "one too many"},
    {F32("[1]", "[nan]"), "is no number"},
    {F32("[1]", "[\"1\"]"), "is no number"},
    {F32("[1]", "[1e39]"), "more than its dtype holds"},
    {F32("[1]", "[1]") "x", "byte"},
    {INPUT("\"datatype\":\"FP64\",\"shape\":[1],\"data\":[1e400]"), "more than its dtype holds"},
    {INPUT("\"datatype\":\"INT8\",\"shape\":[1],\"data\":[128]"), "out of its dtype's range"},
    {INPUT("\"datatype\":\"INT8\",\"shape\":[1],\"data\":[-129]"), "out of its dtype's range"},
    {INPUT("\"datatype\":\"INT64\",\"shape\":[1],\"data\":[9223372036854775808]"), "range"},
    {INPUT("\"datatype\":\"UINT8\",\"shape\":[1],\"data\":[256]"), "out of its dtype's range"},
    {INPUT("\"datatype\":\"UINT8\",\"shape\":[1],\"data\":[-1]"), "out of its dtype's range"},
    {INPUT("\"datatype\":\"UINT64\",\"shape\":[1],\"data\":[18446744073709551616]"), "range"},
    {INPUT("\"datatype\":\"INT32\",\"shape\":[1],\"data\":[1.0]"), "no whole number"},
    {INPUT("\"datatype\":\"INT32\",\"shape\":[1],\"data\":[1e2]"), "no whole number"},
    {INPUT("\"datatype\":\"BOOL\",\"shape\":[1],\"data\":[2]"), "neither true nor false"},
    {INPUT("\"datatype\":\"FP32\",\"shape\":[1],\"data\":[1],\"parameters\":"
           "{\"shared_memory_region\":\"r\"}"),
     "shared_memory_region is not supported"},
    {INPUT("\"datatype\":\"FP32\",\"shape\":[1],\"data\":[1],\"parameters\":"
           "{\"binary_data_size\":4}"),
     "exclude each other"},
    {INPUT("\"datatype\":\"FP32\",\"shape\":[1],\"parameters\":{\"binary_data_size\":4}"),
     "4 bytes are announced, 0 are left"},
    {INPUT("\"datatype\":\"FP32\",\"shape\":[1],\"parameters\":{\"binary_data_size\":5}"),
     "binary_data_size is 5"},
    {"{\"parameters\":{\"sequence_id\":1},\"inputs\":[]}", "sequence_id is not supported"},
    {"{\"parameters\":{\"priority\":17},\"inputs\":[]}", "priority"},
    {"{\"parameters\":{\"timeout\":-1},\"inputs\":[]}", "timeout"},
    {"{\"parameters\":{\"a\":\"b\"},\"inputs\":[]}", "parameter a is no number"},
    {"{\"outputs\":[{\"name\":\"y\",\"parameters\":{\"classification\":2}}],\"inputs\":[]}",
     "classification is not supported"},
    {"{\"outputs\":[{\"name\":\"y\"},{\"name\":\"y\"}],\"inputs\":[]}", "y twice"},
    {"{\"id\":1,\"inputs\":[]}", "id must be"},
    {"{\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[1],\"data\":null},"
     "{\"name\":\"z\",\"datatype\":\"FP32\",\"shape\":[1],\"data\":[1]}]}",
     "data is missing"},
};

START_TEST(what_cannot_be_read_is_refused_by_its_name)
{
    struct query_tensors query;
    struct error error = {0};
    const char *body = refused[_i].body;
    ck_assert_msg(query_tensors_read(&query, body, strlen(body), strlen(body), &error) != 0, "%s",
                  body);
    ck_assert_msg(strstr(error.text, refused[_i].part) != NULL, "%s: %s", body, error.text);
}
END_TEST

/* Whatever it is cut to ends before a bracket that it lacks, so it is none. */
START_TEST(no_part_of_a_body_is_one)
{
    static const char body[] =
        "{\"id\":\"a\",\"inputs\":[{\"name\":\"x\",\"datatype\":\"UINT8\",\"shape\":[2,2],"
        "\"data\":[[1,2],[3,4]]}],\"outputs\":[{\"name\":\"y\"}]}";
    struct query_tensors query;
    struct error error;
    for (size_t length = 0; length < sizeof(body) - 1; length++) {
        char *copy = malloc(length > 0 ? length : 1); /* so that what is read behind it is seen */
        memcpy(copy, body, length);
        ck_assert_int_ne(query_tensors_read(&query, copy, length, length, &error), 0);
        free(copy);
    }
    ck_assert_int_eq(query_tensors_read(&query, body, sizeof(body) - 1, sizeof(body) - 1, &error),
                     0);
    ck_assert_mem_eq(query.data, "\1\2\3\4", 4);
    query_tensors_free(&query);
}
END_TEST

/* ---- what is taken -----------------------------------------------------------------------------
 */

START_TEST(numbers_are_read_by_their_dtype)
{
    static const char body[] =
        "{\"inputs\":[{\"name\":\"big\",\"datatype\":\"UINT64\",\"shape\":[2],\"data\":"
        "[18446744073709551615,9007199254740993]},"
        "{\"data\" : [ NaN , -Infinity,Infinity,-0.0, 16777217 ],\"name\":\"odd\","
        "\"datatype\":\"FP32\",\"shape\":[5]},"
        "{\"name\":\"least\",\"datatype\":\"INT64\",\"shape\":[1,1,1],\"data\":"
        "[[[-9223372036854775808]]]}],"
        "\"parameters\":{\"priority\":3,\"timeout\":1500,\"a\":0.5,\"n\":7,\"on\":true}}";
    struct query_tensors query;
    struct error error;
    uint64_t big[2];
    float odd[5];
    int64_t least;
    ck_assert_msg(query_tensors_read(&query, body, sizeof(body) - 1, sizeof(body) - 1, &error) == 0,
                  "%s", error.text);
    memcpy(big, query.data + query.inputs[0].at, sizeof(big));
    memcpy(odd, query.data + query.inputs[1].at, sizeof(odd));
    memcpy(&least, query.data + query.inputs[2].at, sizeof(least));
    ck_assert(big[0] == UINT64_MAX && big[1] == ((uint64_t)1 << 53) + 1);
    ck_assert(isnan(odd[0]) && isinf(odd[1]) && odd[1] < 0 && isinf(odd[2]) && odd[2] > 0);
    ck_assert(signbit(odd[3]) && odd[4] == 16777216.0f);
    ck_assert(least == INT64_MIN);
    ck_assert_int_eq(query.params.priority, 5);
    ck_assert_uint_eq(query.params.deadline_ms, 2);
    ck_assert_uint_eq(query.value_count, 3);
    ck_assert(query.values[1].type == VALUE_INTEGER && query.values[1].integer == 7);
    ck_assert(query.values[2].type == VALUE_BOOL && query.values[2].integer == 1);
    query_tensors_free(&query);
}
END_TEST

START_TEST(bytes_behind_the_json_are_shared_out_in_order)
{
    static const char head[] =
        "{\"inputs\":[{\"name\":\"a\",\"datatype\":\"UINT8\",\"shape\":[3],\"parameters\":"
        "{\"binary_data_size\":3}},{\"name\":\"t\",\"datatype\":\"INT16\",\"shape\":[1],\"data\":[-"
        "2]},"
        "{\"name\":\"b\",\"datatype\":\"BF16\",\"shape\":[1],\"parameters\":"
        "{\"binary_data_size\":2}}]}";
    char body[sizeof(head) + 8];
    struct query_tensors query;
    struct error error;
    int16_t text;
    memcpy(body, head, sizeof(head) - 1);
    memcpy(body + sizeof(head) - 1, "abcXY", 5);
    size_t length = sizeof(head) - 1;
    ck_assert_int_eq(query_tensors_read(&query, body, length + 5, length, &error), 0);
    ck_assert_mem_eq(query.data + query.inputs[0].at, "abc", 3);
    memcpy(&text, query.data + query.inputs[1].at, sizeof(text));
    ck_assert_int_eq(text, -2);
    ck_assert_mem_eq(query.data + query.inputs[2].at, "XY", 2);
    query_tensors_free(&query);
    ck_assert_int_ne(query_tensors_read(&query, body, length + 4, length, &error), 0);
    ck_assert_int_ne(query_tensors_read(&query, body, length + 6, length, &error), 0);
    ck_assert_ptr_nonnull(strstr(error.text, "belong to no input"));
    ck_assert_int_ne(query_tensors_read(&query, body, length, length + 1, &error), 0);
}
END_TEST

/* Bits of every kind, from a multiplier; of floats some are NaN, and one of those is any other. */
START_TEST(what_is_written_reads_back)
{
    static const uint32_t dtypes[] = {TENSOR_U8,  TENSOR_U16, TENSOR_U32, TENSOR_U64, TENSOR_I8,
                                      TENSOR_I16, TENSOR_I32, TENSOR_I64, TENSOR_F32, TENSOR_F64};
    const uint32_t dtype = dtypes[_i], size = tensor_dtype_bytes(dtype);
    const uint64_t shape[] = {1};
    uint64_t bits = 1;
    struct error error;
    for (int i = 0; i < 20000; i++) {
        char text[TENSOR_TEXT_MAX + 2] = "[";
        uint64_t back = 0, mask = UINT64_MAX >> (64 - 8 * size);
        bits = bits * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        uint64_t given = (i & 1 ? bits : bits >> (i % 64)) & mask;
        size_t length = tensor_text_write(dtype, &given, 0, text + 1);
        ck_assert_uint_lt(length, TENSOR_TEXT_MAX);
        text[1 + length] = ']';
        ck_assert_msg(tensor_text_read(text, length + 2, "x", dtype, 1, shape, &back, &error) == 0,
                      "%s", error.text);
        bool nan = text[1] == 'N';
        ck_assert_msg(nan || back == given, "%s", text);
    }
}
END_TEST

/* ---- compressed --------------------------------------------------------------------------------
 */

static struct buffer compress_as(enum coding coding, const char *text, size_t length)
{
    z_stream stream = {0};
    struct buffer out = {0};
    ck_assert_int_eq(deflateInit2(&stream, 9, Z_DEFLATED, coding == CODING_GZIP ? 31 : 15, 8,
                                  Z_DEFAULT_STRATEGY),
                     Z_OK);
    ck_assert(buffer_reserve(&out, deflateBound(&stream, length), SIZE_MAX));
    stream.next_in = (unsigned char *)(uintptr_t)text;
    stream.avail_in = (uInt)length;
    stream.next_out = (unsigned char *)out.data;
    stream.avail_out = (uInt)out.room;
    ck_assert_int_eq(deflate(&stream, Z_FINISH), Z_STREAM_END);
    out.length = stream.total_out;
    deflateEnd(&stream);
    return out;
}

START_TEST(bodies_inflate_within_their_bound)
{
    enum coding coding = _i ? CODING_GZIP : CODING_DEFLATE;
    static char text[300000];
    struct error error;
    for (size_t i = 0; i < sizeof(text); i++)
        text[i] = (char)(i * i >> 7);
    const size_t bounds[] = {sizeof(text), sizeof(text) + 1, SIZE_MAX / 4, sizeof(text) - 1, 1};
    for (size_t i = 0; i < sizeof(bounds) / sizeof(bounds[0]); i++) {
        struct buffer body = compress_as(coding, text, sizeof(text));
        int rc = inflate_body(&body, coding, bounds[i], &error);
        if (bounds[i] < sizeof(text)) {
            ck_assert_int_eq(rc, -ERR_TOO_LARGE);
            ck_assert_uint_le(body.length, bounds[i] + 1);
        } else {
            ck_assert_int_eq(rc, 0);
            ck_assert_uint_eq(body.length, sizeof(text));
            ck_assert_mem_eq(body.data, text, sizeof(text));
        }
        buffer_free(&body);
    }
}
END_TEST

START_TEST(no_part_of_a_compressed_body_is_one)
{
    enum coding coding = _i ? CODING_GZIP : CODING_DEFLATE;
    static const char text[] = "some text and some text, and some text";
    struct buffer whole = compress_as(coding, text, sizeof(text));
    struct error error;
    for (size_t length = 0; length < whole.length + 2; length++) {
        struct buffer body = {0};
        ck_assert(buffer_append(&body, whole.data, length < whole.length ? length : whole.length,
                                SIZE_MAX));
        if (length > whole.length)
            ck_assert(buffer_append(&body, "x", 1, SIZE_MAX));
        int rc = inflate_body(&body, coding, 1000, &error);
        ck_assert_int_eq(rc, length == whole.length ? 0 : -ERR_BAD_HEAD);
        buffer_free(&body);
    }
    buffer_free(&whole);
}
END_TEST

Suite *tensors_suite(void)
{
    Suite *suite = suite_create("tensors");
    TCase *tests = tcase_create("tensors");
    tcase_add_loop_test(tests, what_cannot_be_read_is_refused_by_its_name, 0,
                        sizeof(refused) / sizeof(refused[0]));
    tcase_add_test(tests, no_part_of_a_body_is_one);
    tcase_add_test(tests, numbers_are_read_by_their_dtype);
    tcase_add_test(tests, bytes_behind_the_json_are_shared_out_in_order);
    tcase_add_loop_test(tests, what_is_written_reads_back, 0, 10);
    tcase_add_loop_test(tests, bodies_inflate_within_their_bound, 0, 2);
    tcase_add_loop_test(tests, no_part_of_a_compressed_body_is_one, 0, 2);
    suite_add_tcase(suite, tests);
    return suite;
}
