/* Conversations, as they are handed to the model's template. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/text/template/chat.h"
#include "tests/http/caller.h"
#include "tests/http/http_suites.h"

static struct site site;
static char answer[1 << 16];

static void set_up(void)
{
    static const char source[] =
        "{% for m in messages %}{{ m.role[0] }}{{ m.content }}"
        "{% for c in m.tool_calls %}({{ c.function.arguments.x }}){% endfor %}{% endfor %}"
        "{% if tools %}T{{ tools | length }}{% endif %}{% if more %}+{{ more }}{% endif %}"
        "{% if add_generation_prompt %}>{% endif %}";
    struct error error;
    site_make(&site);
    ck_assert_msg(chat_template_load(source, sizeof(source) - 1, &site.model_text.chat, &error) ==
                      0,
                  "%s", error.text);
}

static void tear_down(void)
{
    site_free(&site);
}

struct rendering {
    const char *body;
    const char *text;
};

static const struct rendering renderings[] = {
    {"{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}", "uhi>"},
    {"{\"messages\":[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\",\"content\":\"u\"}]"
     ","
     "\"add_generation_prompt\":false}",
     "ssuu"},
    {"{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},"
     "{\"type\":\"text\",\"text\":\"b\"}]}]}",
     "uab>"},
    {"{\"messages\":[{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"type\":"
     "\"function\","
     "\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"x\\\":5}\"}}]}]}",
     "a(5)>"},
    {"{\"messages\":[{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"function\":"
     "{\"arguments\":\"{\\\"x\\\":48.858370123456}\"}}]}]}",
     "a(48.858370123456)>"},
    {"{\"messages\":[{\"role\":\"user\",\"content\":\"u\"}],\"tools\":[{\"type\":\"function\"}]}",
     "uuT1>"},
    {"{\"messages\":[{\"role\":\"user\",\"content\":\"u\"}],\"tools\":[]}", "uu>"},
    {"{\"messages\":[{\"role\":\"user\",\"content\":\"u\"}],\"chat_template_kwargs\":{\"more\":7}}",
     "uu+7>"},
};

/* --chat-template: instead of the model's own. */
START_TEST(a_template_of_a_file_stands_instead_of_the_models)
{
    static const char source[] = "<{{ messages[0].content }}>", broken[] = "{% if %}";
    char path[] = "/tmp/sluice-template-XXXXXX";
    int fd = mkstemp(path);
    struct error error;
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, source, sizeof(source) - 1), (ssize_t)sizeof(source) - 1);
    ck_assert_int_eq(model_text_template(&site.model_text, path, &error), 0);
    ck_assert_int_eq(pwrite(fd, broken, sizeof(broken) - 1, 0), (ssize_t)sizeof(broken) - 1);
    ck_assert_int_eq(model_text_template(&site.model_text, path, &error), -ERR_BAD_CONFIG);
    ck_assert_ptr_nonnull(strstr(error.text, path));
    close(fd);
    unlink(path);
    ck_assert_int_eq(model_text_template(&site.model_text, path, &error), -ERR_BAD_CONFIG);
    ck_assert_int_eq(model_text_template(&site.model_text, "none", &error), -ERR_BAD_CONFIG);
    ck_assert_int_eq(model_text_template(&site.model_text, "/", &error), -ERR_BAD_CONFIG);
    /* What could not be used has changed nothing. */
    ck_assert_uint_eq(fetch(&site, "/tokenize",
                            "{\"messages\":[{\"role\":\"user\",\"content\":\"A\"}]}", answer,
                            sizeof(answer)),
                      200);
    ck_assert_ptr_nonnull(strstr(answer, "\"tokens\":[60,65,62]"));
}
END_TEST

START_TEST(a_conversation_becomes_the_text_of_the_template)
{
    const struct rendering *rendering = &renderings[_i];
    char tokens[1024] = "\"tokens\":[";
    size_t used = strlen(tokens);
    for (const char *c = rendering->text; *c; c++)
        used += (size_t)snprintf(tokens + used, sizeof(tokens) - used, "%s%d",
                                 c > rendering->text ? "," : "", *c);
    snprintf(tokens + used, sizeof(tokens) - used, "]");
    ck_assert_uint_eq(fetch(&site, "/tokenize", rendering->body, answer, sizeof(answer)), 200);
    ck_assert_msg(strstr(answer, tokens) != NULL, "%s: not %s", answer, tokens);
}
END_TEST

