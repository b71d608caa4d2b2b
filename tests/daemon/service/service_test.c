/* The daemon as a process: what it serves, how it starts and ends, what it leaves behind. */
#include "tests/daemon/daemon_suites.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
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

START_TEST(requests_are_served_and_the_daemon_ends_cleanly)
{
    spawn_start(&spawn, null_model, NULL);
    spawn_await_ready(&spawn);
    wire_open(&wire, &spawn);
    for (uint64_t id = 1; id <= 20; id++) {
        wire_generate(&wire, id, 3, 7);
        for (int i = 0; i < 3; i++) {
            struct message_done message = wire_done(&wire);
            ck_assert_int_eq(message.finish, FINISH_LENGTH);
            ck_assert_uint_eq(message.completion_tokens, 7);
        }
    }
    kill(spawn.pid, SIGTERM);
    ck_assert_int_eq(spawn_wait(&spawn), 0);
    ck_assert_int_ne(access(spawn.socket, F_OK), 0);
    ck_assert(spawn_logged(&spawn, "job=generate"));
    wire_close(&wire);
}
END_TEST

START_TEST(who_shuts_down_its_writing_side_is_answered_and_then_closed)
{
    struct frame frame;
    spawn_start(&spawn, null_model, NULL);
    spawn_await_ready(&spawn);
    uint32_t descriptors = spawn_descriptors(&spawn);
    wire_open(&wire, &spawn);
    wire_generate(&wire, 1, 8, 4000);
    wire_generate(&wire, 2, 8, 4000);
    ck_assert_int_eq(shutdown(wire.fd, SHUT_WR), 0);
    for (int i = 0; i < 16; i++)
        ck_assert_int_eq(wire_done(&wire).finish, FINISH_LENGTH);
    ck_assert(!wire_next(&wire, &frame));
    wire_close(&wire);
    wire_open(&wire, &spawn);
    ck_assert_int_eq(shutdown(wire.fd, SHUT_WR), 0);
    ck_assert(!wire_next(&wire, &frame)); /* there was nothing to wait for */
    wire_close(&wire);
    /* Gone altogether: what would take a day is cancelled, or SIGTERM would wait for it. */
    wire_open(&wire, &spawn);
    wire_generate(&wire, 1, 64, 8000);
    ck_assert_int_eq(shutdown(wire.fd, SHUT_WR), 0);
    wire_find(&wire, FRAME_TOKENS, &frame);
    wire_close(&wire);
    for (int i = 0; spawn_descriptors(&spawn) > descriptors; i++) {
        ck_assert_int_lt(i, SPAWN_PATIENCE_MS / 10);
        usleep(10000);
    }
    kill(spawn.pid, SIGTERM);
    ck_assert_int_eq(spawn_wait(&spawn), 0);
    ck_assert(spawn_logged(&spawn, " cancelled="));
}
END_TEST

START_TEST(sigterm_lets_running_work_end)
{
    struct frame frame;
    spawn_start(&spawn, null_model, NULL);
    spawn_await_ready(&spawn);
    wire_open(&wire, &spawn);
    wire_generate(&wire, 1, 8, 4000);
    wire_find(&wire, FRAME_TOKENS, &frame);
    kill(spawn.pid, SIGTERM);
    for (int i = 0; i < 8; i++)
        ck_assert_int_eq(wire_done(&wire).finish, FINISH_LENGTH);
    ck_assert_int_eq(spawn_wait(&spawn), 0);
    wire_close(&wire);
}
END_TEST

START_TEST(who_connected_before_sigterm_is_still_told)
{
    static const struct message_hello hello = {.version_min = 1, .version_max = 1, .client = "x"};
    unsigned char buffer[512];
    struct frame frame;
    spawn_start(&spawn, null_model, NULL);
    spawn_await_ready(&spawn);
    struct wire late = {.fd = wire_connect(&spawn)};
    ck_assert_int_ge(late.fd, 0);
    wire_open(&wire, &spawn); /* the daemon has accepted the one before, too */
    kill(spawn.pid, SIGTERM);
    while (!spawn_logged(&spawn, "SIGTERM: ends when"))
        usleep(1000);
    wire_send(&late, buffer, message_encode_hello(buffer, sizeof(buffer), &hello));
    ck_assert(wire_next(&late, &frame));
    ck_assert_uint_eq(frame.type, FRAME_WELCOME);
    ck_assert_int_eq(spawn_wait(&spawn), 0);
    wire_close(&late);
    wire_close(&wire);
}
END_TEST

