/* What the daemon writes, and a log or a profile that nobody reads. */
#include "tests/daemon/daemon_suites.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "protocol/message.h"
#include "tests/daemon/rig/spawn.h"

static struct spawn spawn;
static struct wire wire;
static const char *const null_model[] = {"--model", "synthetic:null", "--device", "cpu", NULL};

static void setup(void)
{
    spawn_make(&spawn);
}

static void teardown(void)
{
    spawn_free(&spawn);
}

#define REQUESTS_UNREAD 12000
#define REQUESTS_UNDER_WAY 500

/* Requests of one sequence each, so many under way that answers and not round trips take the time.
 */
static void ask_many(uint32_t count)
{
    uint64_t sent = 0;
    for (uint32_t answered = 0; answered < count; answered++) {
        for (; sent < count && sent - answered < REQUESTS_UNDER_WAY; sent++)
            wire_generate(&wire, 1 + sent, 1, 1);
        ck_assert_int_eq(wire_done(&wire).finish, FINISH_LENGTH);
    }
}

static uint64_t lines_dropped(void)
{
    struct frame frame;
    unsigned long long count;
    wire_control(&wire, FRAME_STATS, "");
    wire_find(&wire, FRAME_STATS, &frame);
    const char *figure = memmem(frame.head, frame.head_length, "\"log_lines_dropped_total\":", 26);
    ck_assert_ptr_nonnull(figure);
    ck_assert_int_eq(sscanf(figure + 26, "%llu", &count), 1);
    return count;
}

/* Whether it is said how many were dropped, until the log says `what`. */
static bool gap_is_told(int log, const char *what, uint64_t count)
{
    static char text[8u << 20];
    char told[64];
    size_t length = 0;
    snprintf(told, sizeof(told), " %llu lines were dropped", (unsigned long long)count);
    while (!memmem(text, length, what, strlen(what))) {
        struct pollfd readable = {.fd = log, .events = POLLIN};
        ck_assert_int_eq(poll(&readable, 1, SPAWN_PATIENCE_MS), 1);
        ssize_t got = read(log, text + length, sizeof(text) - length);
        ck_assert_int_gt((int)got, 0);
        length += (size_t)got;
    }
    return memmem(text, length, told, strlen(told)) != NULL;
}

/* The daemon's stderr is a pipe that the test holds open: nobody reads it, or nobody yet. */
START_TEST(a_log_that_nobody_reads_stops_neither_requests_nor_the_end)
{
    const char *const arguments[] = {"--model",           "synthetic:null", "--device", "cpu",
                                     "--queue-sequences", "1000",           NULL};
    ck_assert_int_eq(mkfifo(spawn.log, 0600), 0);
    int log = open(spawn.log, O_RDWR | O_CLOEXEC);
    ck_assert_int_ge(log, 0);
    spawn_start(&spawn, arguments, NULL);
    spawn_await_ready(&spawn);
    wire_open(&wire, &spawn);
    ask_many(REQUESTS_UNREAD);
    uint64_t dropped = lines_dropped();
    ck_assert_uint_gt(dropped, 0);
    if (_i == 0) {
        ck_assert(gap_is_told(log, "lines were dropped: ", dropped));
        wire_generate(&wire, 1, 1, 1);
        ck_assert_int_eq(wire_done(&wire).finish, FINISH_LENGTH);
        ck_assert_uint_eq(lines_dropped(), dropped);
    }
    kill(spawn.pid, SIGTERM);
    ck_assert_int_eq(spawn_wait(&spawn), 0);
    wire_close(&wire);
    close(log);
}
END_TEST

