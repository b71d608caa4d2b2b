/* Models and conversations that mean harm: templates without end, patterns that a text dies on. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/daemon/rig/demo_model.h"
#include "tests/hostile/bad.h"
#include "tests/hostile/http_rig.h"
#include "tests/hostile/http_suites.h"

static const int32_t sum[] = {'4', '1', '7', '+', '3', '8', '5', '='}, result[] = {'8', '0', '2'};
static const struct canary_song known = {sum, result, 8, 3};

static char model_path[160];

/* The demo model with another template, and with a pattern before its tokenizer's own. */
static void make_model(const char *template, const char *pattern, const char *input_max)
{
    static char whole[1 << 20], changed[1 << 20];
    static const char list[] = "\"pretokenizers\": [";
    http_make();
    snprintf(model_path, sizeof(model_path), "%s/model", scene.spawn.directory);
    demo_model_make(model_path, template);
    FILE *file = fopen("deploy/demo-model/tokenizer.json", "r");
    ck_assert_ptr_nonnull(file);
    whole[fread(whole, 1, sizeof(whole) - 1, file)] = '\0';
    fclose(file);
    const char *at = strstr(whole, list);
    ck_assert_ptr_nonnull(at);
    at += strlen(list);
    int length = snprintf(changed, sizeof(changed),
                          "%.*s{\"type\": \"Split\", \"pattern\": {\"Regex\": \"%s\"}, "
                          "\"behavior\": \"Isolated\", \"invert\": false},%s",
                          (int)(at - whole), whole, pattern, at);
    ck_assert_int_lt(length, (int)sizeof(changed));
    demo_model_put(model_path, "tokenizer.json", changed);
    http_start(model_path, input_max, &known);
    scene.slack = 8 * MIB;
}

static void remove_model(void)
{
    demo_model_remove(model_path);
    scene_free(&scene);
}

static const struct {
    const char *template, *says;
} endless[] = {
    {"{% set r = range(10000) | list %}{% for i in r %}{% for j in r %}{% endfor %}{% endfor %}",
     "more than"},
    {"{% for i in range(100000) %}{{ 'x' * 100000 }}{% endfor %}", "bytes"},
    {"{% set n = namespace(t='x') %}{% for i in range(64) %}{% set n.t = n.t ~ n.t %}{% endfor %}",
     "bytes"},
    {"{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}", "deep"},
    /* Two lists of 2^29 ends, shared. */
    {"{% set n = namespace(a=[1], b=[1]) %}{% for i in range(29) %}{% set n.a = [n.a, n.a] %}"
     "{% set n.b = [n.b, n.b] %}{% endfor %}{{ n.a < n.b }}",
     "more than"},
};

#define HELLO "{\"messages\":[{\"role\":\"user\",\"content\":\"" BAD_CANARY "\"}]}"

START_TEST(an_endless_template_ends)
{
    int fds[AT_A_TIME];
    char text[4096];
    make_model(endless[_i].template, "\\\\s+", "256MiB");
    /* Several at a time: each has a thread, and the loop has none of it. */
    for (int i = 0; i < AT_A_TIME; i++) {
        fds[i] = http_head("/v1/chat/completions", strlen(HELLO));
        ck_assert(http_send(fds[i], HELLO, strlen(HELLO)));
    }
    for (int i = 0; i < AT_A_TIME; i++) {
        int status = http_status(fds[i], text, sizeof(text));
        ck_assert_msg(status == 400 && strstr(text, endless[_i].says), "%d %s", status, text);
        close(fds[i]);
    }
    scene_end(&scene);
}
END_TEST

START_TEST(a_text_that_a_pattern_dies_on_is_refused)
{
    char *body;
    size_t length;
    make_model("{{ messages[0].content }}", _i ? "(?:a|a)*[bc]" : "(a+)+[bc]", "256MiB");
    for (int i = 0; i < 3; i++) {
        /* On the loop, and off it. */
        body = http_body_of("{\"prompt\":\"", "a",
                            i == 0   ? 40
                            : i == 1 ? 5000
                                     : 20000,
                            "\"}", &length);
        http_expect("/tokenize", body, length, 400, "steps");
        free(body);
    }
    http_expect("/tokenize", "{\"prompt\":\"b c\"}", 16, 200, "\"count\":3");
    scene_end(&scene);
}
END_TEST

/* ---- conversations that take far more than their bytes -----------------------------------------
 */

#define CHATS 40
#define CHAT_BYTES MIB /* some 28 times as much, once it is read */

START_TEST(conversations_that_wait_are_bounded_by_what_they_take)
{
    int fds[CHATS];
    uint32_t answered = 0, refused = 0;
    char text[4096];
    size_t length;
    char *body = http_body_of("{\"max_tokens\":3,\"messages\":[{\"role\":\"user\",\"content\":"
                              "\"417+385=\",\"x\":[",
                              "[],", CHAT_BYTES / 3 * 3, "[]]}]}", &length);
    make_model("{{ messages[0].content }}", "\\\\s+", "32MiB");
    for (int i = 0; i < CHATS; i++) {
        fds[i] = http_head("/v1/chat/completions", length);
        ck_assert(http_send(fds[i], body, length));
    }
    scene_check(&scene);
    for (int i = 0; i < CHATS; i++) {
        int status = http_status(fds[i], text, sizeof(text));
        ck_assert_msg(status == 200 ? strstr(text, "\"content\":\"802\"") != NULL
                                    : status == 429 && strstr(text, "Retry-After: ") &&
                                          strstr(text, "(input-max)"),
                      "%d %s", status, text);
        answered += status == 200;
        refused += status == 429;
        close(fds[i]);
    }
    ck_assert_uint_ge(answered, 1);
    ck_assert_uint_ge(refused, 1);
    uint64_t peak = spawn_peak(&scene.spawn);
    if (SCENE_RESIDENT_KNOWN)
        ck_assert_msg(peak < 256 * MIB, "%llu bytes at a time", (unsigned long long)peak);
    http_expect("/v1/chat/completions", body, length, 200, "\"content\":\"802\"");
    free(body);
    scene_end(&scene);
}
END_TEST

Suite *template_suite(void)
{
    Suite *suite = suite_create("template");
    TCase *tcase = tcase_create("template");
    tcase_set_timeout(tcase, 300);
    tcase_add_checked_fixture(tcase, NULL, remove_model);
    tcase_add_loop_test(tcase, an_endless_template_ends, 0, sizeof(endless) / sizeof(endless[0]));
    tcase_add_loop_test(tcase, a_text_that_a_pattern_dies_on_is_refused, 0, 2);
    tcase_add_test(tcase, conversations_that_wait_are_bounded_by_what_they_take);
    suite_add_tcase(suite, tcase);
    return suite;
}
