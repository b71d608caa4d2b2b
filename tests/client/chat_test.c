/* Conversations and texts, by the program, against the stub. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpu/kernels/step/null_rule.h"
#include "tests/client/command_suites.h"
#include "tests/client/program.h"
#include "tests/client/stub.h"

#define LETTERS "abcdefghijklmnopqrstuvwxyz"

static struct stub *stub;
static struct program program;
static int line; /* where the program's standard input is written to; -1: closed */

static void setup(void)
{
    const char *path;
    stub = stub_start(&(struct stub_options){.text = true}, &path);
    setenv("SLUICE_SOCKET", path, 1);
    line = -1;
}

static void teardown(void)
{
    if (line >= 0)
        close(line);
    stub_stop(stub);
}

/* With a pipe as its input. */
static void start(const char *const *arguments)
{
    int ends[2];
    ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
    program_start(&program, ends[0], arguments);
    close(ends[0]);
    line = ends[1];
}

/* With a terminal: somebody types. */
static void start_typing(const char *const *arguments)
{
    line = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    ck_assert_int_ge(line, 0);
    ck_assert(grantpt(line) == 0 && unlockpt(line) == 0);
    int own = open(ptsname(line), O_RDWR | O_NOCTTY | O_CLOEXEC);
    ck_assert_int_ge(own, 0);
    program_start(&program, own, arguments);
    close(own);
}

static void type(const char *text)
{
    ck_assert_int_eq(write(line, text, strlen(text)), (ssize_t)strlen(text));
}

static void end_input(void)
{
    close(line);
    line = -1;
}

/* Until the stub has accepted so many requests. */
static void await_accepted(unsigned count)
{
    for (int i = 0; i < 20000 && atomic_load(&stub_counts(stub)->accepted) < count; i++)
        usleep(1000);
    ck_assert_uint_ge(atomic_load(&stub_counts(stub)->accepted), count);
}

static const char *const short_chat[] = {"chat", "--max-tokens", "4", "--ignore-eos", NULL};

/* What the stub answers to a conversation of these bytes, as letters. */
static const char *answer_to(const char *conversation, size_t count)
{
    static char letters[64];
    uint64_t state = NULL_START;
    for (const char *at = conversation; *at; at++)
        state = null_state(state, (unsigned char)*at);
    for (size_t i = 0; i < count; i++) {
        int32_t token = null_sample(state, false);
        letters[i] = (char)('a' + token % 26);
        state = null_state(state, token);
    }
    letters[count] = '\0';
    return letters;
}

#define SAID(role, text) "{\"role\":\"" role "\",\"content\":\"" text "\"}"
#define CHAT(messages) "{\"messages\":[" messages "]}"

/* ---- conversations -----------------------------------------------------------------------------
 */

START_TEST(every_line_of_a_pipe_has_an_answer_that_knows_all_before)
{
    char expected[64], conversation[512];
    start(short_chat);
    type("one\n\n  \ntwo \"2\""); /* blank lines ask nothing, and the last needs no end */
    end_input();
    program_finish(&program);
    ck_assert_str_eq(program.err_text, "");
    ck_assert_int_eq(program.status, 0);
    snprintf(expected, sizeof(expected), "%s\n", answer_to(CHAT(SAID("user", "one")), 4));
    ck_assert_int_eq(strncmp(program.out_text, expected, 5), 0);
    snprintf(conversation, sizeof(conversation),
             CHAT(SAID("user", "one") ",%s%.4s%s," SAID("user", "two \\\"2\\\"")),
             "{\"role\":\"assistant\",\"content\":\"", expected, "\"}");
    ck_assert_str_eq(program.out_text + 9, "\n");
    ck_assert_int_eq(strncmp(program.out_text + 5, answer_to(conversation, 4), 4), 0);
    ck_assert_uint_eq(atomic_load(&stub_counts(stub)->accepted), 2);
}
END_TEST

START_TEST(the_system_is_told_first)
{
    static const char *const system[] = {"chat",     "--max-tokens", "4", "--ignore-eos",
                                         "--system", "Be terse.",    NULL};
    start(system);
    type("one\n");
    end_input();
    program_finish(&program);
    ck_assert_uint_eq(program.out_length, 5);
    const char *answer = answer_to(CHAT(SAID("system", "Be terse.") "," SAID("user", "one")), 4);
    ck_assert_int_eq(strncmp(program.out_text, answer, 4), 0);
}
END_TEST

