/* The messages with small heads: what they refuse, and that they never write over a buffer's end.
 */
#include "protocol/message.h"

#include <stdio.h>

#include "tests/protocol/head_frame.h"
#include "tests/protocol/protocol_suites.h"

static struct head_frame built;
static struct error error;

static int decode(const struct frame *frame)
{
    union {
        struct message_hello hello;
        struct message_welcome welcome;
        struct message_done done;
        struct message_error error;
        uint64_t request;
        struct message_stats stats;
    } out;
    switch (frame->type) {
    case FRAME_HELLO:
        return message_decode_hello(frame, &out.hello, &error);
    case FRAME_WELCOME:
        return message_decode_welcome(frame, &out.welcome, &error);
    case FRAME_ACCEPT:
        return message_decode_accept(frame, &out.request, &error);
    case FRAME_DONE:
        return message_decode_done(frame, &out.done, &error);
    case FRAME_ERROR:
        return message_decode_error(frame, &out.error, &error);
    case FRAME_CANCEL:
        return message_decode_cancel(frame, &out.request, &error);
    default:
        return message_decode_stats(frame, &out.stats, &error);
    }
}

struct refusal {
    uint8_t type;
    const char *head;
    int code;
    const char *text;
};

static const struct refusal refusals[] = {
    {FRAME_HELLO, "", ERR_BAD_HEAD, "the head is missing"},
    {FRAME_HELLO, "{\"client\":\"x\"}", ERR_BAD_VALUE, "versions is not a pair"},
    {FRAME_HELLO, "{\"versions\":1,\"client\":\"x\"}", ERR_BAD_VALUE, "versions is not a pair"},
    {FRAME_HELLO, "{\"versions\":[1],\"client\":\"x\"}", ERR_BAD_VALUE, "versions is not a pair"},
    {FRAME_HELLO, "{\"versions\":[2,1],\"client\":\"x\"}", ERR_BAD_VALUE,
     "versions is 1, at least 2"},
    {FRAME_HELLO, "{\"versions\":[0,1],\"client\":\"x\"}", ERR_BAD_VALUE, "versions is 0"},
    {FRAME_HELLO, "{\"versions\":[1,1]}", ERR_BAD_VALUE, "client is missing"},
    {FRAME_HELLO, "{\"versions\":[1,1],\"client\":5}", ERR_BAD_VALUE, "client is not a string"},
    {FRAME_HELLO, "{\"versions\":[1,1],\"client\":\"x\",\"y\":1}", ERR_UNKNOWN_FIELD, "\"y\""},
    {FRAME_WELCOME, "{\"version\":1}", ERR_BAD_VALUE, "frame_max is missing"},
    {FRAME_WELCOME, "{\"Version\":1}", ERR_UNKNOWN_FIELD, "\"Version\""},
    {FRAME_ACCEPT, "{}", ERR_BAD_VALUE, "request is missing"},
    {FRAME_ACCEPT, "{\"request\":0}", ERR_BAD_VALUE, "request is 0"},
    {FRAME_ACCEPT, "{\"request\":1.5}", ERR_BAD_VALUE, "request is not a whole number"},
    {FRAME_ACCEPT, "{\"request\":1,\"x\":1}", ERR_UNKNOWN_FIELD, "\"x\""},
    {FRAME_DONE, "{}", ERR_BAD_VALUE, "sequence is missing"},
    {FRAME_DONE, "{\"sequence\":1}", ERR_BAD_VALUE, "finish_reason is missing"},
    {FRAME_DONE, "{\"sequence\":1,\"finish_reason\":\"eos\"}", ERR_BAD_VALUE,
     "finish_reason is none of stop, length, cancelled, deadline, error"},
    {FRAME_DONE, "{\"sequence\":1,\"finish_reason\":\"stop\"}", ERR_BAD_VALUE, "usage is missing"},
    {FRAME_DONE,
     "{\"sequence\":1,\"finish_reason\":\"stop\",\"usage\":{\"prompt_tokens\":1,"
     "\"completion_tokens\":1,\"x\":1}}",
     ERR_UNKNOWN_FIELD, "\"x\""},
    {FRAME_DONE,
     "{\"sequence\":1,\"finish_reason\":\"stop\",\"usage\":{\"prompt_tokens\":1,"
     "\"completion_tokens\":1},\"timings\":[1]}",
     ERR_BAD_VALUE, "timings is not an object"},
    {FRAME_DONE, "{\"sequence\":1,\"finish_reason\":\"stop\",\"usage\":{\"prompt_tokens\":1}}",
     ERR_BAD_VALUE, "completion_tokens is missing"},
    {FRAME_DONE, "{\"sequence\":4294967296,\"finish_reason\":\"stop\"}", ERR_BAD_VALUE,
     "sequence is 4294967296"},
    {FRAME_ERROR, "{\"code\":\"busy\",\"text\":\"x\"}", ERR_BAD_VALUE, "retry is missing"},
    {FRAME_ERROR, "{\"code\":\"busy\",\"retry\":\"later\"}", ERR_BAD_VALUE, "text is missing"},
    {FRAME_ERROR, "{\"text\":\"x\",\"retry\":\"later\"}", ERR_BAD_VALUE, "code is missing"},
    {FRAME_ERROR, "{\"code\":\"busy\",\"text\":\"x\",\"retry\":\"soon\"}", ERR_BAD_VALUE,
     "retry is none of never, later, fix"},
    {FRAME_ERROR, "{\"code\":\"busy\",\"text\":\"x\",\"retry\":\"later\",\"sequence\":-1}",
     ERR_BAD_VALUE, "sequence is -1"},
    {FRAME_ERROR, "{\"code\":\"busy\",\"text\":\"x\",\"retry\":\"later\",\"why\":1}",
     ERR_UNKNOWN_FIELD, "\"why\""},
    {FRAME_CANCEL, "{}", ERR_BAD_VALUE, "request is missing"},
    {FRAME_CANCEL, "{\"request\":0}", ERR_BAD_VALUE, "request is 0"},
    {FRAME_CANCEL, "{\"id\":1}", ERR_UNKNOWN_FIELD, "\"id\""},
    {FRAME_STATS, "{\"requests\":1}", ERR_BAD_VALUE, "requests is neither true nor false"},
    {FRAME_STATS, "{\"all\":true}", ERR_UNKNOWN_FIELD, "\"all\""},
    {FRAME_STATS, "[]", ERR_BAD_HEAD, "not a JSON object"},
};