START_TEST(after_the_drain_timeout_the_rest_is_cancelled)
{
    const char *const arguments[] = {
        "--model", "synthetic:null",  "--device", "cpu", "--drain-timeout",
        "0",       "--sequences-max", "1",        NULL};
    struct frame frame;
    int finished[FINISH_ERROR + 1] = {0};
    spawn_start(&spawn, arguments, NULL);
    spawn_await_ready(&spawn);
    wire_open(&wire, &spawn);
    wire_generate(&wire, 1, 64, 8000);
    wire_find(&wire, FRAME_TOKENS, &frame);
    kill(spawn.pid, SIGTERM);
    for (int i = 0; i < 64; i++)
        finished[wire_done(&wire).finish]++;
    ck_assert_int_gt(finished[FINISH_CANCELLED], 0);
    ck_assert_int_eq(spawn_wait(&spawn), 0);
    wire_close(&wire);
}
END_TEST

START_TEST(options_are_read_again_whole_or_not_at_all)
{
    const char *arguments[] = {"--model", "synthetic:null", "--device", "cpu", "--config", NULL,
                               NULL};
    static const struct {
        const char *text;
        uint32_t batch_max;
    } steps[] = {{"batch-max = 2\n", 2},
                 {"batch-max = 3\nn-max = none\n", 2},
                 {"batch-max = 3\ntp = 2\n", 2},
                 {"batch-max = 5\n", 5}};
    arguments[5] = spawn.config;
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        struct frame frame;
        struct message_welcome welcome = {0};
        struct error error;
        FILE *file = fopen(spawn.config, "w");
        fputs(steps[i].text, file);
        fclose(file);
        if (i == 0)
            spawn_start(&spawn, arguments, NULL);
        else
            kill(spawn.pid, SIGHUP);
        spawn_await_ready(&spawn); /* the signal was handled before this connection was */
        const struct message_hello hello = {.version_min = 1, .version_max = 1, .client = "x"};
        unsigned char buffer[512];
        wire = (struct wire){.fd = wire_connect(&spawn)};
        wire_send(&wire, buffer, message_encode_hello(buffer, sizeof(buffer), &hello));
        wire_find(&wire, FRAME_WELCOME, &frame);
        ck_assert_int_eq(message_decode_welcome(&frame, &welcome, &error), 0);
        ck_assert_uint_eq(welcome.batch_max, steps[i].batch_max);
        wire_close(&wire);
    }
    ck_assert(spawn_logs(&spawn, "config:2: n-max: a whole number"));
    ck_assert(spawn_logs(&spawn, "tp cannot change while the daemon runs"));
}
END_TEST

static const struct {
    const char *arguments[12];
    int code;
    const char *says;
} refused[] = {
    {{NULL}, 78, "sluiced --model synthetic:null"},
    {{"--model", "synthetic:unknown", "--device", "cpu"}, 78, "unknown"},
    {{"--model", "/nonexistent", "--device", "cpu"}, 78, "/nonexistent"},
    {{"--model", "/nonexistent", "--device", "cpu", "--check"}, 78, "/nonexistent"},
    {{"--model", "synthetic:null", "--device", "cpu", "--check"}, 0, "synthetic:null"},
    {{"--pp", "0"}, 64, "pp: must lie between"},
    {{"--model", "synthetic:null", "--pp", "2", "--speculate", "lookup", "--check"},
     78,
     "speculate: not with pp above 1"},
    {{"--model", "synthetic:null", "--sequences-max", "1", "--speculate", "lookup"},
     78,
     "not with sequences-max = 1"},
    {{"--model", "synthetic:tiny", "--speculate", "draft", "--check"},
     78,
     "speculate: draft wants a draft-model"},
    {{"--model", "synthetic:tiny", "--draft-model", "synthetic:tiny", "--check"},
     78,
     "draft-model: guesses only with speculate = draft"},
    {{"--model", "synthetic:tiny", "--pp", "2", "--speculate", "draft", "--draft-model",
      "synthetic:tiny", "--check"},
     78,
     "speculate: not with pp above 1"},
    {{"--model", "synthetic:tiny", "--device", "cpu", "--speculate", "draft", "--draft-model",
      "synthetic:null", "--check"},
     78,
     "draft-model: a model that computes nothing guesses nothing"},
    {{"--model", "synthetic:tiny", "--device", "cpu", "--speculate", "draft", "--draft-model",
      "deploy/demo-model", "--check"},
     78,
     "draft-model: its vocabulary is of"},
    {{"--model", "synthetic:tiny", "--device", "cpu", "--speculate", "draft", "--draft-model",
      "/nonexistent", "--check"},
     78,
     "/nonexistent"},
    {{"--model", "synthetic:tiny", "--device", "cpu", "--speculate", "draft", "--draft-model",
      "synthetic:tiny", "--check"},
     0,
     "synthetic:tiny"},
    {{"--model", "synthetic:null", "--device", "cpu", "--http", "unix:"},
     78,
     "http: the path of a socket is empty"},
    {{"--model", "synthetic:null", "--device", "cpu", "--metrics", "unix:/nonexistent/m"},
     78,
     "metrics: cannot make /nonexistent/m.lock: No such file"},
    {{"--model", "synthetic:null", "--device", "cpu", "--http", "127.0.0.1:8000", "--check"},
     78,
     "http: 127.0.0.1:8000 needs an api-key-file"},
    {{"--model", "synthetic:null", "--device", "cpu", "--metrics", "nowhere", "--check"},
     78,
     "metrics: nowhere: unix:PATH or HOST:PORT is expected"},
    {{"--model", "synthetic:null", "--device", "cpu", "--api-key-file", "/none", "--check"},
     78,
     "cannot read /none (api-key-file): No such file"},
    {{"--config", "/nonexistent"}, 78, "cannot read /nonexistent"},
    {{"--model", "synthetic:null", "--calibrate-page", "/nonexistent/a.html"},
     64,
     "--calibrate-page goes with --calibrate"},
    {{"--model", "synthetic:null", "--calibrate-store", "/nonexistent/a.conf"},
     64,
     "--calibrate-store goes with --calibrate"},
    {{"--print-config"}, 0, "#queue-tokens = 16777216"},
    {{"--help"}, 0, "--queue-tokens N"},
    {{"--version"}, 0, "sluiced "},
};

