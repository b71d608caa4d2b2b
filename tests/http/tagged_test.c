/* Calls whose arguments are texts between marks: read by their tool's schema, and constrained so
 * that what is read meets it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/answer/answer_message.h"
#include "daemon/answer/answer_reader.h"
#include "daemon/constrain/constraint.h"
#include "daemon/request/constraint_cache.h"
#include "daemon/request/request_builder.h"
#include "daemon/text/template/chat.h"
#include "tests/http/caller.h"
#include "tests/http/http_suites.h"

#define CODER "{# <tool_call><function= #}x"
#define GLM "{# <tool_call><arg_key> #}x"
#define DEEPSEEK "{# <｜tool▁calls▁begin｜>```json tools #}x"
#define DEEPSEEK31 "{# <｜tool▁calls▁begin｜>tools #}x"
#define CALLS "<｜tool▁calls▁begin｜>"
#define CALL "<｜tool▁call▁begin｜>"
#define SEP "<｜tool▁sep｜>"
#define CALL_END "<｜tool▁call▁end｜>"
#define CALLS_END "<｜tool▁calls▁end｜>"
#define P(key, value) "<parameter=" key ">\n" value "\n</parameter>\n"
#define CODER_F(parameters) "<tool_call>\n<function=f>\n" parameters "</function>\n</tool_call>"
#define A(key, value) "<arg_key>" key "</arg_key>\n<arg_value>" value "</arg_value>\n"
#define GLM_F(arguments) "<tool_call>f\n" arguments "</tool_call>"

static struct site site;
static char answer[1 << 16];

static void set_up(void)
{
    site_make(&site);
}

static void tear_down(void)
{
    site.world.replica.script = NULL;
    site_free(&site);
}

static void body_of(char *body, size_t size, const char *schema, const char *rest)
{
    snprintf(body, size,
             "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"}],\"max_tokens\":900,\"tools\":[{"
             "\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":%s}}]%s}",
             schema, rest);
}

/* ---- reading -----------------------------------------------------------------------------------
 */

#define has(part) ck_assert_msg(strstr(answer, part) != NULL, "%s not in %s", part, answer)

#define OPTIONAL "{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"null\"}]}"
#define LINE "{\"$ref\":\"#/$defs/line\"}"
#define SCHEMA                                                                                     \
    "{\"type\":\"object\",\"properties\":{\"s\":{\"type\":\"string\"},\"n\":{\"type\":"            \
    "\"integer\"},"                                                                                \
    "\"o\":" OPTIONAL ",\"l\":" LINE ",\"e\":{\"enum\":[\"a\",\"7\"]},\"x\":{}},"                  \
    "\"required\":[\"s\"],\"$defs\":{\"line\":{\"allOf\":[{\"type\":[\"string\",\"array\"]},"      \
    "{\"type\":\"array\"}]}}}"

START_TEST(arguments_are_read_by_the_types_that_the_schema_says)
{
    char body[2048];
    site_template(&site, CODER);
    body_of(body, sizeof(body), SCHEMA, "");
    site.world.replica.script = CODER_F(P("s", "7") P("n", "7") P("o", "null") P("l", "[\"a\"]")
                                            P("e", "7") P("x", "7") P("y", "7"));
    ck_assert_uint_eq(fetch(&site, "/v1/chat/completions", body, answer, sizeof(answer)), 200);
    has("\"arguments\":\"{\\\"s\\\": \\\"7\\\", \\\"n\\\": 7, \\\"o\\\": null, \\\"l\\\": "
        "[\\\"a\\\"], \\\"e\\\": \\\"7\\\", \\\"x\\\": \\\"7\\\", \\\"y\\\": \\\"7\\\"}\"");
    site_template(&site, GLM);
    site.world.replica.script =
        GLM_F(A("s", "7") A("o", "7") A("x", "{\"a\": 1}") A("y", "true") A("l", "many"));
    ck_assert_uint_eq(fetch(&site, "/v1/chat/completions", body, answer, sizeof(answer)), 200);
    has("\"arguments\":\"{\\\"s\\\": \\\"7\\\", \\\"o\\\": \\\"7\\\", \\\"x\\\": {\\\"a\\\": 1}, "
        "\\\"y\\\": true, \\\"l\\\": \\\"many\\\"}\"");
    has("\"finish_reason\":\"tool_calls\"");
}
END_TEST

