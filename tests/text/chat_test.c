/* Templates render as transformers renders them, on cases that reference/chat.py committed, and
 * what is hostile is refused or bounded. */
#include "daemon/text/template/chat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/text/file.h"
#include "tests/text/text_suites.h"

static const struct json_bounds bounds = {.bytes_max = 1 << 20, .depth_max = 32};

/* Our own are with the cases; published templates are beside the project, not in it. */
static char *read_template(const char *name, size_t *ret_length)
{
    const char *const folders[] = {getenv("SLUICE_TEMPLATES"), "shared/templates",
                                   "../shared/templates"};
    if (strncmp(name, "templates/", 10) == 0)
        return file_read(name, ret_length);
    for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
        char path[512];
        if (!folders[i])
            continue;
        snprintf(path, sizeof(path), "%s/%s", folders[i], name);
        FILE *file = fopen(path, "rb");
        if (!file)
            continue;
        char *text = malloc(CHAT_SOURCE_MAX);
        *ret_length = fread(text, 1, CHAT_SOURCE_MAX, file);
        fclose(file);
        return text;
    }
    return NULL;
}

/* 2024-07-26 12:34:56, local time. */
static time_t noon(void)
{
    struct tm parts = {.tm_year = 124,
                       .tm_mon = 6,
                       .tm_mday = 26,
                       .tm_hour = 12,
                       .tm_min = 34,
                       .tm_sec = 56,
                       .tm_isdst = -1};
    return mktime(&parts);
}

static int render(const char *source, size_t length, const json *given, char **ret_text,
                  size_t *ret_length, struct error *error)
{
    const json *tools = json_get(given, "tools");
    struct chat_input input = {.messages = json_get(given, "messages"),
                               .tools = json_is_array(tools) ? tools : NULL,
                               .extra = json_get(given, "extra"),
                               .bos_token = "<bos>",
                               .eos_token = "<eos>",
                               .add_generation_prompt = json_bool(json_get(given, "prompt")),
                               .now = noon()};
    struct chat_template *template;
    int code = chat_template_load(source, length, &template, error);
    if (code)
        return code;
    code = chat_template_render(template, &input, &CHAT_LIMITS, ret_text, ret_length, error);
    chat_template_free(template);
    return code;
}

static void check_case(const json *given, const char *source, size_t length, int line)
{
    const json *expected = json_get(given, "output");
    const char *what = json_string(json_get(given, "what"));
    struct error error = {0};
    char *text = NULL;
    size_t used = 0;
    int code = render(source, length, given, &text, &used, &error);
    if (!json_is_string(expected)) {
        ck_assert_msg(code < 0, "line %d (%s): renders, though the reference fails", line, what);
        ck_assert_msg(strncmp(error.text, "chat template, line ", 20) == 0, "%s", error.text);
        return;
    }
    ck_assert_msg(code == 0, "line %d (%s): %s", line, what, error.text);
    ck_assert_msg(strcmp(text, json_string(expected)) == 0,
                  "line %d (%s):\n%s\n--- expected:\n%s\n--- from:\n%.*s", line, what, text,
                  json_string(expected), (int)(length < 300 ? length : 300), source);
    ck_assert_uint_eq(used, strlen(text));
    free(text);
}

enum kind { SNIPPET, OWN, PUBLISHED };

static enum kind kind_of(const char *file)
{
    if (!file[0])
        return SNIPPET;
    return strncmp(file, "templates/", 10) == 0 ? OWN : PUBLISHED;
}

/* How many cases of the kind were there to be checked. */
static int check_cases(const char *from, enum kind kind)
{
    size_t length;
    int line = 0, checked = 0;
    char *cases = file_read(from, &length);
    for (char *at = cases, *end; *at; at = end + 1) {
        json *given;
        size_t bytes = 0;
        char *source = NULL;
        end = strchr(at, '\n');
        line++;
        ck_assert_int_eq(json_parse(at, (size_t)(end - at), bounds, &given, NULL), 0);
        const char *file = json_string(json_get(given, "file"));
        const char *snippet = json_string(json_get(given, "source"));
        if (kind_of(file) == kind && kind != SNIPPET)
            source = read_template(file, &bytes);
        if (source) {
            check_case(given, source, bytes, line);
            checked++;
        } else if (kind_of(file) == kind && kind == SNIPPET) {
            check_case(given, snippet, strlen(snippet), line);
            checked++;
        }
        free(source);
        json_free(given);
    }
    free(cases);
    return checked;
}

START_TEST(snippets_render_as_the_reference)
{
    ck_assert_int_gt(check_cases("chat.jsonl", SNIPPET), 60);
}
END_TEST