#define REFUSALS ((int)(sizeof(refusals) / sizeof(refusals[0])))

START_TEST(a_bad_head_is_refused_with_what_is_wrong)
{
    const struct refusal *refusal = &refusals[_i];
    head_frame_fill(&built, refusal->type, refusal->head, NULL, 0);
    int rc = decode(&built.frame);
    ck_assert_msg(rc == -refusal->code, "%s: %d, %s", refusal->head, rc,
                  rc ? error.text : "accepted");
    ck_assert_msg(strstr(error.text, refusal->text), "%s: %s", refusal->head, error.text);
}
END_TEST

static const uint8_t without_payload[] = {FRAME_HELLO, FRAME_WELCOME, FRAME_ACCEPT, FRAME_DONE,
                                          FRAME_ERROR, FRAME_CANCEL,  FRAME_STATS};

START_TEST(a_payload_where_none_belongs_is_refused)
{
    head_frame_fill(&built, without_payload[_i], "{}", "12345678", 8);
    ck_assert_int_eq(decode(&built.frame), -ERR_BAD_FRAME);
    head_frame_fill(&built, without_payload[_i], "", "12345678", 8);
    ck_assert_int_eq(decode(&built.frame), -ERR_BAD_FRAME);
}
END_TEST

START_TEST(a_later_clients_hello_may_say_more)
{
    struct message_hello hello;
    head_frame_fill(&built, FRAME_HELLO, "{\"versions\":[1,3],\"client\":\"x\",\"new\":{\"a\":1}}",
                    NULL, 0);
    ck_assert_int_eq(message_decode_hello(&built.frame, &hello, &error), 0);
    ck_assert_uint_eq(hello.version_max, 3);
}
END_TEST

START_TEST(a_name_has_its_bound)
{
    char head[512];
    struct message_hello hello;
    snprintf(head, sizeof(head), "{\"versions\":[1,1],\"client\":\"%0127d\"}", 0);
    head_frame_fill(&built, FRAME_HELLO, head, NULL, 0);
    ck_assert_int_eq(message_decode_hello(&built.frame, &hello, &error), 0);
    ck_assert_uint_eq(strlen(hello.client), MESSAGE_NAME_MAX - 1);
    snprintf(head, sizeof(head), "{\"versions\":[1,1],\"client\":\"%0128d\"}", 0);
    head_frame_fill(&built, FRAME_HELLO, head, NULL, 0);
    ck_assert_int_eq(message_decode_hello(&built.frame, &hello, &error), -ERR_TOO_LARGE);
    ck_assert_uint_eq(error.limit, MESSAGE_NAME_MAX - 1);
}
END_TEST

START_TEST(an_error_of_a_name_not_known_here_keeps_its_name_in_the_text)
{
    struct message_error message;
    head_frame_fill(&built, FRAME_ERROR,
                    "{\"code\":\"too_warm\",\"text\":\"cool it\",\"retry\":\"later\"}", NULL, 0);
    ck_assert_int_eq(message_decode_error(&built.frame, &message, &error), 0);
    ck_assert_int_eq(message.error.code, ERR_INTERNAL);
    ck_assert_str_eq(message.error.text, "too_warm: cool it");
}
END_TEST