/* ---- constraints -------------------------------------------------------------------------------
 */

static struct query query;
static struct constraint_cache *cache;
static struct constraint_held *held;

static int constrain(const char *source, const char *schema, struct error *error)
{
    const struct message_limits limits =
        request_builder_limits(&site.world.server, &site.world.server.models[0]);
    const struct sampling defaults = request_builder_defaults(&site.world.server.models[0]);
    const struct constraint_owner owner = {0, 0};
    char body[4096];
    bool hit;
    site_template(&site, source);
    body_of(body, sizeof(body), schema, ",\"tool_choice\":\"required\"");
    ck_assert_msg(query_read(&query, QUERY_CHAT, body, strlen(body), &limits, &defaults, error) ==
                      0,
                  "%s", error->text);
    ck_assert_msg(query_render(&query, &site.model_text, NULL, error) == 0, "%s", error->text);
    ck_assert_int_eq(constraint_cache_make(64u << 20, &cache, error), 0);
    return constraint_cache_get(cache, site.model_text.tokenizer, &site.world.server.models[0].info,
                                &query.constraint, &owner, &held, &hit, error);
}

static void let_go(bool made)
{
    if (made)
        constraint_cache_put(cache, held);
    constraint_cache_free(cache);
    query_free(&query);
}

static int may_be(const char *text)
{
    struct constraint_place place;
    struct error error;
    constraint_start(held->constraint, &place);
    int rc = constraint_read(held->constraint, &place, text, strlen(text), &error);
    int ends = rc == 0 && constraint_may_end(&place);
    constraint_drop(held->constraint, &place);
    return ends;
}

static const struct {
    const char *source, *schema;
    const char *good[5], *bad[6];
} constraints[] = {
    {CODER,
     SCHEMA,
     {CODER_F(P("s", "a\n<b> \"c\"")), CODER_F(P("s", "") P("n", "-7") P("o", "null") P("e", "7")),
      CODER_F(P("s", "x") P("l", "[\"</parameter>\"]") P("x", "7")),
      CODER_F(P("s", "x")) "\n" CODER_F(P("s", "y"))},
     {CODER_F(""), CODER_F(P("n", "7")), CODER_F(P("s", "x") P("n", "many")),
      CODER_F(P("s", "a</parameter>")), CODER_F(P("s", "x") P("e", "b")),
      CODER_F(P("n", "7") P("s", "x"))}},
    {GLM,
     SCHEMA,
     {GLM_F(A("s", "a\n")), GLM_F(A("s", "") A("o", "nul") A("x", "7")),
      GLM_F(A("s", "x") A("x", "any")), GLM_F(A("s", "x") A("l", "[{}]"))},
     {GLM_F(""), GLM_F(A("s", "</arg_value>")), GLM_F(A("s", "x") A("l", "a")),
      GLM_F(A("s", "x") A("x", "[1,")), GLM_F(A("s", "x") A("y", "7")), "so"}},
    {CODER,
     "{\"type\":\"object\",\"properties\":{\"p\":{\"type\":\"string\",\"pattern\":\"^[a-z<]+$\"},"
     "\"m\":{\"type\":\"string\",\"maxLength\":2},\"d\":{\"type\":\"string\",\"format\":\"date\"}}"
     "}",
     {CODER_F(""), CODER_F(P("p", "a<b")), CODER_F(P("m", "\xc3\xa4\n") P("d", "2024-02-29"))},
     {CODER_F(P("p", "A")), CODER_F(P("p", "")), CODER_F(P("m", "abc")), CODER_F(P("d", "soon"))}},
    {CODER, "{}", {CODER_F("")}, {CODER_F(P("s", "x"))}},
    {DEEPSEEK,
     "{\"properties\":{\"n\":{\"type\":\"integer\"}},\"required\":[\"n\"]}",
     {CALLS CALL "function" SEP "f\n```json\n{\"n\": 1}\n```" CALL_END CALLS_END,
      CALLS CALL "function" SEP "f\n```json\n{\"n\": 1}\n```" CALL_END "\n" CALL "function" SEP
                 "f\n```json\n{\"n\":2}\n```" CALL_END CALLS_END},
     {CALLS CALL "f" SEP "{\"n\": 1}" CALL_END CALLS_END, CALLS CALLS_END,
      CALLS CALL "function" SEP "f\n```json\n{}\n```" CALL_END CALLS_END}},
    {DEEPSEEK31,
     "{\"properties\":{\"n\":{\"type\":\"integer\"}},\"required\":[\"n\"]}",
     {CALLS CALL "f" SEP "{\"n\": 1}" CALL_END CALL "f" SEP "{\"n\":2}" CALL_END CALLS_END},
     {CALLS CALL "f" SEP "{}" CALL_END CALLS_END, "text"}},
};

