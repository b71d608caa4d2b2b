/* Calls of tools and what a model thought, in answers of the chat API; and by what they are
 * constrained. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/constrain/constraint.h"
#include "daemon/request/constraint_cache.h"
#include "daemon/request/request_builder.h"
#include "daemon/text/template/chat.h"
#include "daemon/text/tokenizer.h"
#include "tests/http/caller.h"
#include "tests/http/http_suites.h"

#define FUNCTION(name, schema, rest)                                                               \
    "{\"type\":\"function\",\"function\":{\"name\":\"" name "\",\"parameters\":" schema rest "}}"
#define X                                                                                          \
    "{\"type\":\"object\",\"properties\":{\"x\":{\"type\":\"integer\"}},\"required\":[\"x\"],"     \
    "\"additionalProperties\":false}"
#define TOOLS "\"tools\":[" FUNCTION("f", X, "") "," FUNCTION("g", "{}", "") "]"
#define STRICT "\"tools\":[" FUNCTION("f", X, ",\"strict\":true") "," FUNCTION("g", "{}", "") "]"
#define ASK "\"messages\":[{\"role\":\"user\",\"content\":\"q\"}],\"max_tokens\":900"

static struct site site;
static char answer[1 << 16];

static const char hermes[] =
    "{# <tool_call> #}{% for m in messages %}{{ m.role[0] }}{{ m.content }}"
    "{% for c in m.tool_calls or [] %}({{ c.function.name }}{{ c.function.arguments.x }}){% endfor "
    "%}{% if m.reasoning_content %}[{{ m.reasoning_content }}]{% endif %}{% endfor %}>";

static void set_up(void)
{
    site_make(&site);
    site_template(&site, hermes);
}

static void tear_down(void)
{
    site.world.replica.script = NULL;
    site_free(&site);
}

#define has(part) ck_assert_msg(strstr(answer, part) != NULL, "%s not in %s", part, answer)
#define has_not(part) ck_assert_msg(strstr(answer, part) == NULL, "%s in %s", part, answer)

static unsigned ask(const char *body, const char *script)
{
    site.world.replica.script = script;
    return fetch(&site, "/v1/chat/completions", body, answer, sizeof(answer));
}

#define CALL_F "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 7}}\n</tool_call>"
#define CALL_G "<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>"

START_TEST(calls_are_told_apart_from_content)
{
    ck_assert_uint_eq(ask("{" ASK "," TOOLS "}", "Look.\n" CALL_F "\n" CALL_G), 200);
    has("\"content\":\"Look.\"");
    has("\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"x\\\": 7}\"}}");
    has("\"function\":{\"name\":\"g\",\"arguments\":\"{}\"}}");
    has("\"finish_reason\":\"tool_calls\"");
    ck_assert_uint_eq(ask("{" ASK "," TOOLS "}", CALL_F), 200);
    has("\"content\":null");
    ck_assert_uint_eq(ask("{" ASK "," TOOLS "}", "no"), 200);
    has("\"content\":\"no\"");
    has_not("tool_calls");
    has("\"finish_reason\":\"stop\"");
    /* With none it is a text like any other. */
    ck_assert_uint_eq(ask("{" ASK "," TOOLS ",\"tool_choice\":\"none\"}", CALL_F), 200);
    has("\"content\":\"<tool_call>");
}
END_TEST

START_TEST(a_call_that_is_cut_stays_unfinished)
{
    ck_assert_uint_eq(
        ask("{\"messages\":[{\"role\":\"user\",\"content\":\"q\"}],\"max_tokens\":49," TOOLS "}",
            "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 7777777777777777}}"),
        200);
    has("\"arguments\":\"{\\\"x\\\": 7777\"");
    has("\"finish_reason\":\"length\"");
}
END_TEST

/* All values of a member in the events of a stream, as one. */
static const char *joined(const char *member, const char *ends)
{
    static char text[512];
    text[0] = '\0';
    for (const char *at = answer; (at = strstr(at, member)); at++) {
        const char *from = at + strlen(member);
        strncat(text, from, (size_t)(strstr(from, ends) - from));
    }
    return text;
}

static unsigned count_of(const char *part)
{
    unsigned count = 0;
    for (const char *at = answer; (at = strstr(at, part)); at++)
        count++;
    return count;
}