START_TEST(a_chat_is_answered_by_a_message)
{
    ck_assert_uint_eq(fetch(&site, "/v1/chat/completions",
                            "{\"messages\":[{\"role\":\"A\",\"content\":\"\"}],"
                            "\"max_completion_tokens\":2,\"logprobs\":true,\"top_logprobs\":1}",
                            answer, sizeof(answer)),
                      200);
    ck_assert_ptr_nonnull(strstr(answer, "\"role\":\"assistant\",\"content\":\"BC\""));
    ck_assert_ptr_nonnull(strstr(answer, "{\"token\":\"B\",\"logprob\":-0,\"bytes\":[66]"));
}
END_TEST

START_TEST(a_chat_streams_the_role_first)
{
    ck_assert_uint_eq(fetch(&site, "/v1/chat/completions",
                            "{\"messages\":[{\"role\":\"A\",\"content\":\"\"}],\"max_tokens\":2,"
                            "\"stream\":true}",
                            answer, sizeof(answer)),
                      200);
    ck_assert_ptr_nonnull(strstr(answer, "\"delta\":{\"role\":\"assistant\",\"content\":\"BC\"}"));
    ck_assert_ptr_nonnull(strstr(answer, "\"finish_reason\":\"length\""));
}
END_TEST

static const char *const refused[] = {
    "{\"messages\":[{\"role\":\"u\",\"content\":\"x\"}],\"tool_choice\":\"required\"}",
    ("{\"messages\":[{\"role\":\"u\",\"content\":\"x\"}],\"response_format\":{\"type\":\"xml\"}}"),
    ("{\"messages\":[{\"role\":\"u\",\"content\":\"x\"}],\"response_format\":{\"type\":\"json_"
     "schema\"}}"),
    ("{\"messages\":[{\"role\":\"u\",\"content\":\"x\"}],\"response_format\":{\"type\":\"json_"
     "object\"},\"guided_regex\":\"a\"}"),
    ("{\"messages\":[{\"role\":\"u\",\"content\":\"x\"}],\"response_format\":{\"type\":\"json_"
     "object\"},\"stop\":\"a\"}"),
    ("{\"messages\":[{\"role\":\"u\",\"content\":\"x\"}],\"structured_outputs\":{\"grammar\":[]}}"),
    ("{\"messages\":[{\"role\":\"u\",\"content\":\"x\"}],\"structured_outputs\":{\"structural_tag\":"
     "\"a\"}}"),
    ("{\"messages\":[{\"role\":\"u\",\"content\":\"x\"}],\"grammar\":\"root ::= \\\"a\\\"\","
     "\"guided_regex\":\"a\"}"),
    ("{\"messages\":[{\"role\":\"u\",\"content\":\"x\"}],\"guided_choice\":\"a\"}"),
    "{\"messages\":[{\"role\":\"u\",\"content\":\"x\"}],\"modalities\":[\"audio\"]}",
    "{\"messages\":[{\"role\":\"u\",\"content\":\"x\"}],\"reasoning_effort\":\"x\"}",
    "{\"messages\":[{\"role\":\"u\",\"content\":\"x\"}],\"functions\":[]}",
    "{\"messages\":[{\"role\":\"u\",\"content\":3}]}",
    "{\"messages\":[]}",
    "{\"messages\":[3]}",
    "{\"messages\":{}}",
};

START_TEST(what_would_change_the_answer_and_is_not_there_is_refused)
{
    ck_assert_uint_eq(fetch(&site, "/v1/chat/completions", refused[_i], answer, sizeof(answer)),
                      400);
    ck_assert_ptr_null(strstr(answer, "\"param\":null"));
}
END_TEST

START_TEST(a_conversation_counts_while_it_waits_and_is_gone_once_it_is_text)
{
    struct caller first, second;
    char *body = malloc(24000);
    int used =
        sprintf(body, "{\"max_tokens\":1,\"messages\":[{\"role\":\"A\",\"content\":\"\",\"x\":[0");
    for (; used < 20000; used += 2)
        strcpy(body + used, ",0");
    strcpy(body + used, "]}]}");
    world_set(&site.world, "frame-max", "32768");
    world_set(&site.world, "input-max", "65536");
    site.hold = true;
    call(&site, &first, "/v1/chat/completions", body);
    ck_assert_uint_eq(site.world.server.load.input, used + 4);
    call(&site, &second, "/v1/chat/completions", body);
    ck_assert_uint_eq(second.exchange->status, 429);
    caller_free(&second);
    site_work(&site);
    ck_assert_uint_eq(site.world.server.load.input, 0);
    ck_assert_ptr_null(json_child(first.exchange->query.document));
    ck_assert_ptr_null(first.exchange->query.rendered);
    site_turn(&site);
    site_finish(&site);
    ck_assert_ptr_nonnull(strstr(caller_read(&first), "\"content\":\"B\""));
    caller_free(&first);
    free(body);
}
END_TEST