START_TEST(an_answer_is_shown_before_it_is_whole)
{
    const char *first = answer_to(CHAT(SAID("user", "hang")), 1);
    start(short_chat);
    type("hang\n");
    program_await(&program, first);
    ck_assert_str_eq(program.out_text, first);
    kill(program.pid, SIGTERM);
    program_finish(&program);
    ck_assert_int_eq(program.status, 130);
}
END_TEST

START_TEST(ctrl_c_cancels_the_answer_and_not_the_conversation)
{
    if (_i)
        start_typing(short_chat);
    else
        start(short_chat);
    type("hang\n");
    await_accepted(1);
    kill(program.pid, SIGINT);
    type("and on\n");
    await_accepted(2);
    if (_i)
        type("\x04");
    else
        end_input();
    program_finish(&program);
    ck_assert_int_eq(program.status, 0);
    ck_assert_uint_eq(atomic_load(&stub_counts(stub)->cancelled), 1);
    const char *last = strchr(program.out_text, '\n');
    ck_assert_msg(last != NULL && strspn(last + 1, LETTERS) == 4, "%s", program.out_text);
    ck_assert_str_eq(last + 5, "\n");
}
END_TEST

START_TEST(ctrl_c_between_answers_ends_nothing_for_somebody_who_types)
{
    start_typing(short_chat);
    program_await_error(&program, "> ");
    kill(program.pid, SIGINT);
    program_await_error(&program, "Ctrl-D ends the conversation");
    type("on\n");
    await_accepted(1);
    type("\x04");
    program_finish(&program);
    ck_assert_int_eq(program.status, 0);
    ck_assert_uint_eq(strspn(program.out_text, LETTERS), 4);
}
END_TEST

START_TEST(sigterm_ends_it_and_cancels)
{
    start(short_chat);
    if (_i)
        type("hang\n");
    else
        type("one\n");
    await_accepted(1);
    if (!_i)
        program_await(&program, "\n");
    kill(program.pid, SIGTERM);
    program_finish(&program);
    ck_assert_int_eq(program.status, 130);
}
END_TEST

START_TEST(what_the_daemon_refuses_is_told_and_the_next_line_asked)
{
    static const char *const chat[] = {"chat", "--max-tokens", "4", "--top-p", "0", NULL};
    start(chat);
    type("one\ntwo\n");
    end_input();
    program_finish(&program);
    ck_assert_int_eq(program.status, 1);
    ck_assert_str_eq(program.out_text, "");
    ck_assert_ptr_nonnull(strstr(program.err_text, "top_p"));
    ck_assert_ptr_nonnull(strstr(strchr(program.err_text, '\n') + 1, "top_p"));
}
END_TEST

START_TEST(a_daemon_that_came_back_is_asked_again)
{
    const char *path = getenv("SLUICE_SOCKET");
    char name[] = "/tmp/sluice-chat-XXXXXX";
    ck_assert_ptr_nonnull(mkdtemp(name));
    char own[64];
    snprintf(own, sizeof(own), "%s/s", name);
    ck_assert_int_eq(symlink(path, own), 0);
    setenv("SLUICE_SOCKET", own, 1);
    start_typing(short_chat);
    type("one\n");
    program_await(&program, "\n");
    stub_stop(stub);
    type("is anybody there\n");
    program_await_error(&program, "connect");
    stub = stub_start(&(struct stub_options){.text = true}, &path);
    ck_assert_int_eq(unlink(own), 0);
    ck_assert_int_eq(symlink(path, own), 0);
    type("again\n");
    await_accepted(1);
    type("\x04");
    program_finish(&program);
    ck_assert_int_eq(program.status, 0);
    ck_assert_uint_eq(program.out_length, 10);
    unlink(own);
    rmdir(name);
}
END_TEST

/* ---- texts -------------------------------------------------------------------------------------
 */

