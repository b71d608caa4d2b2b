/* A daemon that is started without descriptors: the standard ones, or too few of any. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/daemon/daemon_suites.h"
#include "tests/daemon/rig/spawn.h"

static struct spawn spawn;
static const char *const null_model[] = {"--model", "synthetic:null", "--device", "cpu", NULL};

static void setup(void)
{
    spawn_make(&spawn);
}

static void teardown(void)
{
    spawn_free(&spawn);
}

static void expect_null(int fd)
{
    char path[64], target[64];
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)spawn.pid, fd);
    ssize_t length = readlink(path, target, sizeof(target));
    ck_assert_int_eq(length, (ssize_t)strlen("/dev/null"));
    ck_assert_mem_eq(target, "/dev/null", (size_t)length);
}

START_TEST(a_daemon_without_standard_descriptors_serves_and_ends)
{
    struct wire wire;
    struct frame frame;
    spawn.closed = (unsigned)_i;
    spawn_start(&spawn, null_model, NULL);
    spawn_await_ready(&spawn);
    for (int fd = 0; fd <= STDERR_FILENO; fd++)
        if (_i >> fd & 1)
            expect_null(fd);
    wire_open(&wire, &spawn);
    wire_generate(&wire, 1, 1, 5);
    wire_find(&wire, FRAME_DONE, &frame);
    wire_close(&wire);
    kill(spawn.pid, SIGTERM);
    ck_assert_int_eq(spawn_wait(&spawn), 0);
}
END_TEST

static const char *const printing[][6] = {
    {"--help"},
    {"--version"},
    {"--print-config"},
    {"--model", "synthetic:null", "--device", "cpu", "--check"}};

START_TEST(what_cannot_be_printed_is_an_error)
{
    spawn.closed = 1u << STDOUT_FILENO;
    spawn_start(&spawn, printing[_i], NULL);
    ck_assert_int_eq(spawn_wait(&spawn), 74);
    ck_assert(spawn_logged(&spawn, "standard output: Bad file descriptor"));
}
END_TEST

START_TEST(what_does_not_fit_on_the_disk_is_an_error)
{
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        dup2(open("/dev/full", O_WRONLY | O_CLOEXEC), STDOUT_FILENO);
        dup2(open(spawn.log, O_WRONLY | O_CREAT | O_CLOEXEC, 0600), STDERR_FILENO);
        execl(SLUICED, "sluiced", printing[_i][0], NULL);
        _exit(127);
    }
    spawn.pid = pid;
    ck_assert_int_eq(spawn_wait(&spawn), 74);
    ck_assert(spawn_logged(&spawn, "standard output: No space left on device"));
}
END_TEST

Suite *standard_suite(void)
{
    Suite *suite = suite_create("standard");
    TCase *tcase = tcase_create("standard");
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, a_daemon_without_standard_descriptors_serves_and_ends, 0, 8);
    tcase_add_loop_test(tcase, what_cannot_be_printed_is_an_error, 0,
                        (int)(sizeof(printing) / sizeof(printing[0])));
    tcase_add_loop_test(tcase, what_does_not_fit_on_the_disk_is_an_error, 0, 3);
    suite_add_tcase(suite, tcase);
    return suite;
}