/* Summary and file go to pipes that take no more; the one thread of the pool serves texts. */
START_TEST(a_profile_that_nobody_reads_keeps_no_thread_of_the_pool)
{
    static char bytes[4096], text[9000];
    static unsigned char question[16384];
    char path[112];
    struct frame frame;
    snprintf(path, sizeof(path), "%s/profile", spawn.directory);
    const char *const arguments[] = {
        "--model", "synthetic:null", "--device", "cpu", "--profile-steps",
        "2",       "--profile-file", path,       NULL};
    static const char *const environment[] = {"UV_THREADPOOL_SIZE=1", NULL};
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    int pipe_fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
    ck_assert_int_ge(pipe_fd, 0);
    while (write(pipe_fd, bytes, sizeof(bytes)) > 0)
        continue;
    spawn_start(&spawn, arguments, environment);
    spawn_await_ready(&spawn);
    wire_open(&wire, &spawn);
    wire_generate(&wire, 1, 1, 20);
    ck_assert_int_eq(wire_done(&wire).finish, FINISH_LENGTH);
    while (!spawn_logged(&spawn, "profile: replica 0")) /* the summary: the file is next */
        usleep(1000);
    memset(text, 'a', sizeof(text));
    const struct message_tokenize ask = {.text = text, .length = sizeof(text)};
    size_t length = message_encode_tokenize(question, sizeof(question), 2, &ask);
    ck_assert_uint_gt(length, sizeof(text));
    wire_send(&wire, question, length);
    wire_find(&wire, FRAME_ERROR, &frame); /* that the text is too long, found by the pool */
    wire_close(&wire);
    close(pipe_fd);
    unlink(path);
}
END_TEST

