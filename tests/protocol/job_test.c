/* JOB, TENSORS and PROGRAMS: round trips, and what is refused. */
#include <stdio.h>
#include <string.h>

#include "protocol/message_job.h"
#include "tests/protocol/head_frame.h"
#include "tests/protocol/protocol_suites.h"

static struct error error;

/* ---- round trips -------------------------------------------------------------------------------
 */

static const struct message_item items[] = {
    {.input_count = 2,
     .value_count = 3,
     .inputs = {{.name = "x", .dtype = TENSOR_F32, .rank = 2, .shape = {3, 5}},
                {.name = "mask", .dtype = TENSOR_BOOL, .rank = 1, .shape = {3}}},
     .values = {{.name = "a", .type = VALUE_NUMBER, .number = 0.1},
                {.name = "k",
                 .type = VALUE_INTEGER,
                 .integer = -9007199254740992,
                 .number = -9007199254740992.0},
                {.name = "on", .type = VALUE_BOOL, .integer = 1}}},
    {.input_count = 1, .inputs = {{.name = "x", .dtype = TENSOR_U8, .rank = 0}}},
};

static const struct message_item *item_at(void *context, uint32_t index)
{
    (void)context;
    return &items[index];
}

static void check_values(const struct message_item *item, const struct message_item *expected)
{
    ck_assert_uint_eq(item->value_count, expected->value_count);
    for (uint32_t i = 0; i < item->value_count; i++) {
        ck_assert_str_eq(item->values[i].name, expected->values[i].name);
        ck_assert_int_eq(item->values[i].type, expected->values[i].type);
        ck_assert(item->values[i].integer == expected->values[i].integer &&
                  item->values[i].number == expected->values[i].number);
    }
}

static void check_item(struct message_job *job, const struct message_item *expected, uint64_t *at)
{
    struct message_item item;
    ck_assert_msg(!message_job_item(job, &item, &error), "%s", error.text);
    ck_assert_uint_eq(item.input_count, expected->input_count);
    for (uint32_t i = 0; i < item.input_count; i++) {
        const struct message_tensor *tensor = &item.inputs[i];
        ck_assert_str_eq(tensor->name, expected->inputs[i].name);
        ck_assert_uint_eq(tensor->dtype, expected->inputs[i].dtype);
        ck_assert_uint_eq(tensor->rank, expected->inputs[i].rank);
        ck_assert_mem_eq(tensor->shape, expected->inputs[i].shape, tensor->rank * sizeof(uint64_t));
        ck_assert_uint_eq(tensor->at, *at);
        *at += tensor_pad(tensor->bytes);
    }
    check_values(&item, expected);
}

START_TEST(a_job_is_read_as_it_was_written)
{
    const uint64_t bytes = 64 + 8 + 8;
    struct message_job_out out = {.program = "some",
                                  .priority = -3,
                                  .deadline_ms = 77,
                                  .input_memory = _i ? bytes : 0,
                                  .output_memory = _i ? 12 : 0,
                                  .item_count = 2,
                                  .item = item_at,
                                  .payload_length = _i ? 0 : bytes};
    static _Alignas(8) unsigned char buffer[8192];
    struct message_job job;
    struct frame frame;
    uint64_t at = 0;
    size_t used, size = message_encode_job(buffer, sizeof(buffer), 9, &out) + out.payload_length;
    ck_assert_uint_gt(size, 0);
    ck_assert_uint_le(size, message_job_size_bound(&out));
    ck_assert_int_eq(frame_decode(buffer, size, sizeof(buffer), &frame, &used, &error), FRAME_OK);
    ck_assert_msg(!message_decode_job(&frame, 2, &job, &error), "%s", error.text);
    ck_assert_str_eq(job.program, "some");
    ck_assert(job.params.job == JOB_PROGRAM && job.params.priority == -3 &&
              job.params.deadline_ms == 77);
    ck_assert(job.input_memory == out.input_memory && job.output_memory == out.output_memory);
    ck_assert_uint_eq(job.item_count, 2);
    check_item(&job, &items[0], &at);
    check_item(&job, &items[1], &at);
    ck_assert_uint_eq(at, bytes);
    ck_assert_int_eq(message_job_end(&job, &error), 0);
    message_job_free(&job);
}
END_TEST