START_TEST(calls_are_constrained_as_the_model_writes_them)
{
    struct error error;
    ck_assert_msg(constrain(constraints[_i].source, constraints[_i].schema, &error) == 0, "%s",
                  error.text);
    for (int i = 0; i < 5 && constraints[_i].good[i]; i++)
        ck_assert_msg(may_be(constraints[_i].good[i]) == 1, "does not take %s",
                      constraints[_i].good[i]);
    for (int i = 0; i < 6 && constraints[_i].bad[i]; i++)
        ck_assert_msg(may_be(constraints[_i].bad[i]) == 0, "takes %s", constraints[_i].bad[i]);
    let_go(true);
}
END_TEST

static const struct {
    const char *schema, *says;
} refusals[] = {
    {"{\"properties\":{\"a\":{}},\"anyOf\":[{}]}", "f: schema: #: anyOf: is not supported"},
    {"{\"properties\":{\"a\":{}},\"required\":[\"b\"]}", "required: names what is not"},
    {"{\"properties\":{\"a>b\":{}}}", "a name that cannot stand between marks"},
    {"{\"properties\":{\"a\":{\"enum\":[\"</parameter>\"]}}}", "a text that is none"},
    {"{\"properties\":{\"a\":{\"enum\":[\"7\",8]}}}", "a text that is none"},
    {"{\"properties\":{\"a\":{\"type\":\"string\",\"format\":\"iri\"}}}", "format"},
};

START_TEST(what_no_such_text_can_be_is_refused_by_name)
{
    struct error error;
    ck_assert_int_ne(constrain(CODER, refusals[_i].schema, &error), 0);
    ck_assert_msg(strstr(error.text, refusals[_i].says) != NULL, "%s", error.text);
    let_go(false);
}
END_TEST

/* ---- drawn -------------------------------------------------------------------------------------
 */

