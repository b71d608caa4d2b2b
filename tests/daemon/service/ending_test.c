/* The end: its stages as a pure machine, and the process, whatever does not return in it. What does
 * not return here is a write to a FIFO that nobody reads: the profile's. */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/service/ending.h"
#include "protocol/message.h"
#include "tests/daemon/daemon_suites.h"
#include "tests/daemon/rig/spawn.h"

/* ---- stages ------------------------------------------------------------------------------------
 */

#define SECOND 1000000u

START_TEST(an_idle_daemon_goes_through_its_stages_without_waiting)
{
    struct ending ending = {0};
    const struct ending_facts facts = {.idle = true, .stopped = true};
    ck_assert_int_eq(ending_turn(&ending, &facts, SECOND), ENDING_WAIT);
    ck_assert_uint_eq(ending_due(&ending, SECOND), 0);
    ending_ask(&ending, 30 * SECOND, SECOND);
    ck_assert_int_eq(ending_turn(&ending, &facts, SECOND), ENDING_HALT);
    ck_assert_int_eq(ending_turn(&ending, &facts, SECOND), ENDING_RETURN);
    ck_assert_int_eq(ending_turn(&ending, &facts, SECOND), ENDING_WAIT);
}
END_TEST

/* However idle the daemon is: who routes to it has to see that it is about to end. */
START_TEST(a_grace_lasts_whatever_there_is_to_do)
{
    struct ending ending = {0};
    const struct ending_facts facts = {.idle = _i, .stopped = true};
    ending_announce(&ending, 5 * SECOND, 30 * SECOND, SECOND);
    ck_assert_int_eq(ending_turn(&ending, &facts, 6 * SECOND - 1), ENDING_WAIT);
    ck_assert_uint_eq(ending_due(&ending, 2 * SECOND), 6 * SECOND);
    ck_assert_int_eq(ending_turn(&ending, &facts, 6 * SECOND), ENDING_REFUSE);
    ck_assert_int_eq(ending.stage, ENDING_DRAIN);
    ck_assert_int_eq(ending_turn(&ending, &facts, 6 * SECOND), _i ? ENDING_HALT : ENDING_WAIT);
    if (!_i) /* and draining has all its time */
        ck_assert_int_eq(ending_turn(&ending, &facts, 36 * SECOND), ENDING_CANCEL);
}
END_TEST

/* Nothing that is waited for ever comes: all combinations. */
START_TEST(every_stage_ends_in_time_whatever_does_not)
{
    const struct ending_facts facts = {
        .idle = _i & 1, .greeting = _i & 2, .stopped = _i & 4, .texts = _i & 8, .file = _i & 16};
    const time_us drain_us = _i & 32 ? 3 * SECOND : 0, grace_us = _i & 64 ? 2 * SECOND : 0;
    struct ending ending = {0};
    enum ending_act act = ENDING_WAIT;
    time_us now_us = SECOND;
    if (grace_us)
        ending_announce(&ending, grace_us, drain_us, now_us);
    else
        ending_ask(&ending, drain_us, now_us);
    for (int turns = 0; act != ENDING_RETURN && act != ENDING_ABANDON; turns++) {
        ck_assert_int_lt(turns, 16);
        act = ending_turn(&ending, &facts, now_us);
        if (act != ENDING_WAIT)
            continue;
        time_us due_us = ending_due(&ending, now_us);
        ck_assert_uint_gt(due_us, now_us); /* a timer for the past would spin */
        now_us = due_us;
    }
    ck_assert_uint_le(now_us, SECOND + grace_us + drain_us + ENDING_MOST_US);
    ck_assert_int_eq(act == ENDING_RETURN, facts.stopped && !facts.texts && !facts.file);
}
END_TEST

START_TEST(a_failed_device_ends_any_stage)
{
    struct ending ending = {0};
    struct ending_facts facts = {.idle = false};
    if (_i == 1)
        ending_ask(&ending, 30 * SECOND, SECOND);
    else if (_i == 2)
        ending_announce(&ending, SECOND, 30 * SECOND, SECOND);
    ending_fail(&ending, SECOND);
    ck_assert_int_eq(ending_turn(&ending, &facts, SECOND), ENDING_WAIT);
    ending_fail(&ending, 2 * SECOND); /* nor does it begin again */
    ck_assert_uint_eq(ending_due(&ending, SECOND), SECOND + ENDING_FAIL_US);
    ck_assert_int_eq(ending_turn(&ending, &facts, SECOND + ENDING_FAIL_US), ENDING_ABANDON);
}
END_TEST

/* ---- the process -------------------------------------------------------------------------------
 */

static struct spawn spawn;
static struct wire wire;
static char fifo[80];
static int reader;

static void setup(void)
{
    spawn_make(&spawn);
    snprintf(fifo, sizeof(fifo), "%s/fifo", spawn.directory);
    ck_assert_int_eq(mkfifo(fifo, 0600), 0);
    reader = -1;
}

static void teardown(void)
{
    if (reader >= 0)
        close(reader);
    unlink(fifo);
    spawn_free(&spawn);
}