START_TEST(what_cannot_start_says_why_and_ends_with_its_code)
{
    spawn_start(&spawn, refused[_i].arguments, NULL);
    ck_assert_int_eq(spawn_wait(&spawn), refused[_i].code);
    ck_assert_msg(spawn_logged(&spawn, refused[_i].says), "%s", refused[_i].says);
    ck_assert_int_ne(access(spawn.socket, F_OK), 0);
}
END_TEST

START_TEST(a_second_daemon_on_the_socket_is_refused_and_the_first_goes_on)
{
    struct spawn second = {0};
    spawn_start(&spawn, null_model, NULL);
    spawn_await_ready(&spawn);
    memcpy(&second, &spawn, sizeof(second));
    spawn_start(&second, null_model, NULL);
    ck_assert_int_eq(spawn_wait(&second), 78);
    ck_assert(spawn_logged(&spawn, "another daemon listens on"));
    spawn_await_ready(&spawn);
}
END_TEST

START_TEST(a_thousand_connections_leave_no_descriptor_behind)
{
    static int fds[1000];
    spawn_start(&spawn, null_model, NULL);
    spawn_await_ready(&spawn);
    wire_open(&wire, &spawn);
    uint32_t before = spawn_descriptors(&spawn), after = 0;
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 1000; i++) {
            fds[i] = wire_connect(&spawn);
            ck_assert_int_ge(fds[i], 0);
        }
        wire_generate(&wire, 1, 1, 3); /* somebody else is served meanwhile */
        ck_assert_int_eq(wire_done(&wire).finish, FINISH_LENGTH);
        for (int i = 0; i < 1000; i++)
            close(fds[i]);
        for (int tries = 0; tries < 1000 && (after = spawn_descriptors(&spawn)) > before; tries++)
            usleep(10000);
        ck_assert_uint_eq(after, before);
    }
    wire_close(&wire);
}
END_TEST

/* Under a sanitizer freed memory is kept on purpose. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define RESIDENT_MORE (1u << 30)
#else
#define RESIDENT_MORE (2u << 20)
#endif

START_TEST(a_thousand_clients_leave_no_memory_behind)
{
    static struct wire wires[1000];
    const char *const arguments[] = {
        "--model", "synthetic:null",       "--device", "cpu", "--kv-idle-release",
        "100ms",   "--cache-idle-release", "100ms",    NULL};
    spawn_start(&spawn, arguments, NULL);
    spawn_await_ready(&spawn);
    wire_open(&wire, &spawn);
    wire_generate(&wire, 1, 1, 3);
    ck_assert_int_eq(wire_done(&wire).finish, FINISH_LENGTH);
    uint64_t before = spawn_resident(&spawn), after = 0;
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 1000; i++) {
            wire_open(&wires[i], &spawn);
            wire_generate(&wires[i], 1, 2, 20);
        }
        for (int i = 0; i < 1000; i++)
            ck_assert_int_eq(wire_done(&wires[i]).finish, FINISH_LENGTH);
        for (int i = 0; i < 1000; i++)
            wire_close(&wires[i]);
    }
    for (int tries = 0; tries < 500; tries++) {
        after = spawn_resident(&spawn);
        if (after <= before + RESIDENT_MORE)
            break;
        usleep(10000);
    }
    ck_assert_uint_le(after, before + RESIDENT_MORE);
    wire_close(&wire);
}
END_TEST

/* Layouts whose devices fail amid their work. */
static const struct {
    const char *arguments[16], *fault, *hang;
} layouts[] = {
    {{"--model", "synthetic:null", "--device", "cpu", "--step-timeout", "100ms"},
     "SLUICE_EMU_FAULT=cudaMemcpyAsync:200:illegal-address",
     "SLUICE_EMU_FAULT=launch:20:hang"},
    {{"--model", "synthetic:null", "--device", "cpu", "--step-timeout", "100ms", "--cpu-devices",
      "3", "--gpus", "0,1,2", "--dp", "3"},
     "SLUICE_EMU_FAULT=cudaMemcpyAsync:200:illegal-address",
     "SLUICE_EMU_FAULT=launch:20:hang"},
    {{"--model", "synthetic:tiny", "--device", "cpu", "--step-timeout", "100ms", "--cpu-devices",
      "2", "--gpus", "0,1", "--tp", "2"},
     "SLUICE_EMU_FAULT=cudaGraphLaunch:21:illegal-address",
     "SLUICE_EMU_FAULT=launch:300:hang"},
};