/* The process is gone although its last words are not read, by whichever way it goes. */
START_TEST(a_log_that_nobody_reads_keeps_no_daemon_that_must_end)
{
    static const struct {
        const char *fault;
        int signals, code;
    } ways[] = {{"launch:100:illegal-address", 0, 75}, {"launch:100:hang", 2, 1}};
    static char bytes[4096];
    char variable[128];
    const char *const environment[] = {variable, NULL};
    struct frame frame;
    snprintf(variable, sizeof(variable), "SLUICE_EMU_FAULT=%s", ways[_i].fault);
    ck_assert_int_eq(mkfifo(spawn.log, 0600), 0);
    int log = open(spawn.log, O_RDWR | O_CLOEXEC);
    spawn_start(&spawn, null_model, environment);
    spawn_await_ready(&spawn);
    /* By another file than the daemon's: its own stays as it is. */
    int filler = open(spawn.log, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    while (write(filler, bytes, sizeof(bytes)) > 0)
        continue;
    wire_open(&wire, &spawn);
    wire_generate(&wire, 1, 1, 4000);
    bool draining = ways[_i].signals < 2;
    if (ways[_i].signals > 0)
        kill(spawn.pid, SIGTERM);
    while (!draining) { /* two that come at once are one */
        wire_control(&wire, FRAME_HEALTH, "");
        wire_find(&wire, FRAME_HEALTH, &frame);
        draining = memmem(frame.head, frame.head_length, "\"draining\"", 10) != NULL;
        usleep(10000);
    }
    if (ways[_i].signals > 1)
        kill(spawn.pid, SIGTERM);
    ck_assert_int_eq(spawn_wait(&spawn), ways[_i].code);
    wire_close(&wire);
    close(filler);
    close(log);
}
END_TEST

/* The word must not come out of the daemon again but in the answers of its own client. */
#define CANARY "xyzzyCANARYplugh"

static const char *const canaries[] = {
    "{\"job\":\"%s\",\"lengths\":[2]}",
    "{\"%s\":1,\"job\":\"generate\",\"lengths\":[2]}",
    "{\"job\":\"generate\",\"texts\":[\"%s\"]}",
    "{\"job\":\"generate\",\"lengths\":[2],\"stop\":[\"%s\"]}",
    "{\"job\":\"generate\",\"lengths\":[\"%s\"]}",
    "{\"job\":\"generate\",\"lengths\":[2],\"logit_bias\":{\"%s\":1}}",
    "{\"job\":\"generate\",\"lengths\":[2],\"%s",
    "%s",
};

START_TEST(content_of_requests_appears_in_no_log_and_no_status)
{
    const char *const arguments[] = {"--model",     "synthetic:null", "--device", "cpu",
                                     "--log-level", "debug",          NULL};
    struct frame frame;
    spawn_start(&spawn, arguments, NULL);
    spawn_await_ready(&spawn);
    for (size_t i = 0; i < sizeof(canaries) / sizeof(canaries[0]); i++) {
        for (int type = FRAME_HELLO; type <= FRAME_TYPE_MAX; type++) {
            _Alignas(8) unsigned char bytes[512];
            char text[256];
            size_t length = (size_t)snprintf(text, sizeof(text), canaries[i], CANARY);
            size_t head = frame_pad(length);
            memset(bytes, ' ', sizeof(bytes));
            frame_encode_header(bytes, (uint8_t)type, 0, 7, (uint32_t)head,
                                type == FRAME_SUBMIT ? 8 : 0);
            memcpy(bytes + FRAME_HEADER_SIZE, text, length);
            wire_open(&wire, &spawn);
            size_t size = FRAME_HEADER_SIZE + head + (type == FRAME_SUBMIT ? 8 : 0);
            size += message_encode_control(bytes + size, sizeof(bytes) - size, FRAME_HEALTH, 0, 1,
                                           "", 0);
            wire_send(&wire, bytes, size);
            while (wire_next(&wire, &frame) && frame.type != FRAME_HEALTH)
                continue;
            wire_close(&wire);
        }
    }
    wire_open(&wire, &spawn);
    wire_control(&wire, FRAME_STATS, "{\"requests\":true}");
    wire_find(&wire, FRAME_STATS, &frame);
    ck_assert_ptr_null(memmem(frame.head, frame.head_length, CANARY, strlen(CANARY)));
    kill(spawn.pid, SIGTERM);
    ck_assert_int_eq(spawn_wait(&spawn), 0);
    ck_assert(!spawn_logged(&spawn, CANARY));
    ck_assert(spawn_logged(&spawn, "is closed"));
    wire_close(&wire);
}
END_TEST

/* 0: with lines of requests; 1: without. */
START_TEST(who_is_refused_leaves_a_line)
{
    const char *const arguments[] = {
        "--model", "synthetic:null", "--device",        "cpu", "--context-max", "16", "--batch-max",
        "1",       "--log-requests", _i ? "no" : "yes", NULL};
    static char long_text[256] = CANARY;
    const struct message_tokenize ask = {.text = long_text, .length = sizeof(long_text)};
    unsigned char question[512];
    struct frame frame;
    char who[64], line[128];
    memset(long_text + strlen(CANARY), 'a', sizeof(long_text) - strlen(CANARY));
    snprintf(who, sizeof(who), "refused user=%u code=", geteuid());
    spawn_start(&spawn, arguments, NULL);
    spawn_await_ready(&spawn);
    wire_open(&wire, &spawn);
    wire_generate(&wire, 1, 2, 4);
    wire_find(&wire, FRAME_ERROR, &frame);
    wire_send(&wire, question, message_encode_tokenize(question, sizeof(question), 2, &ask));
    wire_find(&wire, FRAME_ERROR, &frame); /* that is too long */
    wire_control(&wire, FRAME_CANCEL, "{\"request\":999}");
    wire_find(&wire, FRAME_ERROR, &frame);
    kill(spawn.pid, SIGTERM);
    ck_assert_int_eq(spawn_wait(&spawn), 0);
    static const char *const codes[] = {"too_large value=2 limit=1", "too_large value=17 limit=16",
                                        "not_found"};
    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
        snprintf(line, sizeof(line), "%s%s", who, codes[i]);
        ck_assert_msg(spawn_logged(&spawn, line) == (_i == 0), "%s", line);
    }
    ck_assert(!spawn_logged(&spawn, CANARY));
    wire_close(&wire);
}
END_TEST

Suite *log_suite(void)
{
    Suite *suite = suite_create("log");
    TCase *tcase = tcase_create("log");
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, a_log_that_nobody_reads_stops_neither_requests_nor_the_end, 0, 2);
    tcase_add_test(tcase, a_profile_that_nobody_reads_keeps_no_thread_of_the_pool);
    tcase_add_loop_test(tcase, a_log_that_nobody_reads_keeps_no_daemon_that_must_end, 0, 2);
    tcase_add_test(tcase, content_of_requests_appears_in_no_log_and_no_status);
    tcase_add_loop_test(tcase, who_is_refused_leaves_a_line, 0, 2);
    suite_add_tcase(suite, tcase);
    return suite;
}
