/* APIs whose answers are lists of items: /v1/responses and Anthropic's /v1/messages. */
#include <stdio.h>
#include <string.h>

#include "daemon/text/template/chat.h"
#include "tests/http/caller.h"
#include "tests/http/http_suites.h"

static struct site site;
static char answer[1 << 16];

static void set_up(void)
{
    static const char source[] =
        "{# <tool_call> <think></think> #}{% for m in messages %}{{ m.role[0] }}{{ m.content }}"
        "{% for c in m.tool_calls or [] %}({{ c.function.name }}{{ c.function.arguments.x }}){% "
        "endfor %}{% if m.reasoning_content %}[{{ m.reasoning_content }}]{% endif %}{% endfor %}"
        "{% if tools %}{{ tools[0].function.name }}{% endif %}"
        "{% if enable_thinking %}!{% endif %}>";
    struct error error;
    site_make(&site);
    ck_assert_msg(chat_template_load(source, sizeof(source) - 1, &site.model_text.chat, &error) ==
                      0,
                  "%s", error.text);
    answer_form_find(&site.model_text.answer, source, site.model_text.tokenizer);
}

static void tear_down(void)
{
    site.world.replica.script = NULL;
    site_free(&site);
}

#define has(part) ck_assert_msg(strstr(answer, part) != NULL, "%s not in %.2000s", part, answer)

static unsigned ask(const char *path, const char *body, const char *script)
{
    site.world.replica.script = script;
    return fetch(&site, path, body, answer, sizeof(answer));
}

#define SAID                                                                                       \
    "<think>hm</think>\n\nLook.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": "           \
    "7}}\n</tool_call>"
#define SCHEMA "{\"type\":\"object\",\"properties\":{\"x\":{\"type\":\"integer\"}}}"
#define R_TOOLS "\"tools\":[{\"type\":\"function\",\"name\":\"f\",\"parameters\":" SCHEMA "}]"
#define M_TOOLS "\"tools\":[{\"name\":\"f\",\"input_schema\":" SCHEMA "}]"
#define M_ASK "\"max_tokens\":900,\"messages\":[{\"role\":\"user\",\"content\":\"q\"}]"

START_TEST(a_response_is_a_list_of_items)
{
    ck_assert_uint_eq(
        ask("/v1/responses",
            "{\"input\":\"q\",\"store\":false,\"metadata\":{\"k\":\"v\"}," R_TOOLS "}", SAID),
        200);
    has("\"object\":\"response\"");
    has("\"status\":\"completed\",\"background\":false,\"error\":null,\"incomplete_details\":null");
    has("\"type\":\"reasoning\",\"status\":\"completed\",\"summary\":[],\"content\":[{\"type\":"
        "\"reasoning_text\",\"text\":\"hm\"}]");
    has("\"role\":\"assistant\",\"content\":[{\"type\":\"output_text\",\"text\":\"Look.\"");
    has("\"name\":\"f\",\"arguments\":\"{\\\"x\\\": 7}\"");
    has("\"store\":false");
    has("\"metadata\":{\"k\":\"v\"}");
    has("\"tools\":[{\"type\":\"function\",\"name\":\"f\"");
    has("\"input_tokens\":4");
    ck_assert_uint_eq(ask("/v1/responses", "{\"input\":\"q\",\"max_output_tokens\":3}", "abcdef"),
                      200);
    has("\"status\":\"incomplete\"");
    has("\"incomplete_details\":{\"reason\":\"max_output_tokens\"}");
    has("\"text\":\"abc\"");
}
END_TEST

/* Its name is cut out of a header, which goes on behind it, as far as there is memory for it. */
START_TEST(a_call_by_a_channel_is_an_item)
{
    answer_form_find(&site.model_text.answer, "<|channel|><|message|>", site.model_text.tokenizer);
    for (int spaces = 0; spaces < 512; spaces++) {
        char script[640];
        snprintf(script, sizeof script, "<|channel|>commentary to=functions.f%*sjson<|message|>{}",
                 spaces + 1, "");
        ck_assert_uint_eq(ask("/v1/responses", "{\"input\":\"q\"," R_TOOLS "}", script), 200);
        has("\"name\":\"f\",\"arguments\":\"{}\"");
    }
}
END_TEST

/* The types of a stream's events, each in a row once. */
static const char *types(void)
{
    static char list[2048];
    char last[64] = "";
    list[0] = '\0';
    for (const char *at = answer; (at = strstr(at, "event: ")); at++) {
        char type[64];
        ck_assert_int_eq(sscanf(at, "event: %63s", type), 1);
        if (strcmp(type, last) != 0)
            snprintf(list + strlen(list), sizeof(list) - strlen(list), "%s%s", list[0] ? " " : "",
                     type);
        strcpy(last, type);
    }
    return list;
}

