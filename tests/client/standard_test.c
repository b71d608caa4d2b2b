/* Every command without standard descriptors, and with an output that takes nothing. */
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/client/command_suites.h"
#include "tests/client/program.h"
#include "tests/client/stub.h"

#define LINES "{\"tokens\":[1,2,3],\"max_tokens\":2}\n"

static const struct {
    const char *arguments[8];
    const char *input; /* what it reads; NULL = nothing */
    bool forever;      /* as long as somebody reads */
} commands[] = {
    {.arguments = {"--help"}},
    {.arguments = {"--version"}},
    {.arguments = {"help"}},
    {.arguments = {"help", "score"}},
    {.arguments = {"generate", "--help"}},
    {.arguments = {"bench", "-h"}},
    {.arguments = {"generate", "--tokens", "1,2,3", "--max-tokens", "2"}},
    {.arguments = {"generate", "--json", "--tokens", "1,2,3", "--max-tokens", "2"}},
    {.arguments = {"generate", "--max-tokens", "2", "--file", "-"}, .input = LINES},
    {.arguments = {"score", "--tokens", "1,2,3"}},
    {.arguments = {"embed", "--json", "--tokens", "1,2,3"}},
    {.arguments = {"tokenize"}, .input = "abc"},
    {.arguments = {"tokenize", "--file", "-"}, .input = "abc"},
    {.arguments = {"tokenize", "--prompt", "abc"}},
    {.arguments = {"detokenize"}, .input = "1,2"},
    {.arguments = {"detokenize", "--json", "--tokens", "1,2"}},
    {.arguments = {"chat"}, .input = "hello\nworld\n"},
    {.arguments = {"stats"}},
    {.arguments = {"stats", "--json"}},
    {.arguments = {"stats", "--watch"}, .forever = true},
    {.arguments = {"top"}, .forever = true},
    {.arguments = {"health"}},
    {.arguments = {"health", "--json"}},
    {.arguments = {"model"}},
    {.arguments = {"drain"}},
    {.arguments = {"resume"}},
    {.arguments = {"bench", "--num-prompts", "2", "--random-input-len", "4",
                   "--random-output-len=2"}},
};
#define COMMANDS ((int)(sizeof(commands) / sizeof(commands[0])))

static struct stub *stub;
static struct program program;

static void setup(void)
{
    const char *path;
    stub = stub_start(&(struct stub_options){.text = true}, &path);
    setenv("SLUICE_SOCKET", path, 1);
}

static void teardown(void)
{
    stub_stop(stub);
}

/* An input that holds the text, and has ended behind it. */
static int open_input(const char *text)
{
    int ends[2];
    if (!text)
        return -1;
    ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
    ck_assert_int_eq(write(ends[1], text, strlen(text)), (ssize_t)strlen(text));
    close(ends[1]);
    return ends[0];
}

static void run(int command, int to, unsigned closed)
{
    int in = open_input(commands[command].input);
    program_start_on(&program, in, to, closed, commands[command].arguments);
    if (in >= 0)
        close(in);
    program_finish(&program);
}

START_TEST(a_command_without_standard_descriptors_works_or_says_that_it_cannot)
{
    for (unsigned closed = 0; closed < 8; closed++) {
        bool no_input = closed & 1 && commands[_i].input, no_output = closed & 2;
        if (commands[_i].forever && !no_output)
            continue;
        run(_i, -1, closed);
        const char *name = commands[_i].arguments[0];
        int right = no_input ? 2 : no_output ? 1 : 0;
        ck_assert_msg(program.status == right, "%s without %u: status %d, must be %d: %s", name,
                      closed, program.status, right, program.err_text);
        if (!(closed & 4) && right)
            ck_assert_msg(strstr(program.err_text, "Bad file descriptor"), "%s without %u: %s",
                          name, closed, program.err_text);
        ck_assert_msg(right != 0 || program.out_length > 0, "%s without %u says nothing", name,
                      closed);
    }
}
END_TEST

START_TEST(a_full_disk_is_told_and_not_passed_over)
{
    int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    ck_assert_int_ge(full, 0);
    run(_i, full, 0);
    close(full);
    ck_assert_msg(program.status == 1, "%s: status %d", commands[_i].arguments[0], program.status);
    ck_assert_msg(strstr(program.err_text, "standard output: No space left"), "%s: %s",
                  commands[_i].arguments[0], program.err_text);
}
END_TEST

Suite *standard_suite(void)
{
    Suite *suite = suite_create("standard");
    TCase *tcase = tcase_create("standard");
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, a_command_without_standard_descriptors_works_or_says_that_it_cannot,
                        0, COMMANDS);
    tcase_add_loop_test(tcase, a_full_disk_is_told_and_not_passed_over, 0, COMMANDS);
    suite_add_tcase(suite, tcase);
    return suite;
}