START_TEST(a_text_that_can_never_wait_is_too_large)
{
    static const char twice[] = "{{ messages[0].content }}{{ messages[0].content }}";
    struct caller caller;
    char *body = malloc(24000);
    size_t used = (size_t)sprintf(body, "{\"messages\":[{\"role\":\"A\",\"content\":\"");
    memset(body + used, 'A', 20000);
    strcpy(body + used + 20000, "\"}]}");
    chat_template_free(site.model_text.chat);
    ck_assert_int_eq(chat_template_load(twice, sizeof(twice) - 1, &site.model_text.chat, NULL), 0);
    world_set(&site.world, "frame-max", "32768");
    world_set(&site.world, "input-max", "65536");
    call(&site, &caller, "/v1/chat/completions", body);
    ck_assert_uint_eq(caller.exchange->status, 400);
    ck_assert_ptr_nonnull(strstr(caller_read(&caller), "\"code\":\"too_large\""));
    ck_assert_ptr_nonnull(strstr(caller_read(&caller), "at most 32768 are accepted"));
    ck_assert_uint_eq(site.world.server.load.input, 0);
    caller_free(&caller);
    free(body);
}
END_TEST

static int no_thread(struct background *background, struct task *task)
{
    (void)background;
    (void)task;
    return -ERR_NO_MEMORY;
}

START_TEST(without_a_thread_for_it_a_conversation_is_refused)
{
    site.background.run = no_thread;
    ck_assert_uint_eq(fetch(&site, "/tokenize", renderings[0].body, answer, sizeof(answer)), 500);
    ck_assert_ptr_nonnull(strstr(answer, "\"code\":\"no_memory\""));
    ck_assert_uint_eq(site.world.server.load.input, 0);
    ck_assert_uint_eq(site.world.server.encodings, 0);
}
END_TEST

/* Fifty million steps, and a client that does not wait for them. */
START_TEST(a_rendering_is_stopped_when_its_client_goes)
{
    static const char endless[] = "{% for i in range(99999) %}{% for j in range(99999) %}"
                                  "{% if i == j %}{% endif %}{% endfor %}{% endfor %}";
    struct caller caller;
    chat_template_free(site.model_text.chat);
    ck_assert_int_eq(chat_template_load(endless, sizeof(endless) - 1, &site.model_text.chat, NULL),
                     0);
    site.hold = true;
    call(&site, &caller, "/v1/chat/completions", renderings[0].body);
    ck_assert_uint_eq(site.held_count, 1);
    struct exchange *exchange = caller.exchange;
    caller_free(&caller);
    site.held[0]->work(site.held[0]);
    ck_assert_int_eq(exchange->reading.error.code, ERR_CANCELLED);
    site.held[0]->done(site.held[0], site.world.now_us);
    site.held_count = 0;
    ck_assert_uint_eq(site.world.server.encodings, 0);
    ck_assert_uint_eq(site.world.server.load.input, 0);
}
END_TEST

START_TEST(what_is_ignored_is_not_kept)
{
    struct caller caller;
    call(&site, &caller, "/v1/chat/completions",
         "{\"messages\":[{\"role\":\"A\",\"content\":\"\"}],\"max_tokens\":9,\"stop\":\"D\","
         "\"none\":null,\"metadata\":[[],[],[]]}");
    const json *document = caller.exchange->query.document;
    ck_assert_uint_eq(json_count(document), 1);
    ck_assert_str_eq(json_key(json_child(document)), "stop");
    site_finish(&site);
    ck_assert_ptr_nonnull(strstr(caller_read(&caller), "\"content\":\"BC\""));
    caller_free(&caller);
}
END_TEST

#define CALL_VALUES (QUERY_VALUES_MAX / 2)

/* A call with so many values in its arguments, which are one in the body. */
static size_t put_call(char *at, size_t values)
{
    size_t used = (size_t)sprintf(at, "{\"function\":{\"arguments\":\"{\\\"x\\\":[0");
    for (size_t i = 1; i < values; i++, used += 2)
        memcpy(at + used, ",0", 2);
    return used + (size_t)sprintf(at + used, "]}\"}}");
}

