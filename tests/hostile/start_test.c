/* Both programs, started by somebody who means harm: without standard descriptors, with few of any,
 * with an output that takes nothing, with names and numbers that are none. `ctest -R hostile_start`
 * runs it. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/base/option_table.h"
#include "tests/client/program.h"
#include "tests/hostile/scene.h"
#include "tests/hostile/start_suites.h"

static struct scene scene;
static struct program program;

static void setup(void)
{
    spawn_make(&scene.spawn);
}

static void teardown(void)
{
    scene_free(&scene);
}

/* ---- standard descriptors ----------------------------------------------------------------------
 */

static bool is_null_device(int fd)
{
    char path[64], target[64] = "";
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)scene.spawn.pid, fd);
    return readlink(path, target, sizeof(target) - 1) > 0 && strcmp(target, "/dev/null") == 0;
}

START_TEST(a_daemon_without_standard_descriptors_serves_and_ends)
{
    scene.spawn.closed = (unsigned)_i;
    scene_start(&scene, scene_null_model, NULL);
    for (int fd = 0; fd <= STDERR_FILENO; fd++)
        ck_assert_msg(!(_i >> fd & 1) || is_null_device(fd), "descriptor %d", fd);
    scene_end(&scene);
}
END_TEST

static void ask(const char *const *arguments, const char *input, int to, unsigned closed)
{
    int ends[2];
    ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
    ck_assert_int_eq(write(ends[1], input, strlen(input)), (ssize_t)strlen(input));
    close(ends[1]);
    program_start_on(&program, ends[0], to, closed, arguments);
    close(ends[0]);
    program_finish(&program);
}

/* What it prints goes nowhere then, and least of all to the daemon. */
START_TEST(a_client_without_standard_descriptors_harms_nobody)
{
    const char *const socket = scene.spawn.socket;
    const char *const commands[][6] = {
        {"--socket", socket, "generate", "--file", "-"},
        {"--socket", socket, "stats"},
        {"--socket", socket, "generate", "--tokens", "1,2,3"},
    };
    scene_start(&scene, scene_null_model, NULL);
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
        for (unsigned closed = 1; closed < 8; closed++) {
            int right = closed & 1 && i == 0 ? 2 : closed & 2 ? 1 : 0;
            ask(commands[i], "{\"tokens\":[1,2,3],\"max_tokens\":2}\n", -1, closed);
            ck_assert_msg(program.status == right, "command %zu without %u: %d, must be %d: %s", i,
                          closed, program.status, right, program.err_text);
        }
    scene_end(&scene);
    ck_assert(!spawn_logged(&scene.spawn, "is closed: bad_"));
}
END_TEST

/* ---- an output that takes nothing --------------------------------------------------------------
 */

static const char *const printing[][6] = {
    {"--help"},
    {"--version"},
    {"--print-config"},
    {"--model", "synthetic:null", "--device", "cpu", "--check"}};
#define PRINTING (sizeof(printing) / sizeof(printing[0]))

/* Nothing but these words; what it prints goes to the file. */
static int daemon_on(const char *output, const char *const *words)
{
    const char *argv[12] = {"sluiced", "--module-dir", SLUICE_MODULES};
    int count = 3;
    for (int i = 0; i < 6 && words[i]; i++)
        argv[count++] = words[i];
    scene.spawn.pid = fork();
    ck_assert_int_ge(scene.spawn.pid, 0);
    if (scene.spawn.pid == 0) {
        dup2(open(output, O_WRONLY | O_CLOEXEC), STDOUT_FILENO);
        dup2(open(scene.spawn.log, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600), STDERR_FILENO);
        execv(SLUICED, (char *const *)argv);
        _exit(127);
    }
    return spawn_wait(&scene.spawn);
}

START_TEST(what_a_daemon_cannot_print_is_an_error)
{
    for (size_t i = 0; i < PRINTING; i++) {
        ck_assert_int_eq(daemon_on("/dev/full", printing[i]), 74);
        ck_assert(spawn_logged(&scene.spawn, "standard output: No space left on device"));
        scene.spawn.closed = 1u << STDOUT_FILENO;
        spawn_start(&scene.spawn, printing[i], NULL);
        ck_assert_int_eq(spawn_wait(&scene.spawn), 74);
        ck_assert(spawn_logged(&scene.spawn, "standard output: Bad file descriptor"));
    }
}
END_TEST