START_TEST(a_part_of_an_output_is_read_as_it_was_written)
{
    static const unsigned char data[21] = "twenty bytes and zero";
    static _Alignas(8) unsigned char buffer[128];
    struct message_tensors in = {3, 1, (uint64_t)1 << 40, (uint64_t)_i, data}, out;
    struct frame frame;
    size_t used, size = message_encode_tensors(buffer, sizeof(buffer), 9, &in);
    ck_assert_uint_eq(size, FRAME_HEADER_SIZE + TENSORS_HEADER_SIZE + frame_pad((size_t)_i));
    ck_assert_uint_eq(message_encode_tensors(buffer, size - 1, 9, &in), 0);
    ck_assert_int_eq(frame_decode(buffer, size, sizeof(buffer), &frame, &used, &error), FRAME_OK);
    ck_assert_int_eq(message_decode_tensors(&frame, &out, &error), 0);
    ck_assert(out.sequence == 3 && out.output == 1 && out.at == in.at && out.bytes == in.bytes);
    ck_assert_mem_eq(out.data, data, (size_t)_i);
    for (uint32_t cut = 0; cut < frame.payload_length; cut += 8) {
        struct frame less = frame;
        less.payload_length = cut;
        ck_assert_int_eq(message_decode_tensors(&less, &out, &error), -ERR_BAD_FRAME);
    }
}
END_TEST

/* ---- refusals ----------------------------------------------------------------------------------
 */

#define X(shape) "\"inputs\":{\"x\":{\"dtype\":\"f32\",\"shape\":" shape "}}"

static const struct refusal {
    const char *head;
    int code;
    const char *text; /* a part of it */
} refusals[] = {
    {"{}", ERR_BAD_VALUE, "program is missing"},
    {"{\"program\":1,\"items\":[{}]}", ERR_BAD_VALUE, "program is not a string"},
    {"{\"program\":\"a\"}", ERR_BAD_VALUE, "items is missing"},
    {"{\"program\":\"a\",\"items\":{}}", ERR_BAD_VALUE, "items is missing, or no list"},
    {"{\"program\":\"a\",\"items\":[]}", ERR_EMPTY, "items is empty"},
    {"{\"program\":\"a\",\"items\":[1,2,3,4,5]}", ERR_TOO_LARGE, "5 items, the limit is 4"},
    {"{\"program\":\"a\",\"items\":[{" X("[2]") "}],\"nice\":1}", ERR_UNKNOWN_FIELD, "nice"},
    {"{\"program\":\"a\",\"items\":[{" X("[2]") "}],\"priority\":8}", ERR_BAD_VALUE, "priority"},
    {"{\"program\":\"a\",\"items\":[{" X("[2]") "}],\"deadline_ms\":-1}", ERR_BAD_VALUE,
     "deadline_ms"},
    {"{\"program\":\"a\",\"items\":[{" X("[2]") "}],\"memory\":[]}", ERR_BAD_VALUE,
     "memory is no object"},
    {"{\"program\":\"a\",\"items\":[{" X("[2]") "}],\"memory\":{\"inputs\":0}}", ERR_BAD_VALUE,
     "inputs"},
    {"{\"program\":\"a\",\"items\":[{" X("[2]") "}],\"memory\":{\"inputs\":8}}", ERR_BAD_FRAME,
     "a payload beside"},
    {"{\"program\":\"a\",\"items\":[{" X("[2]") "}],\"memory\":{\"x\":8}}", ERR_UNKNOWN_FIELD, "x"},
    {"{\"program\":\"a\",\"items\":[7]}", ERR_BAD_VALUE, "item 0: it is no object"},
    {"{\"program\":\"a\",\"items\":[{}]}", ERR_BAD_VALUE, "item 0: inputs is missing"},
    {"{\"program\":\"a\",\"items\":[{\"inputs\":{}}]}", ERR_BAD_VALUE, "inputs is missing"},
    {"{\"program\":\"a\",\"items\":[{\"inputs\":{\"x\":3}}]}", ERR_BAD_VALUE, "x is no object"},
    {"{\"program\":\"a\",\"items\":[{\"inputs\":{\"x\":{\"shape\":[2]}}}]}", ERR_BAD_VALUE,
     "x: dtype"},
    {"{\"program\":\"a\",\"items\":[{\"inputs\":{\"x\":{\"dtype\":\"f31\",\"shape\":[2]}}}]}",
     ERR_BAD_VALUE, "x: dtype"},
    {"{\"program\":\"a\",\"items\":[{\"inputs\":{\"x\":{\"dtype\":\"f32\"}}}]}", ERR_BAD_VALUE,
     "x: shape is missing"},
    {"{\"program\":\"a\",\"items\":[{" X("[0]") "}]}", ERR_BAD_VALUE, "dimension"},
    {"{\"program\":\"a\",\"items\":[{" X("[-1]") "}]}", ERR_BAD_VALUE, "dimension"},
    {"{\"program\":\"a\",\"items\":[{" X("[1.5]") "}]}", ERR_BAD_VALUE, "dimension"},
    {"{\"program\":\"a\",\"items\":[{" X("[1,1,1,1,1,1,2]") "}]}", ERR_BAD_VALUE, "7 dimensions"},
    {"{\"program\":\"a\",\"items\":[{" X("[9007199254740992]") "}]}", ERR_TOO_LARGE, "2^53"},
    {"{\"program\":\"a\",\"items\":[{" X("[4294967296,4294967296]") "}]}", ERR_TOO_LARGE, "2^53"},
    {"{\"program\":\"a\",\"items\":[{" X("[3]") "}]}", ERR_BAD_VALUE,
     "takes 12 bytes, and 8 are left"},
    {"{\"program\":\"a\",\"items\":[{" X("[2]") "},{" X("[1]") "}]}", ERR_BAD_VALUE,
     "item 1: x takes 4 bytes, and 0"},
    {"{\"program\":\"a\",\"items\":[{" X("[2]") ",\"parameters\":7}]}", ERR_BAD_VALUE,
     "parameters is no object"},
    {"{\"program\":\"a\",\"items\":[{" X("[2]") ",\"parameters\":{\"a\":\"1\"}}]}", ERR_BAD_VALUE,
     "parameter a"},
    {"{\"program\":\"a\",\"items\":[{" X("[2]") ",\"more\":7}]}", ERR_UNKNOWN_FIELD, "more"},
};