START_TEST(a_response_streams_events_of_items)
{
    ck_assert_uint_eq(ask("/v1/responses", "{\"input\":\"q\",\"stream\":true," R_TOOLS "}", SAID),
                      200);
    ck_assert_str_eq(
        types(),
        "response.created response.in_progress "
        "response.output_item.added response.content_part.added response.reasoning_text.delta "
        "response.reasoning_text.done response.content_part.done response.output_item.done "
        "response.output_item.added response.content_part.added response.output_text.delta "
        "response.output_text.done response.content_part.done response.output_item.done "
        "response.output_item.added response.function_call_arguments.delta "
        "response.function_call_arguments.done response.output_item.done response.completed");
    has("\"sequence_number\":0");
    has("\"type\":\"response.output_text.delta\"");
    has("\"text\":\"Look.\"");
    has("\"arguments\":\"{\\\"x\\\": 7}\",\"name\":\"f\"");
}
END_TEST

START_TEST(a_message_is_a_list_of_blocks)
{
    ck_assert_uint_eq(ask("/v1/messages", "{" M_ASK "," M_TOOLS "}", SAID), 200);
    has("\"type\":\"message\",\"role\":\"assistant\"");
    has("\"content\":[{\"type\":\"thinking\",\"thinking\":\"hm\",\"signature\":\"\"},{\"type\":"
        "\"text\",\"text\":\"Look.\"},{\"type\":\"tool_use\",\"id\":\"toolu_");
    has("\"name\":\"f\",\"input\":{\"x\":7}}]");
    has("\"stop_reason\":\"tool_use\",\"stop_sequence\":null");
    ck_assert_uint_eq(
        ask("/v1/messages", "{" M_ASK ",\"stop_sequences\":[\"xx\",\"cd\"]}", "abcdef"), 200);
    has("\"stop_reason\":\"stop_sequence\",\"stop_sequence\":\"cd\"");
    has("\"text\":\"ab\"");
    ck_assert_uint_eq(
        ask("/v1/messages",
            "{\"max_tokens\":60,\"messages\":[{\"role\":\"user\",\"content\":\"q\"}]," M_TOOLS "}",
            "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 7777777777777777777"
            "7777777777777}}"),
        200);
    has("\"stop_reason\":\"max_tokens\"");
    has("\"input\":\"{\\\"x\\\": 77777");
}
END_TEST

START_TEST(a_message_streams_events_of_blocks)
{
    ck_assert_uint_eq(ask("/v1/messages", "{" M_ASK ",\"stream\":true," M_TOOLS "}", SAID), 200);
    ck_assert_str_eq(types(),
                     "message_start content_block_start content_block_delta content_block_stop "
                     "content_block_start content_block_delta content_block_stop "
                     "content_block_start content_block_delta content_block_stop "
                     "message_delta message_stop");
    has("\"type\":\"input_json_delta\",\"partial_json\":");
    has("\"index\":2,\"content_block\":{\"type\":\"tool_use\"");
    has("\"stop_reason\":\"tool_use\"");
}
END_TEST

/* What a conversation becomes, told by its tokens, which are bytes. */
static const struct {
    const char *path, *body, *text;
} conversations[] = {
    {"/v1/messages/count_tokens",
     "{\"system\":[{\"type\":\"text\",\"text\":\"S\"}],\"messages\":[{\"role\":\"user\","
     "\"content\":["
     "{\"type\":\"text\",\"text\":\"q\",\"cache_control\":{\"type\":\"ephemeral\"}}]},{\"role\":"
     "\"assistant\",\"content\":[{\"type\":\"thinking\",\"thinking\":\"hm\",\"signature\":\"\"},"
     "{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"tool_use\",\"id\":\"i\",\"name\":\"f\","
     "\"input\":{\"x\":5}}]},{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\","
     "\"tool_use_id\":\"i\",\"content\":\"r\"},{\"type\":\"text\",\"text\":\"z\"}]}]," M_TOOLS
     ",\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":9}}",
     "sSuqaa(f5)[hm]truzf!>"},
    {"/v1/messages/count_tokens", "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"}]}", "uq>"},
};

START_TEST(conversations_reach_the_template)
{
    char wanted[64];
    ck_assert_uint_eq(ask(conversations[_i].path, conversations[_i].body, ""), 200);
    snprintf(wanted, sizeof(wanted), "{\"input_tokens\":%zu}", strlen(conversations[_i].text));
    has(wanted);
}
END_TEST

