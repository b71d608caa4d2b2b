/* Texts and conversations from the program to the device and back: sluice against a real sluiced
 * that serves the demo model with a chat template, on the CPU. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <check.h>

#include "tests/client/program.h"
#include "tests/daemon/rig/demo_model.h"
#include "tests/daemon/rig/spawn.h"
#include "tests/runner.h"

/* Shows what it was given: the answer depends on the whole conversation. */
#define TEMPLATE                                                                                   \
    "{% if messages | length == 1 %}reverse {{ messages[0].content }}={% elif "                    \
    "messages[1].content == 'maerts' and messages[2].content == 'sum' %}417+385={% else "          \
    "%}{{ raise_exception('not what was said') }}{% endif %}"

static struct spawn spawn;
static char model[96], in_path[96];
static struct program program;

static void setup(void)
{
    const char *const arguments[] = {"--model",       model, "--device", "cpu",
                                     "--cpu-threads", "1",   NULL};
    spawn_make(&spawn);
    snprintf(model, sizeof(model), "%s/model", spawn.directory);
    snprintf(in_path, sizeof(in_path), "%s/in", spawn.directory);
    demo_model_make(model, TEMPLATE);
    setenv("SLUICE_SOCKET", spawn.socket, 1);
    spawn_start(&spawn, arguments, NULL);
    spawn_await_ready(&spawn);
}

static void teardown(void)
{
    kill(spawn.pid, SIGTERM);
    ck_assert_int_eq(spawn_wait(&spawn), 0);
    ck_assert_int_ne(access(spawn.socket, F_OK), 0);
    demo_model_remove(model);
    unlink(in_path);
    spawn_free(&spawn);
}

/* The program with this as its standard input. */
static void through(const char *text, size_t length, const char *const *arguments)
{
    int in = open(in_path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    ck_assert_int_ge(in, 0);
    ck_assert_int_eq(write(in, text, length), (ssize_t)length);
    ck_assert_int_eq(lseek(in, 0, SEEK_SET), 0);
    program_start(&program, in, arguments);
    close(in);
    program_finish(&program);
}

START_TEST(a_conversation_is_answered_and_remembered)
{
    static const char *const chat[] = {"chat", NULL};
    through("stream\nsum\n", 11, chat);
    ck_assert_str_eq(program.err_text, "");
    ck_assert_str_eq(program.out_text, "maerts\n802\n");
    ck_assert_int_eq(program.status, 0);
}
END_TEST

START_TEST(what_the_template_refuses_is_told_and_forgotten)
{
    static const char *const chat[] = {"chat", NULL};
    through("stream\nother\nsum\n", 17, chat);
    ck_assert_str_eq(program.out_text, "maerts\n802\n");
    ck_assert_ptr_nonnull(strstr(program.err_text, "not what was said"));
    ck_assert_int_eq(program.status, 1);
}
END_TEST

START_TEST(a_conversation_becomes_the_tokens_of_its_prompt)
{
    static const char *const tokenize[] = {"tokenize", "--chat", NULL};
    static const char chat[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"ab\"}]}]}";
    through(chat, sizeof(chat) - 1, tokenize);
    ck_assert_str_eq(program.err_text, "");
    ck_assert_str_eq(program.out_text, "114,101,118,101,114,115,101,32,97,98,61\n");
}
END_TEST

static const struct {
    const char *chat, *says;
} bad[] = {
    {"[]", "not an object"},
    {"{}", "messages is missing"},
    {"{\"messages\":[]}", "messages must be a list of messages"},
    {"{\"messages\":[{\"content\":\"x\"}]}", "an entry without a role"},
    {"{\"messages\":[{\"role\":\"user\",\"content\":5}]}", "content must be"},
    {"{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"tools\":1}", "tools must be a list"},
    {"{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"model\":\"x\"}", "unknown field"},
    {"{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]", "ends too early"},
    {"{\"messages\":[{\"role\":\"user\",\"content\":\"\\u0000\"}]}", "\\u0000 is not accepted"},
    {"{\"messages\":[{\"role\":\"user\",\"content\":\"x\",\"a\":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[1]]"
     "]]]]]]"
     "]]]]]]]]]]]]]]]]]]]]]]]]}]}",
     "nested deeper than 32"},
};

START_TEST(a_bad_conversation_is_refused_with_what_is_wrong)
{
    static const char *const tokenize[] = {"tokenize", "--chat", NULL};
    through(bad[_i].chat, strlen(bad[_i].chat), tokenize);
    ck_assert_msg(strstr(program.err_text, bad[_i].says) != NULL, "%s: %s", bad[_i].chat,
                  program.err_text);
    ck_assert_int_eq(program.status, 1);
}
END_TEST

START_TEST(texts_become_tokens_and_tokens_the_same_text)
{
    static const char *const tokenize[] = {"tokenize", NULL}, *const back[] = {"detokenize", NULL};
    static const char text[] = "caf\xc3\xa9 \xe6\x97\xa5\n12+30=\n";
    char tokens[512];
    through(text, sizeof(text) - 1, tokenize);
    ck_assert_str_eq(program.err_text, "");
    ck_assert_uint_lt(program.out_length, sizeof(tokens));
    strcpy(tokens, program.out_text);
    through(tokens, strlen(tokens), back);
    ck_assert_str_eq(program.out_text, text);
    ck_assert_int_eq(program.status, 0);
}
END_TEST

START_TEST(more_than_the_context_holds_is_refused_by_its_limit)
{
    static const char *const tokenize[] = {"tokenize", NULL}, *const back[] = {"detokenize", NULL},
                             *const chat[] = {"chat", NULL};
    const size_t length = 100000; /* off the loop */
    char *text = malloc(length);
    ck_assert_ptr_nonnull(text);
    for (size_t i = 0; i < length; i++)
        text[i] = i % 2 ? ' ' : '7';
    through(text, length, tokenize);
    ck_assert_ptr_nonnull(strstr(program.err_text, "more than 256 tokens"));
    ck_assert_int_eq(program.status, 1);
    through(text, 600, back);
    ck_assert_ptr_nonnull(strstr(program.err_text, "300 tokens, more than the 256"));
    through(text, 600, chat);
    ck_assert_ptr_nonnull(strstr(program.err_text, "more than 256 tokens"));
    ck_assert_int_eq(program.status, 1);
    free(text);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("texts, end to end");
    TCase *tcase = tcase_create("program, daemon, demo model");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, a_conversation_is_answered_and_remembered);
    tcase_add_test(tcase, what_the_template_refuses_is_told_and_forgotten);
    tcase_add_test(tcase, a_conversation_becomes_the_tokens_of_its_prompt);
    tcase_add_loop_test(tcase, a_bad_conversation_is_refused_with_what_is_wrong, 0,
                        sizeof(bad) / sizeof(bad[0]));
    tcase_add_test(tcase, texts_become_tokens_and_tokens_the_same_text);
    tcase_add_test(tcase, more_than_the_context_holds_is_refused_by_its_limit);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    return runner_run(runner);
}
