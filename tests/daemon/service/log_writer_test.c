/* The log's thread. Each test logs in a process of its own, whose stderr is a pipe that is read late,
 * never, or not by anybody. */
#include "daemon/service/log_writer.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "protocol/base/log.h"
#include "tests/daemon/daemon_suites.h"

#define TIMEOUTS_MS 30000
#define SHARED 64

static int ends[2];       /* of the pipe that is the child's stderr */
static int word[2];       /* from the parent to the child: go on */
static volatile uint64_t *dropped; /* what the child saw; shared */
static atomic_bool *logged;        /* the child has logged all it will; shared */
static char text[4u << 20];

static void setup(void)
{
    ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
    ck_assert_int_eq(pipe2(word, O_CLOEXEC), 0);
    void *shared = mmap(NULL, SHARED, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(shared, MAP_FAILED);
    dropped = shared;
    logged = (atomic_bool *)(dropped + 1);
}

static void teardown(void)
{
    for (int i = 0; i < 2; i++) {
        if (ends[i] >= 0)
            close(ends[i]);
        close(word[i]);
    }
    munmap((void *)(uintptr_t)dropped, SHARED);
}

static void await_word(void)
{
    char byte;
    (void)!read(word[0], &byte, 1);
}

/* In the child: what is logged goes to `fd`, by the thread. */
static void begin(int fd)
{
    struct error error;
    unsetenv("JOURNAL_STREAM");
    dup2(fd, STDERR_FILENO);
    log_setup(LOG_INFO, LOG_TEXT);
    if (log_writer_start(&error))
        _exit(3);
}

static void log_numbers(uint32_t from, uint32_t to)
{
    for (uint32_t i = from; i < to; i++)
        log_line(LOG_INFO, "test", "number %u of the lines that this child logs", i);
    *dropped = log_dropped();
}

static void await_logged(void)
{
    while (!atomic_load(logged))
        poll(NULL, 0, 1);
}

static int status_of(pid_t child)
{
    int status;
    for (int tries = 0; tries < TIMEOUTS_MS / 10; tries++) {
        if (waitpid(child, &status, WNOHANG) == child)
            return status;
        poll(NULL, 0, 10);
    }
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    ck_abort_msg("the child does not end");
}

/* Reads until the text holds `what`, or to the end of the pipe when NULL. */
static void read_until(const char *what)
{
    size_t length = strlen(text);
    while (!what || !strstr(text, what)) {
        struct pollfd readable = {.fd = ends[0], .events = POLLIN};
        ck_assert_int_eq(poll(&readable, 1, TIMEOUTS_MS), 1);
        ssize_t got = read(ends[0], text + length, sizeof(text) - 1 - length);
        ck_assert(got > 0 || (got == 0 && !what));
        if (got == 0)
            return;
        length += (size_t)got;
        text[length] = '\0';
    }
}

static void close_write_end(void)
{
    close(ends[1]);
    ends[1] = -1;
}

/* Numbers of whole lines from `number` on without a gap; the first that is not there. */
static uint32_t count_numbers(const char **at, uint32_t number)
{
    for (;; number++) {
        const char *said = strstr(*at, "number ");
        const char *end = strchr(*at, '\n');
        unsigned seen;
        if (!said || !end || said > end)
            return number;
        ck_assert_int_eq(sscanf(said, "number %u of the lines that this child logs\n", &seen), 1);
        ck_assert_uint_eq(seen, number);
        *at = end + 1;
    }
}

START_TEST(a_pipe_that_nobody_reads_holds_up_neither_lines_nor_the_end)
{
    pid_t child = fork();
    if (child == 0) {
        begin(ends[1]);
        log_numbers(0, 40000);
        exit(0);
    }
    ck_assert_int_eq(status_of(child), 0);
    ck_assert_uint_gt(*dropped, 0);
}
END_TEST

START_TEST(what_was_dropped_is_told_at_its_place_when_room_is_back)
{
    const char *at = text;
    unsigned long long told;
    pid_t child = fork();
    if (child == 0) {
        begin(ends[1]);
        log_numbers(0, 40000);
        log_line(LOG_ERROR, "test", "grave lines still find room");
        atomic_store(logged, true);
        await_word();
        log_numbers(40000, 40100);
        exit(0);
    }
    close_write_end();
    text[0] = '\0';
    await_logged();
    read_until("grave lines still find room\n");
    read_until("lines were dropped");
    ck_assert_int_eq(write(word[1], "x", 1), 1);
    read_until(NULL);
    ck_assert_int_eq(status_of(child), 0);
    uint32_t kept = count_numbers(&at, 0);
    ck_assert_uint_gt(kept, 1000);
    ck_assert_ptr_nonnull(strstr(at, "error test: grave lines still find room\n"));
    at = strchr(at, '\n') + 1;
    at = strstr(at, "warning log: ");
    ck_assert_ptr_nonnull(at);
    ck_assert_int_eq(sscanf(at, "warning log: %llu lines were dropped", &told), 1);
    ck_assert_uint_eq(kept + told, 40000);
    ck_assert_uint_eq(*dropped, told);
    at = strchr(at, '\n') + 1;
    ck_assert_uint_eq(count_numbers(&at, 40000), 40100);
    ck_assert_str_eq(at, "");
}
END_TEST

/* With another process's O_NONBLOCK on the pipe, too: then the thread waits by poll(). */
START_TEST(a_reader_who_comes_late_gets_every_line)
{
    const char *at = text;
    if (_i)
        ck_assert_int_eq(fcntl(ends[1], F_SETFL, O_NONBLOCK), 0);
    pid_t child = fork();
    if (child == 0) {
        begin(ends[1]);
        log_numbers(0, 5000);
        atomic_store(logged, true);
        await_word();
        log_writer_flush();
        _exit(*dropped != 0);
    }
    close_write_end();
    text[0] = '\0';
    await_logged();
    read_until("number 4999 of the lines that this child logs\n");
    ck_assert_int_eq(write(word[1], "x", 1), 1);
    read_until(NULL);
    ck_assert_int_eq(status_of(child), 0);
    ck_assert_uint_eq(count_numbers(&at, 0), 5000);
    ck_assert_str_eq(at, "");
}
END_TEST

START_TEST(repeated_lines_are_told_before_exit_and_before__exit)
{
    pid_t child = fork();
    if (child == 0) {
        begin(ends[1]);
        for (int i = 0; i < 100; i++)
            log_line(LOG_WARNING, "test", "the same");
        if (_i == 0)
            exit(0);
        log_writer_flush();
        _exit(0);
    }
    close_write_end();
    text[0] = '\0';
    read_until(NULL);
    ck_assert_int_eq(status_of(child), 0);
    ck_assert_ptr_nonnull(strstr(text, "the same ... repeated "));
    ck_assert_ptr_nonnull(strstr(text, " times\n"));
}
END_TEST

START_TEST(lines_that_a_full_disk_refuses_are_counted)
{
    pid_t child = fork();
    if (child == 0) {
        begin(open("/dev/full", O_WRONLY));
        log_numbers(0, 1000);
        log_writer_flush();
        *dropped = log_dropped();
        exit(0);
    }
    ck_assert_int_eq(status_of(child), 0);
    ck_assert_uint_eq(*dropped, 1000);
}
END_TEST

static void fill_pipe(void)
{
    static char bytes[4096];
    int flags = fcntl(ends[1], F_GETFL);
    fcntl(ends[1], F_SETFL, flags | O_NONBLOCK);
    while (write(ends[1], bytes, sizeof(bytes)) > 0)
        continue;
    fcntl(ends[1], F_SETFL, flags);
}

/* By the thread, and without it. */
START_TEST(last_words_do_not_keep_a_process_that_aborts)
{
    fill_pipe();
    pid_t child = fork();
    if (child == 0) {
        if (_i)
            begin(ends[1]);
        else
            dup2(ends[1], STDERR_FILENO);
        log_die("test", "something does not hold");
    }
    int status = status_of(child);
    ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}
END_TEST

START_TEST(last_words_are_written_after_the_lines_before_them)
{
    pid_t child = fork();
    if (child == 0) {
        begin(ends[1]);
        log_numbers(0, 100);
        log_die("test", "something\ndoes not hold");
    }
    const char *at = text;
    close_write_end();
    text[0] = '\0';
    read_until(NULL);
    int status = status_of(child);
    ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    ck_assert_uint_eq(count_numbers(&at, 0), 100);
    ck_assert_ptr_nonnull(strstr(at, "error test: something?does not hold\n"));
}
END_TEST

/* The thread is the parent's alone. */
START_TEST(a_forked_child_writes_its_lines_itself)
{
    pid_t child = fork();
    if (child == 0) {
        begin(ends[1]);
        pid_t grandchild = fork();
        if (grandchild == 0) {
            log_numbers(7, 8);
            _exit(0);
        }
        int status;
        _exit(waitpid(grandchild, &status, 0) != grandchild || status);
    }
    close_write_end();
    text[0] = '\0';
    read_until(NULL);
    ck_assert_int_eq(status_of(child), 0);
    ck_assert_ptr_nonnull(strstr(text, "number 7 of"));
}
END_TEST

Suite *log_writer_suite(void)
{
    Suite *suite = suite_create("log_writer");
    TCase *tcase = tcase_create("log_writer");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, a_pipe_that_nobody_reads_holds_up_neither_lines_nor_the_end);
    tcase_add_test(tcase, what_was_dropped_is_told_at_its_place_when_room_is_back);
    tcase_add_loop_test(tcase, a_reader_who_comes_late_gets_every_line, 0, 2);
    tcase_add_loop_test(tcase, repeated_lines_are_told_before_exit_and_before__exit, 0, 2);
    tcase_add_test(tcase, lines_that_a_full_disk_refuses_are_counted);
    tcase_add_loop_test(tcase, last_words_do_not_keep_a_process_that_aborts, 0, 2);
    tcase_add_test(tcase, last_words_are_written_after_the_lines_before_them);
    tcase_add_test(tcase, a_forked_child_writes_its_lines_itself);
    suite_add_tcase(suite, tcase);
    return suite;
}