static int read_all(const struct frame *frame)
{
    struct message_job job;
    struct message_item item;
    int rc = message_decode_job(frame, 4, &job, &error);
    if (rc)
        return rc;
    for (uint32_t i = 0; !rc && i < job.item_count; i++)
        rc = message_job_item(&job, &item, &error);
    if (!rc)
        rc = message_job_end(&job, &error);
    message_job_free(&job);
    return rc;
}

START_TEST(what_is_wrong_with_a_job_is_named)
{
    static const _Alignas(8) unsigned char payload[8] = {1};
    const struct refusal *refusal = &refusals[_i];
    struct head_frame in;
    head_frame_fill(&in, FRAME_JOB, refusal->head, payload, sizeof(payload));
    int rc = read_all(&in.frame);
    ck_assert_msg(rc == -refusal->code, "%s: %d (%s)", refusal->head, rc, error.text);
    ck_assert_msg(strstr(error.text, refusal->text), "%s: %s", refusal->head, error.text);
}
END_TEST

START_TEST(bytes_that_no_tensor_takes_are_refused)
{
    static const _Alignas(8) unsigned char payload[16] = {1};
    struct head_frame in;
    head_frame_fill(&in, FRAME_JOB, "{\"program\":\"a\",\"items\":[{" X("[2]") "}]}", payload,
                    sizeof(payload));
    ck_assert_int_eq(read_all(&in.frame), -ERR_BAD_VALUE);
    ck_assert_ptr_nonnull(strstr(error.text, "the tensors take 8 bytes, the payload has 16"));
}
END_TEST

START_TEST(a_dtype_is_found_by_its_name_and_has_bytes)
{
    for (uint32_t dtype = 1; dtype <= TENSOR_F64; dtype++) {
        ck_assert_uint_eq(tensor_dtype_find(tensor_dtype_name(dtype)), dtype);
        ck_assert_uint_gt(tensor_dtype_bytes(dtype), 0);
    }
    ck_assert_uint_eq(tensor_dtype_bytes(0) + tensor_dtype_bytes(14) + tensor_dtype_find(""), 0);
    ck_assert(!tensor_dtype_name(0) && !tensor_dtype_name(14));
}
END_TEST

Suite *job_suite(void)
{
    Suite *suite = suite_create("job");
    TCase *tests = tcase_create("job");
    tcase_add_loop_test(tests, a_job_is_read_as_it_was_written, 0, 2);
    tcase_add_loop_test(tests, a_part_of_an_output_is_read_as_it_was_written, 0, 21);
    tcase_add_loop_test(tests, what_is_wrong_with_a_job_is_named, 0,
                        (int)(sizeof(refusals) / sizeof(refusals[0])));
    tcase_add_test(tests, bytes_that_no_tensor_takes_are_refused);
    tcase_add_test(tests, a_dtype_is_found_by_its_name_and_has_bytes);
    suite_add_tcase(suite, tests);
    return suite;
}