START_TEST(arguments_of_calls_count_as_the_values_that_they_hold)
{
    char *body = malloc(4 * QUERY_VALUES_MAX), *at = body;
    at += sprintf(at, "{\"messages\":[{\"role\":\"a\",\"content\":\"\",\"tool_calls\":[");
    at += put_call(at, CALL_VALUES);
    *at++ = ',';
    at += put_call(at, CALL_VALUES);
    strcpy(at, "]}]}");
    ck_assert_uint_eq(fetch(&site, "/tokenize", body, answer, sizeof(answer)), 400);
    ck_assert_ptr_nonnull(strstr(answer, "more than 1048576 values"));
    ck_assert_ptr_nonnull(strstr(answer, "\"param\":\"messages\""));
    ck_assert_ptr_nonnull(strstr(answer, "\"code\":\"too_large\""));
    free(body);
}
END_TEST

/* ---- whose turn it is --------------------------------------------------------------------------
 */

#define LATE                                                                                       \
    "{\"messages\":[{\"role\":\"A\",\"content\":\"A\"}],\"deadline_ms\" : 50, \"max_tokens\":1}"
#define PATIENT "{\"messages\":[{\"role\":\"A\",\"content\":\"A\"}],\"max_tokens\":1}"

/* _i: it waits for the one thread, or has it. */
START_TEST(a_body_that_is_late_is_answered_at_once)
{
    struct caller first, late;
    site.hold = true;
    site.background.threads = _i == 0 ? 1 : 2;
    call(&site, &first, "/v1/chat/completions", PATIENT);
    call_as(&site, &late, &(struct exchange_peer){.user = 7},
            &(struct exchange_head){.method = "POST",
                                    .path = "/v1/chat/completions",
                                    .content_type = "application/json"},
            LATE);
    ck_assert_uint_eq(site.held_count, _i == 0 ? 1 : 2);
    ck_assert_uint_eq(site.world.server.load.sequences, 2);
    world_pass(&site.world, 49000);
    ck_assert(!exchange_ready(late.exchange));
    world_pass(&site.world, 1000);
    ck_assert_uint_eq(late.exchange->status, 504);
    ck_assert_ptr_nonnull(strstr(caller_read(&late), "\"code\":\"deadline\""));
    ck_assert_uint_eq(site.world.server.encodings, _i == 0 ? 1 : 2);
    if (_i == 1)
        ck_assert_int_eq(halt_code(&site.held[1]->halt), ERR_DEADLINE);
    site.hold = false;
    site_turn(&site);
    site_finish(&site);
    ck_assert_ptr_nonnull(strstr(caller_read(&first), "\"content\":\"B\""));
    ck_assert_uint_eq(site.world.server.counts.requests_total, 1);
    ck_assert_uint_eq(site.world.server.counts.texts_deadline_total, 1);
    ck_assert_uint_eq(site.world.server.counts.refused_final_total, 0);
    caller_free(&late);
    caller_free(&first);
}
END_TEST

START_TEST(bodies_that_find_no_place_in_the_queue_are_refused_unread)
{
    struct caller callers[8];
    world_set(&site.world, "queue-sequences", "10");
    site.hold = true;
    site.background.threads = 1;
    for (uint32_t i = 0; i < 8; i++)
        call(&site, &callers[i], "/v1/chat/completions", PATIENT);
    for (uint32_t i = 5; i < 8; i++) {
        ck_assert_uint_eq(callers[i].exchange->status, 429);
        ck_assert_uint_gt(callers[i].exchange->retry_after_ms, 0);
        caller_free(&callers[i]);
    }
    ck_assert_uint_eq(site.world.server.load.input, 0); /* small bodies are free */
    ck_assert_uint_eq(site.world.server.load.sequences, 5);
    /* Who goes takes his place along, at once. */
    ck_assert_uint_eq(site.http.exchanges, 5);
    caller_free(&callers[4]);
    ck_assert_uint_eq(site.http.exchanges, 4);
    ck_assert_uint_eq(site.world.server.load.sequences, 4);
    caller_free(&callers[0]); /* a thread has it */
    ck_assert_uint_eq(site.http.exchanges, 4);
    ck_assert_int_ne(halt_code(&site.held[0]->halt), 0);
    site.hold = false;
    while (site.world.server.encodings > 0)
        site_turn(&site);
    site_finish(&site);
    for (uint32_t i = 1; i < 4; i++) {
        ck_assert_ptr_nonnull(strstr(caller_read(&callers[i]), "\"content\":\"B\""));
        caller_free(&callers[i]);
    }
    ck_assert_uint_eq(site.world.server.load.sequences, 0);
}
END_TEST