START_TEST(after_a_sticky_error_clients_are_told_and_the_process_is_gone)
{
    const char *const environment[] = {layouts[_i].fault, NULL};
    uint32_t failed = 0;
    spawn_start(&spawn, layouts[_i].arguments, environment);
    spawn_await_ready(&spawn);
    wire_open(&wire, &spawn);
    wire_generate(&wire, 1, 16, 4000);
    for (struct frame frame; wire_next(&wire, &frame);) {
        struct message_error message;
        struct error error;
        ck_assert_uint_ne(frame.type, FRAME_DONE);
        if (frame.type != FRAME_ERROR)
            continue;
        ck_assert_int_eq(message_decode_error(&frame, &message, &error), 0);
        ck_assert_int_eq(message.error.code, ERR_DEVICE);
        ck_assert_int_eq(error_retry(message.error.code), RETRY_LATER);
        failed++;
    }
    ck_assert_uint_eq(failed, 16);
    ck_assert_int_eq(spawn_wait(&spawn), 75);
    ck_assert_int_ne(access(spawn.socket, F_OK), 0);
    wire_close(&wire);
}
END_TEST

START_TEST(a_stuck_device_is_told_by_health)
{
    const char *const environment[] = {layouts[_i].hang, NULL};
    struct frame frame;
    bool stuck = false;
    spawn_start(&spawn, layouts[_i].arguments, environment);
    spawn_await_ready(&spawn);
    wire_open(&wire, &spawn);
    wire_generate(&wire, 1, 1, 4000);
    for (int tries = 0; tries < 500 && !stuck; tries++) {
        wire_control(&wire, FRAME_HEALTH, "");
        wire_find(&wire, FRAME_HEALTH, &frame);
        stuck = memmem(frame.head, frame.head_length, "\"status\":\"stuck\"", 16) != NULL;
        usleep(10000);
    }
    ck_assert(stuck);
    kill(spawn.pid, SIGTERM);
    while (!spawn_logged(&spawn, "SIGTERM: ")) /* two that come at once are one */
        usleep(10000);
    kill(spawn.pid, SIGTERM);
    ck_assert_int_eq(spawn_wait(&spawn), 1);
    wire_close(&wire);
}
END_TEST

Suite *service_suite(void)
{
    Suite *suite = suite_create("service");
    TCase *tcase = tcase_create("service");
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, requests_are_served_and_the_daemon_ends_cleanly);
    tcase_add_test(tcase, who_shuts_down_its_writing_side_is_answered_and_then_closed);
    tcase_add_test(tcase, sigterm_lets_running_work_end);
    tcase_add_test(tcase, who_connected_before_sigterm_is_still_told);
    tcase_add_test(tcase, after_the_drain_timeout_the_rest_is_cancelled);
    tcase_add_test(tcase, options_are_read_again_whole_or_not_at_all);
    tcase_add_loop_test(tcase, what_cannot_start_says_why_and_ends_with_its_code, 0,
                        (int)(sizeof(refused) / sizeof(refused[0])));
    tcase_add_test(tcase, a_second_daemon_on_the_socket_is_refused_and_the_first_goes_on);
    tcase_add_test(tcase, a_thousand_connections_leave_no_descriptor_behind);
    tcase_add_test(tcase, a_thousand_clients_leave_no_memory_behind);
    tcase_add_loop_test(tcase, after_a_sticky_error_clients_are_told_and_the_process_is_gone, 0,
                        (int)(sizeof(layouts) / sizeof(layouts[0])));
    tcase_add_loop_test(tcase, a_stuck_device_is_told_by_health, 0,
                        (int)(sizeof(layouts) / sizeof(layouts[0])));
    suite_add_tcase(suite, tcase);
    return suite;
}
