/* Records of programs that are off, as they are written, read, cleared, and left by a crash. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/jobs/record.h"
#include "tests/jobs/daemon_suites.h"

static char folder[128];
static char path[JOB_PATH_MAX];

static void setup(void)
{
    snprintf(folder, sizeof(folder), "/tmp/sluice-record-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    record_name(folder, "some", path, sizeof(path));
}

static void teardown(void)
{
    unlink(path);
    rmdir(folder);
}

START_TEST(a_record_is_read_until_it_is_cleared)
{
    char reason[JOB_REASON_MAX];
    struct error error;
    ck_assert(!record_read(path, reason));
    ck_assert_int_eq(record_write(path, "it hung\nand more\n"), 0);
    ck_assert(record_read(path, reason));
    ck_assert_str_eq(reason, "it hung");
    ck_assert_int_eq(record_clear(path, &error), 0);
    ck_assert(!record_read(path, reason));
    ck_assert_int_eq(record_clear(path, &error), 0); /* and again */
}
END_TEST

/* What is there and says nothing sensible is a record all the same. */
START_TEST(a_record_that_cannot_be_read_keeps_its_program_off)
{
    static const char *const texts[] = {"", "\n", "\x1b[31m\xff", "x"};
    static const char *const reasons[] = {"its record cannot be read", "its record cannot be read",
                                          "?[31m?", "x"};
    char reason[JOB_REASON_MAX];
    ck_assert_int_eq(record_write(path, texts[_i]), 0);
    ck_assert(record_read(path, reason));
    ck_assert_str_eq(reason, reasons[_i]);
}
END_TEST

START_TEST(a_link_is_not_followed)
{
    char reason[JOB_REASON_MAX], other[256];
    snprintf(other, sizeof(other), "%s/other", folder);
    ck_assert_int_eq(symlink(other, path), 0);
    ck_assert_int_ne(record_write(path, "x"), 0);
    ck_assert_int_ne(access(other, F_OK), 0);
    ck_assert(record_read(path, reason)); /* something is there */
}
END_TEST

START_TEST(the_folder_is_made_and_its_place_is_known)
{
    struct error error;
    char found[JOB_PATH_MAX], deep[512];
    struct stat status;
    snprintf(deep, sizeof(deep), "%s/a/b", folder);
    ck_assert_msg(!record_folder(deep, true, found, sizeof(found), &error), "%s", error.text);
    ck_assert_str_eq(found, deep);
    ck_assert(stat(deep, &status) == 0 && (status.st_mode & 07777) == 0700);
    rmdir(deep);
    snprintf(deep, sizeof(deep), "%s/a", folder);
    rmdir(deep);
    setenv("STATE_DIRECTORY", folder, 1);
    ck_assert_int_eq(record_folder("", true, found, sizeof(found), &error), 0);
    ck_assert_str_eq(found, folder);
    ck_assert_int_eq(record_folder("relative", true, found, sizeof(found), &error),
                     -ERR_BAD_CONFIG);
    ck_assert_int_eq(record_folder("/proc/none", true, found, sizeof(found), &error),
                     -ERR_BAD_CONFIG);
    ck_assert_ptr_nonnull(strstr(error.text, "/proc/none"));
    ck_assert_int_eq(record_folder("/proc/none", false, found, sizeof(found), &error),
                     0); /* to look at alone */
}
END_TEST

static void crash(int how)
{
    static struct job_program programs[2];
    static const unsigned count = 2;
    const struct rlimit none = {0, 0};
    static volatile int *volatile nowhere;
    setrlimit(RLIMIT_CORE, &none);
    for (int i = 0; i < 2; i++)
        snprintf(programs[i].record, sizeof(programs[i].record), "%s", path);
    record_name(folder, "idle", programs[1].record, sizeof(programs[1].record));
    atomic_store(&programs[0].under_way, 1);
    signal(SIGSEGV, SIG_DFL); /* also under a sanitizer, which would have its own say */
    signal(SIGABRT, SIG_DFL);
    signal(SIGBUS, SIG_DFL);
    record_on_crash(programs, &count);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    if (how == 0)
        raise(SIGSEGV);
#endif
    if (how == 0)
        *nowhere = 1;
    else if (how == 1)
        abort();
    else
        raise(SIGBUS);
    _exit(0);
}

START_TEST(a_crash_leaves_records_of_what_was_on_the_device)
{
    static const int signals[] = {SIGSEGV, SIGABRT, SIGBUS};
    char reason[JOB_REASON_MAX], idle[JOB_PATH_MAX];
    int status = 0;
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0)
        crash(_i);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == signals[_i], "status %d", status);
    ck_assert(record_read(path, reason));
    ck_assert_ptr_nonnull(strstr(reason, "crashed"));
    record_name(folder, "idle", idle, sizeof(idle));
    ck_assert(!record_read(idle, reason));
}
END_TEST

Suite *record_suite(void)
{
    Suite *suite = suite_create("record");
    TCase *tests = tcase_create("record");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, a_record_is_read_until_it_is_cleared);
    tcase_add_loop_test(tests, a_record_that_cannot_be_read_keeps_its_program_off, 0, 4);
    tcase_add_test(tests, a_link_is_not_followed);
    tcase_add_test(tests, the_folder_is_made_and_its_place_is_known);
    tcase_add_loop_test(tests, a_crash_leaves_records_of_what_was_on_the_device, 0, 3);
    suite_add_tcase(suite, tests);
    return suite;
}