START_TEST(any_error_text_survives_the_wire)
{
    static unsigned char bytes[8192];
    struct message_error message = {.sequence = MESSAGE_NO_SEQUENCE}, read;
    struct frame frame;
    size_t used;
    char text[ERROR_TEXT_MAX];
    memset(text, '"', sizeof(text) - 1);
    text[sizeof(text) - 1] = 0;
    error_limit(&message.error, ERR_TOO_LARGE, UINT64_MAX, 5, "%s", text);
    size_t size = message_encode_error(bytes, sizeof(bytes), 1, 0, &message);
    ck_assert_int_eq(frame_decode(bytes, size, size, &frame, &used, &error), FRAME_OK);
    ck_assert_int_eq(message_decode_error(&frame, &read, &error), 0);
    ck_assert_str_eq(read.error.text, text);
    ck_assert_uint_eq(read.error.limit, 1ull << 53);

    memset(message.error.text, 0xff, ERROR_TEXT_MAX / 4);
    message.error.text[ERROR_TEXT_MAX / 4] = 0;
    size = message_encode_error(bytes, sizeof(bytes), 1, 0, &message);
    ck_assert_int_eq(frame_decode(bytes, size, size, &frame, &used, &error), FRAME_OK);
    ck_assert_int_eq(message_decode_error(&frame, &read, &error), 0);
}
END_TEST

static size_t encode(int which, void *buffer, size_t size)
{
    static const struct message_hello hello = {1, 1, "client"};
    static const struct message_welcome welcome = {.version = 1, .model = "m", .device = "d"};
    static const struct message_done done = {.finish = FINISH_CANCELLED};
    static const struct message_error message = {.sequence = 1,
                                                 .error = {.code = ERR_DEADLINE, .text = "late"}};
    switch (which) {
    case 0:
        return message_encode_hello(buffer, size, &hello);
    case 1:
        return message_encode_welcome(buffer, size, &welcome);
    case 2:
        return message_encode_accept(buffer, size, 1, 2);
    case 3:
        return message_encode_done(buffer, size, 1, 0, &done);
    case 4:
        return message_encode_error(buffer, size, 1, 0, &message);
    case 5:
        return message_encode_cancel(buffer, size, 1, 2);
    default:
        return message_encode_control(buffer, size, FRAME_MODEL, 0, 1, "{\"a\":1}", 7);
    }
}

START_TEST(nothing_is_written_over_a_buffers_end)
{
    static unsigned char bytes[2048];
    size_t size = encode(_i, bytes, sizeof(bytes));
    ck_assert_uint_gt(size, FRAME_HEADER_SIZE);
    for (size_t room = 0; room <= size; room++) {
        memset(bytes, 0xa5, sizeof(bytes));
        ck_assert_uint_eq(encode(_i, bytes, room), room == size ? size : 0);
        for (size_t i = room; i < size + 16; i++)
            ck_assert_uint_eq(bytes[i], 0xa5);
    }
}
END_TEST

START_TEST(a_request_id_beyond_json_is_not_encoded)
{
    unsigned char bytes[128];
    ck_assert_uint_eq(message_encode_cancel(bytes, sizeof(bytes), 1, (1ull << 53) + 1), 0);
    ck_assert_uint_gt(message_encode_cancel(bytes, sizeof(bytes), 1, 1ull << 53), 0);
}
END_TEST

START_TEST(stats_without_the_list_is_the_default)
{
    struct message_stats stats = {true, true, true};
    head_frame_fill(&built, FRAME_STATS, "", NULL, 0);
    ck_assert_int_eq(message_decode_stats(&built.frame, &stats, &error), 0);
    ck_assert(!stats.requests && !stats.buckets && !stats.prometheus);
    stats = (struct message_stats){true, true, true};
    head_frame_fill(&built, FRAME_STATS, "{}", NULL, 0);
    ck_assert_int_eq(message_decode_stats(&built.frame, &stats, &error), 0);
    ck_assert(!stats.requests && !stats.buckets && !stats.prometheus);
}
END_TEST

Suite *message_suite(void)
{
    Suite *suite = suite_create("message");
    TCase *tcase = tcase_create("message");
    tcase_add_loop_test(tcase, a_bad_head_is_refused_with_what_is_wrong, 0, REFUSALS);
    tcase_add_loop_test(tcase, a_payload_where_none_belongs_is_refused, 0, 7);
    tcase_add_test(tcase, a_later_clients_hello_may_say_more);
    tcase_add_test(tcase, a_name_has_its_bound);
    tcase_add_test(tcase, an_error_of_a_name_not_known_here_keeps_its_name_in_the_text);
    tcase_add_test(tcase, any_error_text_survives_the_wire);
    tcase_add_loop_test(tcase, nothing_is_written_over_a_buffers_end, 0, 7);
    tcase_add_test(tcase, a_request_id_beyond_json_is_not_encoded);
    tcase_add_test(tcase, stats_without_the_list_is_the_default);
    suite_add_tcase(suite, tcase);
    return suite;
}