START_TEST(our_own_templates_render_as_the_reference)
{
    ck_assert_int_eq(check_cases("chat.jsonl", OWN), 432);
}
END_TEST

/* What templates of Gemma, Phi, OLMo, Granite, SmolLM3, GLM, gpt-oss, DeepSeek and Qwen3-Coder do,
 * in our words. */
START_TEST(templates_of_other_families_render_as_the_reference)
{
    ck_assert_int_eq(check_cases("families.jsonl", OWN), 990);
}
END_TEST

START_TEST(published_templates_render_as_the_reference)
{
    int checked = check_cases("chat.jsonl", PUBLISHED);
    if (checked == 0)
        fprintf(stderr, "chat: no templates found, set SLUICE_TEMPLATES; not checked\n");
    else
        ck_assert_int_gt(checked, 400);
}
END_TEST

static int load(const char *source, struct error *error)
{
    struct chat_template *template = NULL;
    int code = chat_template_load(source, strlen(source), &template, error);
    chat_template_free(template);
    return code;
}

struct refusal {
    const char *source, *text;
};

static const struct refusal refusals[] = {
    {"{{ x | frobnicate }}", "line 1: the filter \"frobnicate\" is not supported"},
    {"\n{{ x is frobbed }}", "line 2: the test \"frobbed\" is not supported"},
    {"{{ x.format(1) }}", "line 1: the method \"format\" is not supported"},
    {"{{ lipsum(5) }}", "line 1: the function \"lipsum\" is not supported"},
    {"a\nb\n{% include 'x' %}", "line 3: the statement \"include\" is not supported"},
    {"{% import 'x' as y %}", "line 1: the statement \"import\" is not supported"},
    {"{% raw %}{% endraw %}", "line 1: the statement \"raw\" is not supported"},
    {"{% for x in y recursive %}{% endfor %}", "line 1: a loop that is \"recursive\""},
    {"{{ x.__class__ }}", "line 1: the attribute \"__class__\" is not supported"},
    {"{{ x._private }}", "line 1: the attribute \"_private\" is not supported"},
    {"{{ x['f']() }}", "line 1: calling this is not supported"},
    {"{{ f(*x) }}", "is not supported"},
    {"{{ '\\N{DASH}' }}", "line 1: an escape in a string is not supported"},
    {"{{ '\\ud800' }}", "line 1: an escape in a string is not supported"},
    {"{{ 99999999999999999999 }}", "line 1: a number is out of range"},
    {"{{ 0x10 }}", "line 1: this number is not supported"},
    {"{% set x | upper %}{% endset %}", "a filter of a set block is not supported"},
    {"{{ x ", "line 1: a tag does not end"},
    {"{{ 'x }}", "line 1: a string does not end"},
    {"{# x", "line 1: a comment does not end"},
    {"{{ x) }}", "line 1: brackets do not match"},
    {"{{ (x }}", "line 1: brackets do not match"},
    {"{{ }}", "line 1: an expression expected, not \"}}\""},
    {"{{ x y }}", "line 1: the end of the tag expected, not \"y\""},
    {"{% if x %}", "line 1: elif expected, not \"the end\""},
    {"{% endif %}", "line 1: the statement \"endif\" is not supported"},
    {"{% break %}", "line 1: a loop around break or continue expected"},
    {"{% for x y %}", "line 1: in expected, not \"y\""},
    {"{{ x ? y }}", "line 1: an unexpected character"},
    {"a\xff", "the chat template is no text at byte 1"},
};

START_TEST(what_is_not_known_is_refused_by_name_and_line)
{
    struct error error = {0};
    ck_assert_int_lt(load(refusals[_i].source, &error), 0);
    ck_assert_msg(strstr(error.text, refusals[_i].text), "%s", error.text);
}
END_TEST

START_TEST(nothing_nests_without_end_when_it_is_parsed)
{
    static const char *const openings[] = {"{{ (",
                                           "{{ [",
                                           "{{ -",
                                           "{{ not ",
                                           "{{ x[",
                                           "{{ {1:",
                                           "{% if x %}",
                                           "{% for x in y %}",
                                           "{{ 1 if x else ",
                                           "{{ x|d("};
    struct error error = {0};
    char source[100000] = "";
    size_t length = 0, step = strlen(openings[_i]);
    for (int i = 0; i < 5000; i++) {
        const char *opening = openings[_i];
        if (i > 0 && opening[1] == '{' && opening[0] == '{')
            opening += 3;
        step = strlen(opening);
        memcpy(source + length, opening, step + 1);
        length += step;
    }
    ck_assert_int_lt(load(source, &error), 0);
}
END_TEST