static uint64_t draw(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* A text that the constraint lets end: parts of marks and bytes, as they may come. */
static size_t draw_text(uint64_t *state, char *text, size_t size)
{
    static const char *const parts[] = {"\n</parameter>\n",
                                        "</arg_value>\n",
                                        "</function>\n</tool_call>",
                                        "</tool_call>",
                                        "</para",
                                        "null",
                                        "7",
                                        "-1.5",
                                        "true",
                                        "[",
                                        "]",
                                        "\"",
                                        "{",
                                        "}",
                                        "\n",
                                        " ",
                                        "\xc3\xa4",
                                        "\\",
                                        "7e2",
                                        "<",
                                        "[]",
                                        "{}",
                                        "\"</parameter>\"",
                                        "a",
                                        "\n\n"};
    struct constraint_place place;
    struct error error;
    size_t used = 0;
    constraint_start(held->constraint, &place);
    for (unsigned tries = 0; tries < 4000 && used + 64 < size; tries++) {
        char one[2] = {(char)draw(state), '\0'};
        const char *part = parts[draw(state) % (sizeof(parts) / sizeof(parts[0]))];
        const char *next = draw(state) % 8 ? part : one;
        if (constraint_may_end(&place))
            break;
        for (unsigned byte = 1; tries % 4 == 3 && byte < 0x80; byte++) { /* where one is left */
            one[0] = (char)byte;
            if (constraint_read(held->constraint, &place, one, 1, &error) == 0) {
                text[used++] = one[0];
                break;
            }
        }
        if (constraint_read(held->constraint, &place, next, strlen(next), &error) == 0) {
            memcpy(text + used, next, strlen(next));
            used += strlen(next);
        }
    }
    bool ends = constraint_may_end(&place);
    constraint_drop(held->constraint, &place);
    return ends ? used : 0;
}

static bool meets(const char *schema, const struct buffer *arguments, struct error *error)
{
    struct constraint *constraint;
    struct constraint_place place;
    ck_assert_int_eq(
        constraint_new(CONSTRAINT_SCHEMA, schema, strlen(schema), NULL, &constraint, error), 0);
    constraint_start(constraint, &place);
    int rc = constraint_read(constraint, &place, arguments->data, arguments->length, error);
    bool ends = rc == 0 && constraint_may_end(&place);
    constraint_drop(constraint, &place);
    constraint_free(constraint);
    return ends;
}

/* Where a text could be taken for another type than the schema lets it have. */
static const char *const drawn[] = {
    "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":[\"string\",\"null\"]},\"b\":{\"type\":"
    "\"string\",\"maxLength\":3}},\"required\":[\"a\"]}",
    "{\"type\":\"object\",\"properties\":{\"a\":{\"anyOf\":[{\"type\":\"string\"},{\"type\":"
    "\"integer\",\"minimum\":100}]}},\"required\":[\"a\"]}",
    "{\"type\":\"object\",\"properties\":{\"a\":{\"anyOf\":[{\"type\":\"string\",\"minLength\":1},{"
    "\"type\":\"array\",\"items\":{\"type\":\"string\"},\"maxItems\":2}]}},\"required\":[\"a\"]}",
    "{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{\"anyOf\":[{\"type\":\"string\"},{"
    "\"enum\":"
    "[false,\"so\"]}]}},\"required\":[\"a\",\"b\"]}",
    "{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#/$defs/t\"}},\"required\":[\"a\"],"
    "\"$defs\":{\"t\":{\"oneOf\":[{\"type\":\"object\",\"properties\":{\"t\":{\"$ref\":\"#/$defs/"
    "t\"}}"
    ",\"additionalProperties\":false},{\"type\":\"string\",\"pattern\":\"7\"}]}}}",
    "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"array\",\"items\":{}}},\"required\":"
    "[\"a\"]}",
};

START_TEST(what_is_drawn_by_a_constraint_meets_its_schema_when_it_is_read)
{
    static char text[1 << 14];
    const char *schema = drawn[_i / 2];
    uint64_t state = (uint64_t)_i + 1;
    unsigned read = 0;
    struct error error;
    ck_assert_msg(constrain(_i % 2 ? GLM : CODER, schema, &error) == 0, "%s", error.text);
    for (unsigned round = 0; round < 60; round++) {
        struct answer_message message = {0};
        struct answer_reader reader;
        size_t length = draw_text(&state, text, sizeof(text));
        if (length == 0)
            continue;
        answer_reader_init(&reader, &site.model_text.answer, false, true, answer_message_add,
                           &message);
        reader.names = query.tools.names;
        reader.types = query.tools.types;
        answer_reader_push(&reader, text, length);
        answer_reader_finish(&reader);
        ck_assert_msg(message.call_count > 0 && message.content.length == 0, "%.*s", (int)length,
                      text);
        for (uint32_t i = 0; i < message.call_count; i++) {
            const struct buffer *arguments = &message.calls[i].arguments;
            ck_assert_msg(meets(schema, arguments, &error), "%.*s\n%.*s", (int)length, text,
                          (int)arguments->length, arguments->data);
        }
        answer_reader_free(&reader);
        answer_message_free(&message);
        read++;
    }
    ck_assert_uint_gt(read, 5);
    let_go(true);
}
END_TEST

Suite *tagged_suite(void)
{
    Suite *suite = suite_create("tagged");
    TCase *tests = tcase_create("tagged");
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_add_test(tests, arguments_are_read_by_the_types_that_the_schema_says);
    tcase_add_loop_test(tests, calls_are_constrained_as_the_model_writes_them, 0,
                        sizeof(constraints) / sizeof(constraints[0]));
    tcase_add_loop_test(tests, what_no_such_text_can_be_is_refused_by_name, 0,
                        sizeof(refusals) / sizeof(refusals[0]));
    tcase_add_loop_test(tests, what_is_drawn_by_a_constraint_meets_its_schema_when_it_is_read, 0,
                        2 * sizeof(drawn) / sizeof(drawn[0]));
    tcase_set_timeout(tests, 60);
    suite_add_tcase(suite, tests);
    return suite;
}
