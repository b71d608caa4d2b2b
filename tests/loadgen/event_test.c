/* Streamed events: what is found in them, at every split of the bytes. */
#include <string.h>

#include "client/bench/event.h"
#include "protocol/base/error.h"
#include "tests/loadgen/loadgen_suites.h"

static struct event parse(const char *text)
{
    struct event event;
    event_parse(text, strlen(text), &event);
    return event;
}

START_TEST(an_event_says_whether_it_has_choices)
{
    ck_assert(parse("{\"id\":\"a\",\"choices\":[{\"text\":\"x\"}]}").choices);
    ck_assert(parse("{\"choices\" : [ {\"delta\":{}}]}").choices);
    ck_assert(!parse("{\"choices\":[],\"usage\":{\"completion_tokens\":7}}").choices);
    ck_assert(!parse("{\"choices\": [ ]}").choices);
    ck_assert(!parse("{\"choices\":[").choices);
    ck_assert(!parse("[DONE]").choices);
    ck_assert(parse("[DONE]").done);
}
END_TEST

START_TEST(what_a_text_says_is_no_field)
{
    ck_assert(!parse("{\"text\":\"\\\"choices\\\":[1]\"}").choices);
    ck_assert(!parse("{\"text\":\"choices\",\"x\":[1]}").choices);
    struct event event =
        parse("{\"choices\":[{\"text\":\"\\\"completion_tokens\\\":9 \\u0000\"}]}");
    ck_assert(event.choices && !event.usage && !event.error);
}
END_TEST

START_TEST(usage_and_errors_are_found)
{
    struct event event = parse("{\"choices\":[],\"usage\":{\"prompt_tokens\":5, "
                               "\"completion_tokens\" : 128}}");
    ck_assert(event.usage);
    ck_assert_uint_eq(event.completion_tokens, 128);
    ck_assert_uint_eq(event.prompt_tokens, 5);
    ck_assert_uint_eq(event.cached_tokens, 0);
    event = parse("{\"usage\":{\"completion_tokens\":1,\"prompt_tokens_details\":"
                  "{\"cached_tokens\":64}}}");
    ck_assert_uint_eq(event.cached_tokens, 64);
    ck_assert(!parse("{\"choices\":[{}],\"usage\":null}").usage);
    ck_assert(parse("{\"error\":{\"message\":\"x\"}}").error);
    event = parse("{\"usage\":{\"completion_tokens\":99999999999999999999}}");
    ck_assert_uint_eq(event.completion_tokens, UINT32_MAX - 1);
}
END_TEST

static const char stream[] = "data: {\"choices\":[{\"text\":\"a\"}]}\n\n"
                             ": a comment\n\n"
                             "data:{\"choices\":[{\"text\":\"b\"}]}\r\n\r\n"
                             "event: x\n"
                             "data: {\"choices\":[],\"usage\":{\"completion_tokens\":2}}\n\n"
                             "data: [DONE]\n\n";

static void check_stream(const size_t *cuts, size_t count)
{
    struct event_reader reader = {0};
    struct event event;
    int events = 0, choices = 0, done = 0;
    uint32_t tokens = 0;
    for (size_t i = 0; i + 1 < count; i++) {
        const char *at = stream + cuts[i];
        size_t length = cuts[i + 1] - cuts[i];
        while (event_read(&reader, &at, &length, &event) > 0) {
            events++;
            choices += event.choices;
            done += event.done;
            tokens += event.usage ? event.completion_tokens : 0;
        }
        ck_assert_uint_eq(length, 0);
    }
    event_free(&reader);
    ck_assert_int_eq(events, 4);
    ck_assert_int_eq(choices, 2);
    ck_assert_int_eq(done, 1);
    ck_assert_uint_eq(tokens, 2);
}

START_TEST(a_stream_reads_the_same_at_every_split_and_byte_by_byte)
{
    static size_t bytes[sizeof(stream)];
    size_t length = sizeof(stream) - 1;
    for (size_t i = 0; i <= length; i++) {
        const size_t cuts[] = {0, i, length};
        check_stream(cuts, 3);
        bytes[i] = i;
    }
    check_stream(bytes, length + 1);
}
END_TEST

START_TEST(a_line_without_end_is_refused)
{
    static char piece[1 << 20];
    struct event_reader reader = {0};
    struct event event;
    int rc = 0;
    memset(piece, 'x', sizeof(piece));
    for (size_t i = 0; i <= EVENT_LINE_MAX / sizeof(piece) && !rc; i++) {
        const char *at = piece;
        size_t length = sizeof(piece);
        rc = event_read(&reader, &at, &length, &event);
    }
    ck_assert_int_eq(rc, -ERR_TOO_LARGE);
    event_free(&reader);
}
END_TEST

Suite *event_suite(void)
{
    Suite *suite = suite_create("event");
    TCase *cases = tcase_create("event");
    tcase_add_test(cases, an_event_says_whether_it_has_choices);
    tcase_add_test(cases, what_a_text_says_is_no_field);
    tcase_add_test(cases, usage_and_errors_are_found);
    tcase_add_test(cases, a_stream_reads_the_same_at_every_split_and_byte_by_byte);
    tcase_add_test(cases, a_line_without_end_is_refused);
    suite_add_tcase(suite, cases);
    return suite;
}