struct budget {
    const char *source, *text;
};

static const struct budget budgets[] = {
    {"{% set l = range(999)|list %}{% for a in l %}{{ l|sort(reverse=true)|length }}{% endfor %}",
     "steps"},
    {"{% for a in range(99999) %}{% for b in range(999) %}x{% endfor %}{% endfor %}", "bytes"},
    {"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "nested deeper than"},
    {"{% macro f() %}{{ f() ~ f() }}{% endmacro %}{{ f() }}", "nested deeper than"},
    {"{% set ns = namespace(s='x') %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor "
     "%}",
     "bytes"},
    {"{% set ns = namespace(s=[1]) %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor "
     "%}",
     "memory"},
    {"{% set ns = namespace(l=[]) %}{% for i in range(9999) %}{% set ns.l = [ns.l] %}{% endfor %}"
     "{{ ns.l }}",
     "nested deeper than"},
    {"{% set ns = namespace(l=[]) %}{% for i in range(9999) %}{% set ns.l = [ns.l] %}{% endfor %}"
     "{{ ns.l == [ns.l] }}",
     "nested deeper than"},
    {"{% set ns = namespace(l=[]) %}{% for i in range(9999) %}{% set ns.l = [ns.l] %}{% endfor %}"
     "{{ ns.l|tojson }}",
     "nested deeper than"},
    {"{{ 'x' * 999999999 }}", "not supported"},
    {"{{ ('x' * 999999)|replace('x', 'y' * 999) }}", "bytes"},
    {"{{ [1]|tojson(indent=999999999) }}", "bytes"},
    {"{{ 'a\nb'|indent(999999999) }}", "not supported"},
    {"{{ 9223372036854775807 + 1 }}", "64 bits"},
    {"{{ -9223372036854775807 - 2 }}", "64 bits"},
    {"{{ 2 ** 64 }}", "64 bits"},
    {"{{ 2 ** 9223372036854775807 }}", "64 bits"},
    {"{{ (-9223372036854775807 - 1) // -1 }}", "64 bits"},
    {"{% set ns = namespace() %}{% set ns.self = ns %}{{ ns }}", "cannot be shown"},
};

START_TEST(a_rendering_that_asks_for_too_much_ends)
{
    static const struct chat_limits limits = {
        .steps_max = 5000000, .memory_max = 32 << 20, .output_max = 1 << 20};
    struct chat_template *template = NULL;
    struct chat_input input = {0};
    struct error error = {0};
    char *text;
    size_t length;
    const char *source = budgets[_i].source;
    ck_assert_int_eq(chat_template_load(source, strlen(source), &template, &error), 0);
    ck_assert_int_lt(chat_template_render(template, &input, &limits, &text, &length, &error), 0);
    ck_assert_msg(strstr(error.text, budgets[_i].text), "%s", error.text);
    chat_template_free(template);
}
END_TEST

START_TEST(a_refusal_of_the_template_is_one_clean_line)
{
    const char *source = "\n{{ raise_exception('Roles must\n alternate!\x07') }}";
    struct chat_template *template = NULL;
    struct chat_input input = {0};
    struct error error = {0};
    char *text;
    size_t length;
    ck_assert_int_eq(chat_template_load(source, strlen(source), &template, &error), 0);
    ck_assert_int_eq(chat_template_render(template, &input, &CHAT_LIMITS, &text, &length, &error),
                     -ERR_BAD_VALUE);
    ck_assert_str_eq(error.text, "chat template, line 2: Roles must  alternate! ");
    chat_template_free(template);
}
END_TEST

Suite *chat_suite(void)
{
    Suite *suite = suite_create("chat");
    TCase *tests = tcase_create("templates");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, snippets_render_as_the_reference);
    tcase_add_test(tests, our_own_templates_render_as_the_reference);
    tcase_add_test(tests, templates_of_other_families_render_as_the_reference);
    tcase_add_test(tests, published_templates_render_as_the_reference);
    tcase_add_loop_test(tests, what_is_not_known_is_refused_by_name_and_line, 0,
                        (int)(sizeof(refusals) / sizeof(refusals[0])));
    tcase_add_loop_test(tests, nothing_nests_without_end_when_it_is_parsed, 0, 10);
    tcase_add_loop_test(tests, a_rendering_that_asks_for_too_much_ends, 0,
                        (int)(sizeof(budgets) / sizeof(budgets[0])));
    tcase_add_test(tests, a_refusal_of_the_template_is_one_clean_line);
    suite_add_tcase(suite, tests);
    return suite;
}
