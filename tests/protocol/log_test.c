#include "protocol/base/log.h"

#include <fcntl.h>
#include <pthread.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "protocol/base/json.h"
#include "tests/protocol/base_suites.h"

/* Each test runs in a process of its own, so that its stderr is free to be redirected. */
static char captured[1 << 16];
static int capture = -1;

static void capture_stderr(void)
{
    capture = memfd_create("stderr", 0);
    ck_assert_int_ge(capture, 0);
    ck_assert_int_eq(dup2(capture, STDERR_FILENO), STDERR_FILENO);
    unsetenv("JOURNAL_STREAM");
}

static void pretend_journal(unsigned long long inode_offset)
{
    struct stat status;
    char stream[64];
    ck_assert_int_eq(fstat(STDERR_FILENO, &status), 0);
    snprintf(stream, sizeof(stream), "%llu:%llu", (unsigned long long)status.st_dev,
             (unsigned long long)status.st_ino + inode_offset);
    setenv("JOURNAL_STREAM", stream, 1);
}

static const char *read_captured(void)
{
    ssize_t length = pread(capture, captured, sizeof(captured) - 1, 0);
    ck_assert_int_ge((int)length, 0);
    captured[length] = 0;
    return captured;
}

static void assert_matches(const char *text, const char *pattern)
{
    regex_t regex;
    ck_assert_int_eq(regcomp(&regex, pattern, REG_EXTENDED | REG_NOSUB), 0);
    ck_assert_msg(regexec(&regex, text, 0, NULL, 0) == 0, "\"%s\" does not match %s", text,
                  pattern);
    regfree(&regex);
}

#define TIME "[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{3}Z"

START_TEST(a_terminal_gets_a_time_and_the_level)
{
    capture_stderr();
    log_setup(LOG_INFO, LOG_TEXT);
    log_line(LOG_WARNING, "conn", "client %d: %s", 7, "gone");
    assert_matches(read_captured(), "^" TIME " warning conn: client 7: gone\n$");
}
END_TEST

START_TEST(the_journal_gets_its_priority_prefix)
{
    capture_stderr();
    pretend_journal(0);
    log_setup(LOG_DEBUG, LOG_TEXT);
    log_line(LOG_ERROR, "a", "1");
    log_line(LOG_WARNING, "a", "2");
    log_line(LOG_NOTICE, "a", "3");
    log_line(LOG_INFO, "a", "4");
    log_line(LOG_DEBUG, "a", "5");
    ck_assert_str_eq(read_captured(), "<3>a: 1\n<4>a: 2\n<5>a: 3\n<6>a: 4\n<7>a: 5\n");
}
END_TEST

START_TEST(a_redirected_stderr_is_not_the_journal)
{
    capture_stderr();
    pretend_journal(1);
    log_setup(LOG_INFO, LOG_TEXT);
    log_line(LOG_INFO, "main", "ready");
    assert_matches(read_captured(), "^" TIME " info main: ready\n$");
}
END_TEST

START_TEST(json_lines_are_strict_json)
{
    struct error error;
    json *line;
    capture_stderr();
    log_setup(LOG_INFO, LOG_JSON);
    log_line(LOG_NOTICE, "model", "path \"%s\"", "/m\\\xc3\xa9\xff");
    const char *text = read_captured();
    struct json_bounds bounds = {.bytes_max = 4096, .depth_max = 1};
    ck_assert_int_eq(json_parse(text, strlen(text), bounds, &line, &error), 0);
    ck_assert_uint_eq(json_count(line), 4);
    assert_matches(json_string(json_get(line, "time")), "^" TIME "$");
    ck_assert_str_eq(json_string(json_get(line, "level")), "notice");
    ck_assert_str_eq(json_string(json_get(line, "place")), "model");
    ck_assert_str_eq(json_string(json_get(line, "message")), "path \"/m\\\xc3\xa9?\"");
    json_free(line);
}
END_TEST

START_TEST(json_lines_under_the_journal_keep_the_prefix)
{
    capture_stderr();
    pretend_journal(0);
    log_setup(LOG_INFO, LOG_JSON);
    log_line(LOG_INFO, "main", "ready");
    assert_matches(read_captured(),
                   "^<6>\\{\"time\":\"" TIME
                   "\",\"level\":\"info\",\"place\":\"main\",\"message\":\"ready\"\\}\n$");
}
END_TEST

START_TEST(lines_below_the_level_are_not_written)
{
    capture_stderr();
    log_setup(LOG_WARNING, LOG_TEXT);
    ck_assert(log_enabled(LOG_ERROR) && log_enabled(LOG_WARNING));
    ck_assert(!log_enabled(LOG_NOTICE) && !log_enabled(LOG_DEBUG));
    log_line(LOG_NOTICE, "main", "no");
    ck_assert_str_eq(read_captured(), "");
    log_setup(LOG_DEBUG, LOG_TEXT);
    log_line(LOG_DEBUG, "main", "yes");
    assert_matches(read_captured(), "debug main: yes\n$");
}
END_TEST

START_TEST(a_message_cannot_begin_another_line)
{
    capture_stderr();
    pretend_journal(0);
    log_setup(LOG_INFO, LOG_TEXT);
    log_line(LOG_INFO, "conn", "a%sb", "\n<0>evil: \x1b[31m\r\x7f\xc3");
    ck_assert_str_eq(read_captured(), "<6>conn: a?<0>evil: ?[31m???b\n");
}
END_TEST

