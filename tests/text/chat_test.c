/* Templates render as transformers renders them, on cases that reference/chat.py committed, and what
 * is hostile is refused or bounded. */
#include "daemon/text/chat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/text/file.h"
#include "tests/text/text_suites.h"

static const struct json_bounds bounds = {.bytes_max = 1 << 20, .depth_max = 32};

/* Published templates are beside the project, not in it. */
static char *read_template(const char *name, size_t *ret_length)
{
    const char *const folders[] = {getenv("SLUICE_TEMPLATES"), "shared/templates",
                                   "../shared/templates"};
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
    struct tm parts = {.tm_year = 124, .tm_mon = 6, .tm_mday = 26, .tm_hour = 12, .tm_min = 34,
                       .tm_sec = 56, .tm_isdst = -1};
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

/* Lines [from, to) of the cases; how many of published templates were there to be read. */
static int check_cases(bool published)
{
    size_t length;
    int line = 0, checked = 0;
    char *cases = file_read("chat.jsonl", &length);
    for (char *at = cases, *end; *at; at = end + 1) {
        json *given;
        size_t bytes = 0;
        char *source = NULL;
        end = strchr(at, '\n');
        line++;
        ck_assert_int_eq(json_parse(at, (size_t)(end - at), bounds, &given, NULL), 0);
        const char *file = json_string(json_get(given, "file"));
        const char *snippet = json_string(json_get(given, "source"));
        if (file[0] && published)
            source = read_template(file, &bytes);
        if (source) {
            check_case(given, source, bytes, line);
            checked++;
        } else if (!file[0] && !published) {
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
    ck_assert_int_gt(check_cases(false), 60);
}
END_TEST

START_TEST(published_templates_render_as_the_reference)
{
    int checked = check_cases(true);
    if (checked == 0)
        fprintf(stderr, "chat: no templates found, set SLUICE_TEMPLATES; not checked\n");
    else
        ck_assert_int_gt(checked, 400);
}
END_TEST

Suite *chat_suite(void)
{
    Suite *suite = suite_create("chat");
    TCase *tests = tcase_create("templates");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, snippets_render_as_the_reference);
    tcase_add_test(tests, published_templates_render_as_the_reference);
    suite_add_tcase(suite, tests);
    return suite;
}