START_TEST(bodies_are_refused_unread_while_nothing_new_is_taken)
{
    struct caller waiting, caller;
    site.hold = true;
    call(&site, &waiting, "/v1/chat/completions", PATIENT);
    server_drain(&site.world.server);
    site_turn(&site);
    ck_assert_uint_eq(waiting.exchange->status, 503);
    call(&site, &caller, "/v1/chat/completions", PATIENT);
    ck_assert_uint_eq(caller.exchange->status, 503);
    ck_assert_uint_eq(site.held_count, 1);
    ck_assert_int_ne(halt_code(&site.held[0]->halt), 0);
    caller_free(&caller);
    site.hold = false;
    site_turn(&site);
    caller_free(&waiting);
}
END_TEST

static const struct {
    const char *body;
    uint64_t ms;
} deadlines[] = {
    {"{\"deadline_ms\":25}", 25},
    {" { \"a\" : \"\\\"\", \"deadline_ms\" :\t 1234 , \"b\":7}", 1234},
    {"{\"a\":{\"deadline_ms\":5},\"b\":[{\"deadline_ms\":6},\"deadline_ms\",7]}", 0},
    {"{\"a\":\"deadline_ms\",\"b\":8}", 0},
    {"{\"a\":[1,2],\"deadline_ms\":9,\"c\":[3]}", 9},
    {"{\"deadline_msx\":1,\"xdeadline_ms\":2,\"deadline_m\":3}", 0},
    {"{\"a\":\"x\\\\\",\"deadline_ms\":10}", 10},
    {"{\"deadline_ms\":null}", 0},
    {"\"deadline_ms\":5", 0},
    {"]]]}}}{\"deadline_ms\":5", 5},
    {"{\"deadline_ms\":99999999999999999999999999}", 0},
    {"{\"deadline_ms\":5e3}", 0},
    {"{\"deadline_ms\":-5}", 0},
};

/* Whole, and byte by byte. */
START_TEST(a_bodys_deadline_is_found_as_its_bytes_come)
{
    const char *body = deadlines[_i].body;
    struct body_deadline whole = {0}, bytes = {0};
    hint_read(&whole, body, strlen(body));
    for (size_t i = 0; i < strlen(body); i++)
        hint_read(&bytes, body + i, 1);
    ck_assert_uint_eq(whole.ms, deadlines[_i].ms);
    ck_assert_uint_eq(bytes.ms, deadlines[_i].ms);
}
END_TEST

Suite *chat_ask_suite(void)
{
    Suite *suite = suite_create("chat_ask");
    TCase *tests = tcase_create("chat_ask");
    tcase_set_timeout(tests, 60); /* two million values, under ThreadSanitizer */
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_add_test(tests, a_template_of_a_file_stands_instead_of_the_models);
    tcase_add_loop_test(tests, a_conversation_becomes_the_text_of_the_template, 0,
                        sizeof(renderings) / sizeof(renderings[0]));
    tcase_add_test(tests, a_chat_is_answered_by_a_message);
    tcase_add_test(tests, a_chat_streams_the_role_first);
    tcase_add_loop_test(tests, what_would_change_the_answer_and_is_not_there_is_refused, 0,
                        sizeof(refused) / sizeof(refused[0]));
    tcase_add_test(tests, a_conversation_counts_while_it_waits_and_is_gone_once_it_is_text);
    tcase_add_test(tests, a_text_that_can_never_wait_is_too_large);
    tcase_add_test(tests, without_a_thread_for_it_a_conversation_is_refused);
    tcase_add_test(tests, a_rendering_is_stopped_when_its_client_goes);
    tcase_add_test(tests, what_is_ignored_is_not_kept);
    tcase_add_test(tests, arguments_of_calls_count_as_the_values_that_they_hold);
    tcase_add_loop_test(tests, a_body_that_is_late_is_answered_at_once, 0, 2);
    tcase_add_test(tests, bodies_that_find_no_place_in_the_queue_are_refused_unread);
    tcase_add_test(tests, bodies_are_refused_unread_while_nothing_new_is_taken);
    tcase_add_loop_test(tests, a_bodys_deadline_is_found_as_its_bytes_come, 0,
                        sizeof(deadlines) / sizeof(deadlines[0]));
    suite_add_tcase(suite, tests);
    return suite;
}