START_TEST(texts_are_printed_as_numbers_and_back)
{
    program_run(&program, "tokenize", "--prompt", "a,b", NULL);
    ck_assert_str_eq(program.out_text, "97,44,98\n");
    program_run(&program, "tokenize", "--json", "--prompt", "ab", NULL);
    ck_assert_str_eq(program.out_text, "{\"count\":2,\"tokens\":[97,98]}\n");
    program_run(&program, "detokenize", "--tokens", "97,44,98", NULL);
    ck_assert_str_eq(program.out_text, "a,b");
    program_run(&program, "detokenize", "--json", "--tokens", "34,10", NULL);
    ck_assert_str_eq(program.out_text, "{\"text\":\"\\\"\\n\"}\n");
    ck_assert_int_eq(program.status, 0);
}
END_TEST

static void through(const char *command, const char *option, const char *in)
{
    const char *const arguments[] = {command, option, NULL};
    start(arguments);
    type(in);
    end_input();
    program_finish(&program);
}

START_TEST(standard_input_is_read_whole)
{
    through("tokenize", NULL, "a\nb\n");
    ck_assert_str_eq(program.out_text, "97,10,98,10\n");
    through("tokenize", "--chat", "{}");
    ck_assert_str_eq(program.out_text, "123,125\n");
    through("detokenize", NULL, " [97, 98\n99,]\n");
    ck_assert_str_eq(program.out_text, "abc");
    through("detokenize", "--file=-", "97");
    ck_assert_str_eq(program.out_text, "a");
    through("detokenize", NULL, "");
    ck_assert_str_eq(program.out_text, "");
    ck_assert_int_eq(program.status, 0);
}
END_TEST

START_TEST(what_is_neither_is_refused)
{
    static const struct {
        const char *command, *option, *in, *says;
        int status;
    } cases[] = {
        {"tokenize", NULL, "", "the text is empty", 2},
        {"tokenize", "--file=/nonexistent/x", "", "/nonexistent/x", 2},
        {"tokenize", "--tokens=1", "", "unknown option", 2},
        {"tokenize", "--file=x", "word", "x: No such file", 2},
        {"detokenize", "word", "", "takes no argument", 2},
        {"tokenize", NULL, "\xff", "not UTF-8", 1},
        {"detokenize", NULL, "97;98", "no token's number: 97;98", 2},
        {"detokenize", NULL, "97 -1", "no token's number: -1", 2},
        {"detokenize", NULL, "9999999999", "no token's number", 2},
        {"detokenize", NULL, "256", "outside the vocabulary", 1},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        through(cases[i].command, cases[i].option, cases[i].in);
        ck_assert_msg(program.status == cases[i].status, "%zu: %d %s", i, program.status,
                      program.err_text);
        ck_assert_msg(strstr(program.err_text, cases[i].says) != NULL, "%zu: %s", i,
                      program.err_text);
        ck_assert_str_eq(program.out_text, "");
    }
    program_run(&program, "tokenize", "--prompt", "a", "--file", "-", NULL);
    ck_assert_int_eq(program.status, 2);
}
END_TEST

Suite *chat_suite(void)
{
    Suite *suite = suite_create("chat");
    TCase *tcase = tcase_create("stub");
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, every_line_of_a_pipe_has_an_answer_that_knows_all_before);
    tcase_add_test(tcase, the_system_is_told_first);
    tcase_add_test(tcase, an_answer_is_shown_before_it_is_whole);
    tcase_add_loop_test(tcase, ctrl_c_cancels_the_answer_and_not_the_conversation, 0, 2);
    tcase_add_test(tcase, ctrl_c_between_answers_ends_nothing_for_somebody_who_types);
    tcase_add_loop_test(tcase, sigterm_ends_it_and_cancels, 0, 2);
    tcase_add_test(tcase, what_the_daemon_refuses_is_told_and_the_next_line_asked);
    tcase_add_test(tcase, a_daemon_that_came_back_is_asked_again);
    tcase_add_test(tcase, texts_are_printed_as_numbers_and_back);
    tcase_add_test(tcase, standard_input_is_read_whole);
    tcase_add_test(tcase, what_is_neither_is_refused);
    suite_add_tcase(suite, tcase);
    return suite;
}