/* Somebody has it open, holds a page of it, and never reads. */
static void open_reader(void)
{
    reader = open(fifo, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    ck_assert_int_ge(reader, 0);
    ck_assert_int_gt(fcntl(reader, F_SETPIPE_SZ, 4096), 0);
}

static void await_written(void)
{
    struct pollfd ready = {.fd = reader, .events = POLLIN};
    ck_assert_int_eq(poll(&ready, 1, SPAWN_PATIENCE_MS), 1);
}

static void await_logged(const char *text)
{
    for (int tries = 0; tries < SPAWN_PATIENCE_MS / 10 && !spawn_logged(&spawn, text); tries++)
        usleep(10000);
    ck_assert_msg(spawn_logged(&spawn, text), "%s", text);
}

/* A daemon that writes its profile after so many steps, and has made 100. */
static void start(const char *steps, const char *const *environment)
{
    const char *const arguments[] = {"--model",
                                     "deploy/demo-model",
                                     "--device",
                                     "cpu",
                                     "--cpu-threads",
                                     "1",
                                     "--profile-steps",
                                     steps,
                                     fifo,
                                     "--drain-timeout",
                                     "100ms",
                                     NULL};
    struct frame frame;
    spawn_start(&spawn, arguments, environment);
    spawn_await_ready(&spawn);
    wire_open(&wire, &spawn);
    wire_generate(&wire, 1, 1, 100);
    wire_find(&wire, FRAME_DONE, &frame);
}

START_TEST(a_file_that_never_takes_the_profile_does_not_keep_texts_or_the_end)
{
    static const char *const environment[] = {"UV_THREADPOOL_SIZE=1", NULL};
    static char text[20 << 10];
    static _Alignas(8) unsigned char frame[32 << 10];
    const struct message_tokenize question = {.text = text, .length = sizeof(text)};
    open_reader();
    start("50", environment);
    await_written();
    memset(text, 'x', sizeof(text));
    size_t length = message_encode_tokenize(frame, sizeof(frame), 7, &question);
    ck_assert_uint_gt(length, sizeof(text));
    wire_send(&wire, frame, length);
    wire_control(&wire, FRAME_HEALTH, "");
    struct frame answer;
    wire_find(&wire, FRAME_HEALTH, &answer); /* the text was read, too */
    wire_close(&wire);
    kill(spawn.pid, SIGTERM);
    ck_assert_int_eq(spawn_wait(&spawn), 0);
    ck_assert(spawn_logged(&spawn, "and the profile, which is not whole"));
    ck_assert_int_ne(access(spawn.socket, F_OK), 0);
}
END_TEST

START_TEST(a_second_signal_ends_the_wait_for_the_pool)
{
    open_reader();
    start("50", NULL);
    await_written();
    wire_close(&wire);
    kill(spawn.pid, SIGTERM);
    await_logged("waits for threads of the pool: 0 texts, the profile");
    kill(spawn.pid, SIGTERM);
    ck_assert_int_eq(spawn_wait(&spawn), 1);
    ck_assert(spawn_logged(&spawn, "asked to end a second time"));
}
END_TEST

/* The rest of a profile is written after the loop's end, which hears no signal any more. */
START_TEST(what_is_given_back_after_the_loop_has_its_time_too)
{
    open_reader();
    start("50000", NULL);
    wire_close(&wire);
    kill(spawn.pid, SIGTERM);
    await_written();
    if (_i)
        kill(spawn.pid, SIGINT);
    ck_assert_int_eq(spawn_wait(&spawn), _i);
    ck_assert(spawn_logged(&spawn, _i ? "asked to end a second time" : "the time to end is over"));
    ck_assert(spawn_logged(&spawn, "what does not end is the profile to be written"));
}
END_TEST

/* Opening a FIFO that nobody reads would wait for a reader: it is refused instead. */
START_TEST(a_profile_that_nobody_reads_ends_the_start)
{
    const char *const arguments[] = {
        "--model", "synthetic:null", "--device", "cpu", "--profile-steps", "5", fifo, NULL};
    spawn_start(&spawn, arguments, NULL);
    ck_assert_int_eq(spawn_wait(&spawn), 78); /* configuration */
    ck_assert(spawn_logged(&spawn, fifo));
}
END_TEST

/* The device hangs: its step never ends, and neither does its thread. */
START_TEST(a_stuck_device_is_left_behind)
{
    static const char *const environment[] = {"SLUICE_EMU_FAULT=launch:20:hang", NULL};
    const char *const arguments[] = {
        "--model", "synthetic:null",  "--device", "cpu", "--step-timeout",
        "100ms",   "--drain-timeout", "100ms",    NULL};
    spawn_start(&spawn, arguments, environment);
    spawn_await_ready(&spawn);
    wire_open(&wire, &spawn);
    wire_generate(&wire, 1, 1, 4000);
    kill(spawn.pid, SIGTERM);
    await_logged("did not end within drain-timeout");
    if (_i)
        kill(spawn.pid, SIGTERM);
    int code = spawn_wait(&spawn);
    ck_assert_int_eq(code, _i ? 1 : 75);
    wire_close(&wire);
}
END_TEST

Suite *ending_suite(void)
{
    Suite *suite = suite_create("ending");
    TCase *stages = tcase_create("stages"), *process = tcase_create("process");
    tcase_add_test(stages, an_idle_daemon_goes_through_its_stages_without_waiting);
    tcase_add_loop_test(stages, every_stage_ends_in_time_whatever_does_not, 0, 128);
    tcase_add_loop_test(stages, a_grace_lasts_whatever_there_is_to_do, 0, 2);
    tcase_add_loop_test(stages, a_failed_device_ends_any_stage, 0, 3);
    suite_add_tcase(suite, stages);
    tcase_set_timeout(process, 60);
    tcase_add_checked_fixture(process, setup, teardown);
    tcase_add_test(process, a_file_that_never_takes_the_profile_does_not_keep_texts_or_the_end);
    tcase_add_test(process, a_second_signal_ends_the_wait_for_the_pool);
    tcase_add_loop_test(process, what_is_given_back_after_the_loop_has_its_time_too, 0, 2);
    tcase_add_test(process, a_profile_that_nobody_reads_ends_the_start);
    tcase_add_loop_test(process, a_stuck_device_is_left_behind, 0, 2);
    suite_add_tcase(suite, process);
    return suite;
}