START_TEST(a_long_message_is_cut_and_still_one_line)
{
    static char text[5000];
    capture_stderr();
    memset(text, '"', sizeof(text) - 1);
    log_setup(LOG_INFO, LOG_JSON);
    log_line(LOG_INFO, "conn", "%s", text);
    struct json_bounds bounds = {.bytes_max = 4096, .depth_max = 1};
    struct error error;
    json *line;
    const char *out = read_captured();
    ck_assert_int_eq(json_parse(out, strlen(out), bounds, &line, &error), 0);
    ck_assert_uint_eq(strlen(json_string(json_get(line, "message"))), 1023);
    json_free(line);
}
END_TEST

/* Lines of `text`, and of the ones that end in "repeated N times" the sum of N. */
static int lines_and_repeats(const char *text, int *ret_repeats)
{
    int lines = 0, repeats = 0;
    for (const char *line = text; *line; line = strchr(line, '\n') + 1) {
        const char *end = strchr(line, '\n'), *told = strstr(line, " ... repeated ");
        if (told && told < end)
            repeats += atoi(told + strlen(" ... repeated "));
        else
            lines++;
    }
    *ret_repeats = repeats;
    return lines;
}

/* Runs in a child, whose exit reports what is held back; however the second falls, none is lost. */
static const char *log_in_child(int count, enum log_level level, bool differ)
{
    capture_stderr();
    log_setup(LOG_INFO, LOG_TEXT);
    pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < count; i++)
            log_line(level, "conn", "request %d", differ ? i : 0);
        exit(0);
    }
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    return read_captured();
}

START_TEST(repeated_lines_are_counted_and_told_at_the_end)
{
    int repeats;
    int lines = lines_and_repeats(log_in_child(200, LOG_WARNING, true), &repeats);
    ck_assert_int_eq(lines + repeats, 200);
    ck_assert_int_gt(repeats, 0);
    assert_matches(captured, "warning conn: request [0-9]+ ... repeated [0-9]+ times\n$");
}
END_TEST

START_TEST(equal_lines_at_info_are_counted_too)
{
    int repeats;
    int lines = lines_and_repeats(log_in_child(200, LOG_INFO, false), &repeats);
    ck_assert_int_eq(lines + repeats, 200);
    ck_assert_int_gt(repeats, 0);
}
END_TEST

START_TEST(different_lines_at_info_are_all_written)
{
    int repeats;
    int lines = lines_and_repeats(log_in_child(200, LOG_INFO, true), &repeats);
    ck_assert_int_eq(lines, 200);
    ck_assert_int_eq(repeats, 0);
}
END_TEST

#define THREADS 4
#define LINES_PER_THREAD 50

static void *log_numbers(void *first)
{
    for (int i = 0; i < LINES_PER_THREAD; i++)
        log_line(LOG_INFO, "thread", "%d", *(int *)first + i);
    return NULL;
}

START_TEST(lines_of_several_threads_stay_whole)
{
    pthread_t threads[THREADS];
    int first[THREADS];
    bool seen[THREADS * LINES_PER_THREAD] = {false};
    capture_stderr();
    /* Appending is what makes one write one line where the file is shared. */
    ck_assert_int_eq(fcntl(STDERR_FILENO, F_SETFL, O_APPEND), 0);
    pretend_journal(0);
    log_setup(LOG_INFO, LOG_TEXT);
    for (int i = 0; i < THREADS; i++) {
        first[i] = i * LINES_PER_THREAD;
        ck_assert_int_eq(pthread_create(&threads[i], NULL, log_numbers, &first[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    const char *line = read_captured();
    for (int i = 0; i < THREADS * LINES_PER_THREAD; i++) {
        int number = -1, used = 0;
        ck_assert_int_eq(sscanf(line, "<6>thread: %d%n", &number, &used), 1);
        ck_assert(number >= 0 && number < THREADS * LINES_PER_THREAD && !seen[number]);
        seen[number] = true;
        ck_assert_int_eq(line[used], '\n');
        line += used + 1;
    }
    ck_assert_str_eq(line, "");
}
END_TEST

Suite *log_suite(void)
{
    Suite *suite = suite_create("log");
    TCase *tcase = tcase_create("log");
    tcase_add_test(tcase, a_terminal_gets_a_time_and_the_level);
    tcase_add_test(tcase, the_journal_gets_its_priority_prefix);
    tcase_add_test(tcase, a_redirected_stderr_is_not_the_journal);
    tcase_add_test(tcase, json_lines_are_strict_json);
    tcase_add_test(tcase, json_lines_under_the_journal_keep_the_prefix);
    tcase_add_test(tcase, lines_below_the_level_are_not_written);
    tcase_add_test(tcase, a_message_cannot_begin_another_line);
    tcase_add_test(tcase, a_long_message_is_cut_and_still_one_line);
    tcase_add_test(tcase, repeated_lines_are_counted_and_told_at_the_end);
    tcase_add_test(tcase, equal_lines_at_info_are_counted_too);
    tcase_add_test(tcase, different_lines_at_info_are_all_written);
    tcase_add_test(tcase, lines_of_several_threads_stay_whole);
    suite_add_tcase(suite, tcase);
    return suite;
}