START_TEST(what_a_client_cannot_print_is_an_error)
{
    const char *const socket = scene.spawn.socket;
    const char *const commands[][6] = {
        {"--help"},
        {"--version"},
        {"bench", "--help"},
        {"--socket", socket, "health"},
        {"--socket", socket, "generate", "--tokens", "1,2,3"},
    };
    int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    ck_assert_int_ge(full, 0);
    scene_start(&scene, scene_null_model, NULL);
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        ask(commands[i], "", full, 0);
        ck_assert_msg(program.status == 1 &&
                          strstr(program.err_text, "standard output: No space left on device"),
                      "command %zu: %d %s", i, program.status, program.err_text);
    }
    close(full);
    scene_end(&scene);
}
END_TEST

/* ---- few descriptors ---------------------------------------------------------------------------
 */

/* With each one more it gets a little further: files of the model, keys, sockets, a profile. */
START_TEST(a_start_that_lacks_descriptors_is_worth_another)
{
    struct spawn *spawn = &scene.spawn;
    char keys[96], http[112], profile[96];
    snprintf(keys, sizeof(keys), "%s/keys", spawn->directory);
    snprintf(http, sizeof(http), "unix:%s/h.sock", spawn->directory);
    snprintf(profile, sizeof(profile), "%s/profile", spawn->directory);
    FILE *file = fopen(keys, "w");
    ck_assert_ptr_nonnull(file);
    fputs("a key-0123456789abcdef0123456789\n", file);
    fclose(file);
    const char *const arguments[] = {"--model",         "deploy/demo-model",
                                     "--device",        "cpu",
                                     "--cpu-threads",   "1",
                                     "--http",          http,
                                     "--api-key-file",  keys,
                                     "--profile-steps", "3",
                                     profile,           NULL};
    int starved = 0, status = 0;
    unsigned descriptors;
    for (descriptors = 5; descriptors < 60; descriptors++) {
        spawn->descriptors = descriptors;
        spawn_start(spawn, arguments, NULL);
        while (!waitpid(spawn->pid, &status, WNOHANG) && !spawn_logged(spawn, "is ready after"))
            usleep(5000);
        if (spawn_logged(spawn, "is ready after"))
            break;
        spawn->pid = 0;
        ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 75, "%u descriptors: status %x",
                      descriptors, status);
        starved++;
    }
    ck_assert_uint_lt(descriptors, 60);
    ck_assert_int_ge(starved, 10);
    ck_assert(!spawn_logged(spawn, "texts are refused"));
    kill(spawn->pid, SIGTERM);
    ck_assert_int_eq(spawn_wait(spawn), 0);
    unlink(keys);
    unlink(profile);
}
END_TEST

/* ---- names and numbers that are none -----------------------------------------------------------
 */

static int run_daemon(const char *flag, const char *value)
{
    const char *const arguments[6] = {"--model", "synthetic:null", flag, value, "--print-config"};
    return daemon_on("/dev/null", arguments);
}

/* Copies the word behind `text`. */
static bool word_behind(const char *in, const char *text, char *word, size_t size)
{
    const char *at = strstr(in, text);
    size_t length = at ? strcspn(at += strlen(text), " \n,;)") : 0;
    if (length == 0 || length >= size)
        return false;
    memcpy(word, at, length);
    word[length] = '\0';
    return true;
}

static const char *logged(void)
{
    static char text[1 << 16];
    FILE *file = fopen(scene.spawn.log, "r");
    ck_assert_ptr_nonnull(file);
    text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
    fclose(file);
    return text;
}