/* Pieces as OpenAI's: index, id and name once, then arguments that are one text together. */
START_TEST(streams_of_calls_are_pieces_of_one_text)
{
    ck_assert_uint_eq(ask("{" ASK "," TOOLS ",\"stream\":true}", "Hi <tool\n" CALL_F), 200);
    ck_assert_str_eq(joined("\"arguments\":\"", "\"}}]"), "{\\\"x\\\": 7}");
    ck_assert_str_eq(joined("\"content\":\"", "\"}"), "Hi <tool");
    ck_assert_uint_eq(count_of("\"name\":\"f\""), 1);
    ck_assert_uint_eq(count_of("\"id\":\"call_"), 1);
    ck_assert_uint_eq(count_of("\"role\":"), 1);
    ck_assert_uint_eq(count_of("\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"call_"), 1);
    ck_assert_uint_eq(count_of("\"delta\":{},\"logprobs\":null,\"finish_reason\":\"tool_calls\""),
                      1);
    ck_assert_uint_eq(count_of("\"delta\":{}"), 1);
}
END_TEST

START_TEST(thought_is_apart_from_content)
{
    site_template(&site, "{# <think></think> #}{% for m in messages %}{{ m.content }}{% endfor %}");
    ck_assert_uint_eq(ask("{" ASK "}", "<think>\nhm\n</think>\n\nyes"), 200);
    has("\"content\":\"yes\",\"refusal\":null,\"reasoning\":\"hm\"");
    has_not("reasoning_content");
    world_set(&site.world, "reasoning-content", "yes");
    ck_assert_uint_eq(ask("{" ASK ",\"stream\":true}", "<think>\nhm\n</think>\n\nyes"), 200);
    ck_assert_str_eq(joined("\"reasoning_content\":\"", "\"}"), "hm");
    ck_assert_str_eq(joined("\"reasoning\":\"", "\","), "hm");
    ck_assert_str_eq(joined("\"content\":\"", "\"}"), "yes");
    site_template(&site, "{# </think> #}{% for m in messages %}{{ m.content }}{% endfor %}<think>\n");
    ck_assert_uint_eq(ask("{" ASK "}", "hm</think>yes"), 200);
    has("\"content\":\"yes\",\"refusal\":null,\"reasoning\":\"hm\"");
}
END_TEST

/* Bytes are tokens by fallback, whose runs are held back; token 1 is special. */
static void set_tokenizer(const char *special)
{
    static char text[1 << 14];
    struct json_writer writer;
    struct error error;
    json_writer_init(&writer, text, sizeof(text));
    json_open(&writer, NULL, '{');
    json_open(&writer, "added_tokens", '[');
    json_open(&writer, NULL, '{');
    json_put_uint(&writer, "id", 1);
    json_put_text(&writer, "content", special);
    json_put_bool(&writer, "special", true);
    json_close(&writer, '}');
    json_close(&writer, ']');
    json_open(&writer, "decoder", '{');
    json_put_text(&writer, "type", "Sequence");
    json_open(&writer, "decoders", '[');
    for (int i = 0; i < 2; i++) {
        json_open(&writer, NULL, '{');
        json_put_text(&writer, "type", i ? "Fuse" : "ByteFallback");
        json_close(&writer, '}');
    }
    json_close(&writer, ']');
    json_close(&writer, '}');
    json_open(&writer, "model", '{');
    json_put_text(&writer, "type", "BPE");
    json_put_bool(&writer, "byte_fallback", true);
    json_open(&writer, "vocab", '{');
    for (unsigned i = 0; i < 256; i++) {
        char key[8];
        snprintf(key, sizeof(key), "<0x%02X>", i);
        json_put_uint(&writer, key, i == 1 ? 256 : i);
    }
    json_close(&writer, '}');
    json_open(&writer, "merges", '[');
    json_close(&writer, ']');
    json_close(&writer, '}');
    json_close(&writer, '}');
    tokenizer_free(site.model_text.tokenizer);
    ck_assert_msg(tokenizer_load(text, writer.used, &site.model_text.tokenizer, &error) == 0, "%s",
                  error.text);
}

START_TEST(channels_are_thought_content_and_calls)
{
    static const char harmony[] =
        "{# <|channel|><|message|> #}{% for m in messages %}{{ m.role[0] }}{{ m.thinking or '-' }}"
        "{% endfor %}<|start|>assistant";
    static const char history[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\","
        "\"content\":\"a\",\"reasoning\":\"hm\"}],\"max_tokens\":9}";
    set_tokenizer("[OTHER]"); /* whose marks are texts */
    site_template(&site, harmony);
    ck_assert_uint_eq(ask("{" ASK "}", "<|channel|>analysis<|message|>hm<|end|><|start|>assistant"
                                       "<|channel|>final<|message|>yes"),
                      200);
    has("\"content\":\"yes\",\"refusal\":null,\"reasoning\":\"hm\"");
    ck_assert_uint_eq(ask("{" ASK "," TOOLS "}",
                          "<|channel|>analysis<|message|>hm<|end|><|start|>assistant"
                          "<|channel|>commentary to=functions.f json<|message|>{\"x\": 7}"),
                      200);
    has("\"reasoning\":\"hm\"");
    has("\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"x\\\": 7}\"}}");
    has("\"finish_reason\":\"tool_calls\"");
    ck_assert_uint_eq(ask(history, "yes"), 200);
    has("\"prompt_tokens\":23"); /* q's "u-", "ahm", and what begins an answer */
}
END_TEST

START_TEST(history_reaches_the_template)
{
    static const struct {
        const char *messages, *text;
    } cases[] = {
        {"[{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"c\",\"type\":"
         "\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"x\\\":5}\"}}]},{\"role\":"
         "\"tool\",\"tool_call_id\":\"c\",\"content\":\"r\"}]",
         "aNone(f5)tr>"},
        {"[{\"role\":\"assistant\",\"content\":\"c\",\"reasoning\":\"hm\"}]", "ac[hm]>"},
        {"[{\"role\":\"assistant\",\"content\":\"c\",\"reasoning_content\":\"hm\"}]", "ac[hm]>"}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char body[512], wanted[256];
        size_t used = 0;
        snprintf(body, sizeof(body), "{\"messages\":%s}", cases[i].messages);
        for (const char *at = cases[i].text; *at; at++)
            used += (size_t)snprintf(wanted + used, sizeof(wanted) - used, "%s%d", used ? "," : "[",
                                     *at);
        ck_assert_uint_eq(fetch(&site, "/tokenize", body, answer, sizeof(answer)), 200);
        has(wanted);
    }
}
END_TEST

/* ---- special tokens ----------------------------------------------------------------------------
 */

/* Its text comes behind what was held back before it; spelled out it is content. */
START_TEST(a_mark_may_be_a_special_token)
{
    set_tokenizer("[TOOL_CALLS]");
    site_template(&site, "{# [TOOL_CALLS] #}{{ messages[0].content }}");
    ck_assert_uint_eq(site.model_text.answer.shown_count, 1);
    ck_assert_uint_eq(ask("{" ASK "," TOOLS "}",
                          "h\xc3\xa9\x01[{\"name\": \"g\", \"arguments\": {\"k\": \"\xc3\xa9\"}}]"),
                      200);
    has("\"content\":\"h\xc3\xa9\"");
    has("\"function\":{\"name\":\"g\",\"arguments\":\"{\\\"k\\\": \\\"\xc3\xa9\\\"}\"}}");
    /* Some templates take no other ids than nine letters and digits. */
    const char *id = strstr(answer, "\"tool_calls\":[{\"id\":\"");
    ck_assert_ptr_nonnull(id);
    id += strlen("\"tool_calls\":[{\"id\":\"");
    ck_assert_uint_eq(strspn(id, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"),
                      9);
    ck_assert_uint_eq(
        ask("{" ASK "," TOOLS "}", "[TOOL_CALLS][{\"name\": \"g\", \"arguments\": {}}]"), 200);
    has("\"content\":\"[TOOL_CALLS][{");
    has_not("tool_calls\"");
}
END_TEST

/* ---- what is refused ---------------------------------------------------------------------------
 */

static const struct {
    const char *rest, *says;
} refusals[] = {
    {"\"tools\":[{\"type\":\"web_search\"}]", "only those of type"},
    {"\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"a b\"}}]", "a name must have"},
    {"\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"a\",\"extra\":1}}]",
     "function.extra is not known"},
    {"\"tools\":[" FUNCTION("f", "7", "") "]", "f: its parameters must be a schema"},
    {"\"tools\":[" FUNCTION("f", "{}", ",\"strict\":1") "]", "strict must be"},
    {"\"tools\":[" FUNCTION("f", "{}", "") "," FUNCTION("f", "{}", "") "]", "two of the name f"},
    {"\"tools\":[" FUNCTION("f", "{\"type\":\"string\"}", ",\"strict\":true") "]", "are no object"},
    {"\"tools\":[" FUNCTION("f", "{\"properties\":{\"a\":{\"format\":\"iri\"}}}",
                            ",\"strict\":true") "]",
     "f: schema: #/properties/a: format"},
    {"\"tool_choice\":\"required\"", "there are no tools"},
    {TOOLS ",\"tool_choice\":\"some\"", "tool_choice: must be"},
    {TOOLS ",\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"h\"}}",
     "no tool of the name h"},
    {TOOLS ",\"parallel_tool_calls\":1", "must be true or false"},
    {STRICT ",\"stop\":\"a\"", "stop"},
    {"\"thinking_token_budget\":5", "marks no thought"},
};

START_TEST(what_cannot_be_kept_is_refused_by_name)
{
    char body[2048];
    snprintf(body, sizeof(body), "{" ASK ",%s}", refusals[_i].rest);
    ck_assert_msg(ask(body, "x") == 400, "%s: %s", body, answer);
    has(refusals[_i].says);
}
END_TEST

START_TEST(tools_are_refused_where_the_template_writes_no_calls)
{
    site_template(&site, "{{ messages[0].content }}");
    ck_assert_uint_eq(ask("{" ASK "," TOOLS "}", "x"), 400);
    has("writes calls in no form that is known");
    has("\"param\":\"tools\"");
    ck_assert_uint_eq(ask("{" ASK "," TOOLS ",\"tool_choice\":\"none\"}", "x"), 200);
}
END_TEST

/* ---- constraints -------------------------------------------------------------------------------
 */

#define THINKS "</think> #}{% for m in messages %}{{ m.content }}{% endfor %}"
#define T_HERMES "{# <tool_call> #}x"
#define T_LLAMA "{# <|start_header_id|> \"parameters\": #}x"
#define T_MISTRAL "{# [TOOL_CALLS] #}x"
#define T_NAMED "{# [TOOL_CALLS][ARGS] #}x"
#define T_HARMONY "{# <|channel|><|message|> #}x"
#define THOUGHT(text) "<|channel|>analysis<|message|>" text "<|end|><|start|>assistant"
#define FINAL "<|channel|>final<|message|>"
#define TO_F "<|channel|>commentary to=functions.f <|constrain|>json<|message|>"
#define OBJECT "\"response_format\":{\"type\":\"json_object\"}"
#define LLAMA_F "{\"name\": \"f\", \"parameters\": {\"x\": 1}}"
#define LLAMA_G "{\"name\": \"g\", \"parameters\": {}}"

static const struct {
    const char *source, *rest;
    const char *good[4], *bad[5];
} structures[] = {
    {T_HERMES,
     STRICT,
     {"any text", "", "so:\n" CALL_F,
      CALL_F "\n<tool_call>\n{\"name\": \"g\", \"arguments\": {\"any\":1}}\n</tool_call>"},
     {"<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>",
      "<tool_call>\n{\"name\": \"h", CALL_F "text"}},
    {T_HERMES, TOOLS ",\"tool_choice\":\"required\"", {CALL_F, CALL_F "\n" CALL_G}, {"text", ""}},
    {T_HERMES,
     TOOLS ",\"tool_choice\":\"required\",\"parallel_tool_calls\":false",
     {CALL_F, CALL_G},
     {CALL_F "\n" CALL_G}},
    {T_HERMES, TOOLS ",\"parallel_tool_calls\":false", {"text", "a" CALL_G}, {CALL_F "\n" CALL_G}},
    {T_HERMES,
     TOOLS ",\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"f\"}}",
     {CALL_F},
     {CALL_G, CALL_F "\n" CALL_F}},
    {T_HERMES, TOOLS "," OBJECT, {"{\"a\": 1}", CALL_F}, {"text", "a" CALL_F}},
    {T_LLAMA,
     STRICT,
     {"text", LLAMA_F, LLAMA_F "; " LLAMA_G},
     {"{\"a\":1}", LLAMA_F "; text", "{\"name\": \"f\", \"parameters\": {}}"}},
    {T_MISTRAL,
     TOOLS ",\"tool_choice\":\"required\"",
     {"[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"x\": 1}}, {\"name\": \"g\", \"arguments\": "
      "{}}]"},
     {"[TOOL_CALLS][]", "x"}},
    {T_NAMED,
     STRICT,
     {"a[TOOL_CALLS]f[ARGS]{\"x\": 1}[TOOL_CALLS]g[ARGS]{}"},
     {"[TOOL_CALLS]f[ARGS]{}"}},
    {"{# <think>" THINKS,
     OBJECT,
     {"{}", "<think>hm</think>\n\n{}", "<think></think>{}"},
     {"<think>hm", "hm</think>{}", "<think>hm</think>x"}},
    {"{# <think>" THINKS "<think>\n", OBJECT, {"hm</think>\n\n{}"}, {"{}", "<think>hm</think>"}},
    {"{# <think>" THINKS "<think>\n\n</think>\n\n", OBJECT, {"{}"}, {"<think>hm</think>{}"}},
    {"{# <think>" THINKS "<think>\n",
     "\"thinking_token_budget\":3",
     {"hm</think>\n\nall", "</think>"},
     {"hm"}},
    {T_HARMONY,
     STRICT,
     {FINAL "any text", THOUGHT("hm") FINAL "", TO_F "{\"x\": 7}",
      THOUGHT("hm") "<|channel|>commentary to=functions.g <|constrain|>json<|message|>{}"},
     {"any text", TO_F "{}", TO_F "{\"x\": 7}<|end|>", "<|channel|>commentary to=functions.h", ""}},
    {T_HARMONY,
     TOOLS ",\"tool_choice\":\"required\"",
     {TO_F "{\"x\": 7}", THOUGHT("hm") TO_F "{\"x\": 7}"},
     {FINAL "text", THOUGHT("hm") FINAL "text"}},
    {T_HARMONY,
     OBJECT,
     {FINAL "{}", THOUGHT("{") FINAL "{\"a\": 1}"},
     {"{}", FINAL "x", THOUGHT("hm") "{}", "<|channel|>analysis<|message|>{}"}},
    {T_HARMONY,
     "\"thinking_token_budget\":40",
     {FINAL "text", THOUGHT("hm") FINAL "text"},
     {"hm", THOUGHT("hm") "text"}},
};

/* 1: the text is one that the query's answers may be. */
static int may_be(const struct query *query, const char *text)
{
    struct constraint_cache *cache;
    struct constraint_held *held = NULL;
    struct constraint_place place;
    const struct constraint_owner owner = {0, 0};
    struct error error;
    bool hit;
    ck_assert_int_eq(constraint_cache_make(64u << 20, &cache, &error), 0);
    const struct gpu_model *model = &site.world.server.models[0].info;
    ck_assert_msg(constraint_cache_get(cache, site.model_text.tokenizer, model, &query->constraint,
                                       &owner, &held, &hit, &error) == 0,
                  "%s: %s", query->constraint.text, error.text);
    constraint_start(held->constraint, &place);
    int rc = constraint_read(held->constraint, &place, text, strlen(text), &error);
    int ends = rc == 0 && constraint_may_end(&place);
    constraint_drop(held->constraint, &place);
    constraint_cache_put(cache, held);
    constraint_cache_free(cache);
    return ends;
}

START_TEST(answers_are_constrained_by_what_is_asked_of_them)
{
    const struct message_limits limits =
        request_builder_limits(&site.world.server, &site.world.server.models[0]);
    const struct sampling defaults = request_builder_defaults(&site.world.server.models[0]);
    struct query query;
    struct error error;
    char body[2048];
    if (!strcmp(structures[_i].source, T_HARMONY))
        set_tokenizer("[OTHER]"); /* whose marks are texts */
    site_template(&site, structures[_i].source);
    snprintf(body, sizeof(body), "{" ASK ",%s}", structures[_i].rest);
    ck_assert_msg(query_read(&query, QUERY_CHAT, body, strlen(body), &limits, &defaults, &error) ==
                      0,
                  "%s", error.text);
    ck_assert_msg(query_render(&query, &site.model_text, NULL, &error) == 0, "%s", error.text);
    ck_assert_int_ne(query.constraint.kind, MESSAGE_CONSTRAINT_NONE);
    for (int i = 0; i < 4 && structures[_i].good[i]; i++)
        ck_assert_msg(may_be(&query, structures[_i].good[i]) == 1, "%s does not take %s",
                      query.constraint.text, structures[_i].good[i]);
    for (int i = 0; i < 5 && structures[_i].bad[i]; i++)
        ck_assert_msg(may_be(&query, structures[_i].bad[i]) == 0, "%s takes %s",
                      query.constraint.text, structures[_i].bad[i]);
    query_free(&query);
}
END_TEST

/* Where calls must begin the special token alone may come, and no bytes that spell it. */
START_TEST(a_special_mark_is_the_only_token_that_begins_a_call)
{
    const struct message_limits limits =
        request_builder_limits(&site.world.server, &site.world.server.models[0]);
    const struct sampling defaults = request_builder_defaults(&site.world.server.models[0]);
    static const char body[] = "{" ASK "," TOOLS ",\"tool_choice\":\"required\"}";
    struct constraint_cache *cache;
    struct constraint_held *held = NULL;
    struct constraint_place place;
    struct constraint_allowed allowed;
    const struct constraint_owner owner = {0, 0};
    struct query query;
    struct error error;
    uint32_t bits[32];
    bool hit;
    set_tokenizer("[TOOL_CALLS]");
    site_template(&site, T_MISTRAL);
    ck_assert_int_eq(
        query_read(&query, QUERY_CHAT, body, sizeof(body) - 1, &limits, &defaults, &error), 0);
    ck_assert_int_eq(query_render(&query, &site.model_text, NULL, &error), 0);
    ck_assert_int_eq(constraint_cache_make(64u << 20, &cache, &error), 0);
    ck_assert_int_eq(constraint_cache_get(cache, site.model_text.tokenizer,
                                          &site.world.server.models[0].info, &query.constraint,
                                          &owner, &held, &hit, &error),
                     0);
    ck_assert_uint_le(held->words, 32);
    constraint_start(held->constraint, &place);
    ck_assert_int_eq(constraint_mask(held->constraint, &place, bits, &allowed, &error), 0);
    ck_assert_int_eq(allowed.only, 1);
    ck_assert_int_eq(constraint_advance(held->constraint, &place, 1, &error), 0);
    ck_assert_int_eq(constraint_mask(held->constraint, &place, bits, &allowed, &error), 0);
    ck_assert_int_eq(allowed.only, '[');
    constraint_drop(held->constraint, &place);
    constraint_cache_put(cache, held);
    constraint_cache_free(cache);
    query_free(&query);
}
END_TEST

Suite *tools_suite(void)
{
    Suite *suite = suite_create("tools");
    TCase *tests = tcase_create("tools");
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_add_test(tests, calls_are_told_apart_from_content);
    tcase_add_test(tests, a_call_that_is_cut_stays_unfinished);
    tcase_add_test(tests, streams_of_calls_are_pieces_of_one_text);
    tcase_add_test(tests, thought_is_apart_from_content);
    tcase_add_test(tests, channels_are_thought_content_and_calls);
    tcase_add_test(tests, a_mark_may_be_a_special_token);
    tcase_add_test(tests, a_special_mark_is_the_only_token_that_begins_a_call);
    tcase_add_test(tests, history_reaches_the_template);
    tcase_add_loop_test(tests, what_cannot_be_kept_is_refused_by_name, 0,
                        sizeof(refusals) / sizeof(refusals[0]));
    tcase_add_test(tests, tools_are_refused_where_the_template_writes_no_calls);
    tcase_add_loop_test(tests, answers_are_constrained_by_what_is_asked_of_them, 0,
                        sizeof(structures) / sizeof(structures[0]));
    tcase_set_timeout(tests, 60);
    suite_add_tcase(suite, tests);
    return suite;
}