START_TEST(items_reach_the_template)
{
    ck_assert_uint_eq(
        ask("/v1/responses",
            "{\"instructions\":\"S\",\"input\":[{\"role\":\"developer\",\"content\":\"D\"},{"
            "\"type\":"
            "\"message\",\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":\"q\"}]},"
            "{\"type\":\"reasoning\",\"summary\":[],\"content\":[{\"type\":\"reasoning_text\","
            "\"text\":\"hm\"}]},{\"type\":\"function_call\",\"call_id\":\"i\",\"name\":\"f\","
            "\"arguments\":\"{\\\"x\\\":5}\"},{\"type\":\"function_call_output\",\"call_id\":\"i\","
            "\"output\":\"r\"}],\"max_output_tokens\":4}",
            "abc"),
        200);
    /* sSsDuqaNone(f5)[hm]tr> */
    has("\"input_tokens\":22,\"input_tokens_details\":{\"cached_tokens\":0,"
        "\"cache_write_tokens\":0}");
    ck_assert_ptr_null(strstr(answer, "\"user\"")); /* told where it was given */
}
END_TEST

static const struct {
    const char *path, *body;
    unsigned status;
    const char *says;
} refusals[] = {
    {"/v1/responses", "{\"input\":\"q\",\"previous_response_id\":\"resp_1\"}", 400,
     "previous_response_id is not supported"},
    {"/v1/responses", "{\"input\":\"q\",\"background\":true}", 400, "background must be false"},
    {"/v1/responses", "{\"input\":\"q\",\"store\":true}", 400, "store must be false"},
    {"/v1/responses", "{\"input\":[{\"type\":\"item_reference\",\"id\":\"x\"}]}", 400,
     "an item of type item_reference is not supported"},
    {"/v1/responses", "{\"input\":\"q\",\"tools\":[{\"type\":\"web_search\"}]}", 400,
     "one of type web_search"},
    {"/v1/responses", "{\"input\":[]}", 400, "the conversation is empty"},
    {"/v1/messages", "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"}]}", 400,
     "{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":\"max_tokens "
     "is "
     "missing\"}}"},
    {"/v1/messages",
     "{\"max_tokens\":3,\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image\"}]}]}",
     400, "a block of type image is not supported"},
    {"/v1/messages", "{\"max_tokens\":3,\"messages\":[{\"role\":\"system\",\"content\":\"x\"}]}",
     400, "a role must be"},
    {"/v1/messages", "{\"model\":\"other\"," M_ASK "}", 404, "\"type\":\"not_found_error\""},
    {"/v1/messages", "{" M_ASK ",\"container\":\"x\"}", 400, "container is not supported"},
    {"/v1/messages", "{" M_ASK ",\"tools\":[{\"name\":\"f\",\"defer_loading\":true}]}", 400,
     "tools: defer_loading is not known"},
    {"/v1/responses",
     "{\"input\":\"q\",\"tools\":[{\"type\":\"function\",\"name\":\"f\",\"defer_loading\":true}]}",
     400, "tools: function.defer_loading is not known"},
};

START_TEST(what_is_not_done_is_refused_by_name)
{
    ck_assert_uint_eq(ask(refusals[_i].path, refusals[_i].body, ""), refusals[_i].status);
    has(refusals[_i].says);
}
END_TEST

START_TEST(a_stream_that_breaks_says_so_in_its_apis_form)
{
    static const struct error failure = {.code = ERR_DEVICE, .text = "the device failed"};
    static const struct {
        const char *path, *body, *says;
    } cases[] = {
        {"/v1/responses", "{\"input\":\"q\",\"stream\":true}",
         "event: error\ndata: {\"type\":\"error\",\"sequence_number\":"},
        {"/v1/messages", "{" M_ASK ",\"stream\":true}",
         "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\""}};
    struct caller caller;
    site.world.replica.script = NULL;
    call(&site, &caller, cases[_i].path, cases[_i].body);
    site_turn(&site);
    world_step(&site.world, 1);
    ck_assert_uint_eq(site.world.replica.count, 1);
    world_fail(&site.world, &failure);
    site_turn(&site);
    snprintf(answer, sizeof(answer), "%s", caller_read(&caller));
    has(cases[_i].says);
    caller_free(&caller);
}
END_TEST

Suite *lists_suite(void)
{
    Suite *suite = suite_create("lists");
    TCase *tests = tcase_create("lists");
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_add_test(tests, a_response_is_a_list_of_items);
    tcase_add_test(tests, a_call_by_a_channel_is_an_item);
    tcase_add_test(tests, a_response_streams_events_of_items);
    tcase_add_test(tests, a_message_is_a_list_of_blocks);
    tcase_add_test(tests, a_message_streams_events_of_blocks);
    tcase_add_loop_test(tests, conversations_reach_the_template, 0,
                        sizeof(conversations) / sizeof(conversations[0]));
    tcase_add_test(tests, items_reach_the_template);
    tcase_add_loop_test(tests, what_is_not_done_is_refused_by_name, 0,
                        sizeof(refusals) / sizeof(refusals[0]));
    tcase_add_loop_test(tests, a_stream_that_breaks_says_so_in_its_apis_form, 0, 2);
    suite_add_tcase(suite, tests);
    return suite;
}