/* A number beyond is refused by the option's name and by bounds which, when given, are taken. */
START_TEST(a_number_that_is_refused_names_bounds_that_are_taken)
{
    const struct option *option = &option_table[_i];
    char flag[80], least[64], most[64];
    if (option->kind != OPTION_COUNT && option->kind != OPTION_BYTES && option->kind != OPTION_TIME)
        return;
    snprintf(flag, sizeof(flag), "--%s", option->name);
    const char *const beyond = option->kind == OPTION_TIME ? "9999999999s" : "99999999999999999";
    ck_assert_msg(run_daemon(flag, beyond) == 64, "%s %s", flag, logged());
    ck_assert_msg(strstr(logged(), flag) && word_behind(logged(), "between ", least, 64) &&
                      word_behind(logged(), " and ", most, 64),
                  "%s: %s", flag, logged());
    int code = run_daemon(flag, least);
    ck_assert_msg(code != 64 || !strstr(logged(), "between"), "%s %s: %s", flag, least, logged());
    code = run_daemon(flag, most);
    ck_assert_msg(code != 64 || !strstr(logged(), "between"), "%s %s: %s", flag, most, logged());
    ck_assert_int_eq(run_daemon(flag, ""), 64);
    ck_assert_msg(strstr(logged(), flag) != NULL, "%s: %s", flag, logged());
}
END_TEST

static const struct {
    const char *command, *flag, *value;
} numbers[] = {
    {"bench", "request-rate", "-1"},
    {"bench", "request-rate", "0.0000001"},
    {"bench", "burstiness", "-1"},
    {"bench", "num-prompts", "-1"},
    {"generate", "max-tokens", "-1"},
    {"generate", "temperature", "-1"},
    {"generate", "temperature", "1e30"},
    {"generate", "top-p", "7"},
    {"generate", "n", "-5"},
    {"generate", "deadline-ms", "-5"},
};

/* Nobody listens at the socket, so what is taken ends with 3. */
START_TEST(so_does_a_client)
{
    char flag[80], word[64];
    snprintf(flag, sizeof(flag), "--%s", numbers[_i].flag);
    const char *arguments[] = {
        "--socket", scene.spawn.socket, numbers[_i].command, flag, numbers[_i].value, NULL, NULL,
        NULL};
    if (strcmp(numbers[_i].command, "generate") == 0) {
        arguments[5] = "--tokens";
        arguments[6] = "1,2,3";
    }
    ask(arguments, "", -1, 0);
    ck_assert_msg(program.status == 2 && strstr(program.err_text, numbers[_i].flag), "%s: %d %s",
                  flag, program.status, program.err_text);
    bool told = word_behind(program.err_text, "at least ", word, sizeof(word)) ||
                word_behind(program.err_text, "whole number, ", word, sizeof(word)) ||
                word_behind(program.err_text, "must be ", word, sizeof(word));
    ck_assert_msg(told && strlen(word) <= 10, "%s: %s", flag, program.err_text);
    arguments[4] = word;
    ask(arguments, "", -1, 0);
    ck_assert_msg(program.status == 3, "%s %s: %d %s", flag, word, program.status,
                  program.err_text);
}
END_TEST

START_TEST(a_name_of_nothing_is_refused_by_its_name)
{
    static const char *const names[] = {"--socket", "--instance"};
    for (size_t i = 0; i < 2; i++) {
        const char *const arguments[] = {names[i], "", "health", NULL};
        ask(arguments, "", -1, 0);
        ck_assert_msg(program.status == 2 && strstr(program.err_text, names[i]) &&
                          strstr(program.err_text, "empty"),
                      "%s: %d %s", names[i], program.status, program.err_text);
    }
    static const char *const empty[6] = {"--model", "synthetic:null", "--socket", ""};
    ck_assert_int_eq(daemon_on("/dev/null", empty), 64);
    ck_assert_msg(strstr(logged(), "--socket: the path is empty") != NULL, "%s", logged());
}
END_TEST

Suite *start_suite(void)
{
    Suite *suite = suite_create("start");
    TCase *tcase = tcase_create("start");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, a_daemon_without_standard_descriptors_serves_and_ends, 0, 8);
    tcase_add_test(tcase, a_client_without_standard_descriptors_harms_nobody);
    tcase_add_test(tcase, what_a_daemon_cannot_print_is_an_error);
    tcase_add_test(tcase, what_a_client_cannot_print_is_an_error);
    tcase_add_test(tcase, a_start_that_lacks_descriptors_is_worth_another);
    tcase_add_loop_test(tcase, a_number_that_is_refused_names_bounds_that_are_taken, 0,
                        (int)option_count);
    tcase_add_loop_test(tcase, so_does_a_client, 0, (int)(sizeof(numbers) / sizeof(numbers[0])));
    tcase_add_test(tcase, a_name_of_nothing_is_refused_by_its_name);
    suite_add_tcase(suite, tcase);
    return suite;
}
