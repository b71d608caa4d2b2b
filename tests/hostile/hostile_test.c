/* A real daemon among clients that err, lie, stall and vanish. Each gets a clear error, a canary
 * that asks all the time sees nothing of it, and afterwards the daemon is as it was. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/sluice.h"
#include "protocol/message.h"
#include "tests/hostile/bad.h"
#include "tests/hostile/scene.h"
#include "tests/runner.h"
#include "tests/sim/chance.h"

#define STRANGER 65534u

static struct scene scene;
static struct wire wire;

/* ---- before and after --------------------------------------------------------------------------
 */

static void setup(void)
{
    static const char *const arguments[] = {"--model",
                                            "synthetic:null",
                                            "--device",
                                            "cpu",
                                            "--log-level",
                                            "debug",
                                            "--frame-timeout",
                                            "400ms",
                                            "--handshake-timeout",
                                            "2s",
                                            "--stall-timeout",
                                            "400ms",
                                            "--output-max",
                                            "256KiB",
                                            "--output-high",
                                            "16KiB",
                                            "--kv-idle-release",
                                            "100ms",
                                            "--cache-idle-release",
                                            "100ms",
                                            NULL};
    spawn_make(&scene.spawn);
    scene_start(&scene, arguments, NULL);
}

static void teardown(void)
{
    scene_free(&scene);
}

/* ---- asking ------------------------------------------------------------------------------------
 */

static int error_of(struct wire *on, uint64_t *ret_id, char text[ERROR_TEXT_MAX])
{
    struct frame frame;
    struct message_error message;
    struct error error;
    wire_find(on, FRAME_ERROR, &frame);
    ck_assert_int_eq(message_decode_error(&frame, &message, &error), 0);
    *ret_id = frame.id;
    snprintf(text, ERROR_TEXT_MAX, "%s", message.error.text);
    return message.error.code;
}

static void check_answered(struct wire *on)
{
    struct frame frame;
    wire_control(on, FRAME_HEALTH, "");
    wire_find(on, FRAME_HEALTH, &frame);
}

/* ---- what they do ------------------------------------------------------------------------------
 */

START_TEST(every_bad_message_is_refused_with_its_code)
{
    for (uint32_t i = 0; i < bad_count; i++) {
        const struct bad *bad = &bad_table[i];
        unsigned char bytes[BAD_SIZE_MAX];
        char text[ERROR_TEXT_MAX];
        struct frame frame;
        uint64_t id;
        wire_open(&wire, &scene.spawn);
        wire_send(&wire, bytes, bad_encode(bad, 99, bytes));
        int code = error_of(&wire, &id, text);
        ck_assert_msg(code == bad->code, "%s: %s: %s, must be %s", bad->name, error_name(code),
                      text, error_name(bad->code));
        ck_assert_msg(id == (bad->closes ? 0 : 99), "%s: answered with id %" PRIu64, bad->name, id);
        ck_assert_msg(text[0] != '\0', "%s: no text", bad->name);
        if (bad->closes)
            ck_assert_msg(!wire_next(&wire, &frame), "%s: goes on", bad->name);
        else
            check_answered(&wire);
        wire_close(&wire);
    }
    scene_end(&scene);
}
END_TEST

START_TEST(a_client_that_says_no_hello_is_told_and_closed)
{
    static const char *const first[] = {"GET / HTTP/1.1\r\nHost: " BAD_CANARY "\r\n\r\n",
                                        "\x16\x03\x01\x02" BAD_CANARY "................", "{}\n"};
    char text[ERROR_TEXT_MAX];
    struct frame frame;
    uint64_t id;
    for (size_t i = 0; i < sizeof(first) / sizeof(first[0]); i++) {
        wire = (struct wire){.fd = wire_connect(&scene.spawn)};
        wire_send(&wire, first[i], strlen(first[i]));
        ck_assert_int_eq(error_of(&wire, &id, text), ERR_BAD_MAGIC);
        ck_assert(!wire_next(&wire, &frame));
        wire_close(&wire);
    }
    wire = (struct wire){.fd = wire_connect(&scene.spawn)};
    wire_generate(&wire, 1, 1, 1);
    ck_assert_int_eq(error_of(&wire, &id, text), ERR_BAD_STATE);
    wire_close(&wire);
    wire = (struct wire){.fd = wire_connect(&scene.spawn)}; /* says nothing at all */
    ck_assert_int_eq(error_of(&wire, &id, text), ERR_TIMEOUT);
    ck_assert(!wire_next(&wire, &frame));
    wire_close(&wire);
    scene_end(&scene);
}
END_TEST

START_TEST(frames_that_end_anywhere_do_no_harm)
{
    static _Alignas(8) unsigned char bytes[1u << 16];
    size_t length = wire_encode_generate(bytes, sizeof(bytes), 5, 3, 4);
    for (size_t cut = 1; cut < length; cut++) {
        wire_open(&wire, &scene.spawn);
        wire_send(&wire, bytes, cut);
        wire_close(&wire);
    }
    scene_end(&scene);
}
END_TEST

START_TEST(half_a_frame_held_open_is_told_and_closed)
{
    static _Alignas(8) unsigned char bytes[1u << 16];
    size_t length = wire_encode_generate(bytes, sizeof(bytes), 5, 3, 4);
    for (size_t i = 0; i < 3; i++) {
        char text[ERROR_TEXT_MAX];
        struct frame frame;
        uint64_t id;
        wire_open(&wire, &scene.spawn);
        wire_send(&wire, bytes, i == 0 ? 1 : i == 1 ? FRAME_HEADER_SIZE : length - 1);
        ck_assert_int_eq(error_of(&wire, &id, text), ERR_TIMEOUT);
        ck_assert(!wire_next(&wire, &frame));
        wire_close(&wire);
    }
    scene_end(&scene);
}
END_TEST

/* It is disconnected once it has taken nothing for stall-timeout; what it asked for ends with it.
 */
START_TEST(a_slow_reader_is_closed_and_its_work_cancelled)
{
    int small = 4096;
    wire_open(&wire, &scene.spawn);
    setsockopt(wire.fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
    for (uint64_t id = 1; id <= 4; id++)
        wire_generate(&wire, id, 64, 8000);
    struct pollfd hung_up = {.fd = wire.fd, .events = 0};
    ck_assert_int_eq(poll(&hung_up, 1, SPAWN_PATIENCE_MS), 1);
    ck_assert(hung_up.revents & POLLHUP);
    wire_close(&wire);
    ck_assert_uint_ge(scene_gauge(&scene, "slow_readers_total"), 1);
    scene_end(&scene);
}
END_TEST

START_TEST(a_client_gone_mid_batch_takes_its_work_along)
{
    struct frame frame;
    for (int i = 0; i < 20; i++) {
        wire_open(&wire, &scene.spawn);
        wire_generate(&wire, 1, 32, 8000);
        if (i % 2 == 0)
            wire_find(&wire, FRAME_TOKENS, &frame);
        wire_close(&wire);
    }
    scene_end(&scene);
}
END_TEST

START_TEST(a_thousand_connections_at_a_time_and_those_too_many_are_told)
{
    enum { COUNT = 1100 };
    static int fds[COUNT];
    uint32_t refused = 0;
    for (int i = 0; i < COUNT; i++) {
        fds[i] = wire_connect(&scene.spawn);
        ck_assert_int_ge(fds[i], 0);
    }
    /* The last of them are over connections-max. */
    for (int i = 1000; i < COUNT; i++) {
        struct pollfd poll_fd = {.fd = fds[i], .events = POLLIN};
        if (poll(&poll_fd, 1, i == COUNT - 1 ? SPAWN_PATIENCE_MS : 0) != 1)
            continue;
        char text[ERROR_TEXT_MAX];
        uint64_t id;
        wire = (struct wire){.fd = fds[i]};
        ck_assert_int_eq(error_of(&wire, &id, text), ERR_BUSY);
        ck_assert_msg(strstr(text, "connections-max") != NULL, "%s", text);
        refused++;
    }
    ck_assert_uint_ge(refused, 1);
    scene_check(&scene);
    for (int i = 0; i < COUNT; i++)
        close(fds[i]);
    scene_end(&scene);
}
END_TEST

/* In a process of its own: 0 when every attempt was denied. */
static int stranger(uint64_t request)
{
    sluice_client *client;
    const char *answer;
    sluice_error error;
    if (setgid(STRANGER) || setuid(STRANGER))
        return 1;
    if (sluice_connect(scene.spawn.socket, SPAWN_PATIENCE_MS, &client, &error))
        return 2;
    if (sluice_cancel_request(client, request, SPAWN_PATIENCE_MS) != -SLUICE_E_DENIED)
        return 3;
    if (sluice_control(client, SLUICE_DRAIN, NULL, SPAWN_PATIENCE_MS, &answer) != -SLUICE_E_DENIED)
        return 4;
    if (sluice_control(client, SLUICE_RESUME, NULL, SPAWN_PATIENCE_MS, &answer) != -SLUICE_E_DENIED)
        return 5;
    if (sluice_control(client, SLUICE_STATS, "{\"requests\":true}", SPAWN_PATIENCE_MS, &answer) ||
        !strstr(answer, "\"requests\":[]"))
        return 6;
    sluice_close(client);
    return 0;
}

START_TEST(another_user_cancels_drains_and_sees_nothing)
{
    struct frame frame;
    struct error error;
    uint64_t request;
    int status;
    if (geteuid() != 0) {
        scene_end(&scene);
        RUNNER_SKIP("only root can become another user");
    }
    ck_assert_int_eq(chmod(scene.spawn.directory, 0755), 0);
    ck_assert_int_eq(chmod(scene.spawn.socket, 0666), 0);
    wire_open(&wire, &scene.spawn);
    wire_generate(&wire, 1, 4, 8000);
    wire_find(&wire, FRAME_ACCEPT, &frame);
    ck_assert_int_eq(message_decode_accept(&frame, &request, &error), 0);
    pid_t pid = fork();
    if (pid == 0)
        _exit(stranger(request));
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "attempt %d succeeded",
                  WEXITSTATUS(status));
    for (int i = 0; i < 4; i++) {
        struct message_done done;
        wire_find(&wire, FRAME_DONE, &frame);
        ck_assert_int_eq(message_decode_done(&frame, &done, &error), 0);
        ck_assert_int_eq(done.finish, FINISH_LENGTH);
        ck_assert_uint_eq(done.completion_tokens, 8000);
    }
    wire_close(&wire);
    scene_end(&scene);
}
END_TEST

START_TEST(a_second_daemon_on_the_socket_is_told_so)
{
    static const char *const arguments[] = {"--model", "synthetic:null", "--device", "cpu", NULL};
    struct spawn second = scene.spawn;
    spawn_start(&second, arguments, NULL);
    ck_assert_int_eq(spawn_wait(&second), 78);
    ck_assert(spawn_logged(&scene.spawn, "another daemon listens on"));
    scene_end(&scene);
}
END_TEST

/* Good frames with some bytes changed, and bytes that were never a frame. */
START_TEST(noise_is_refused_or_understood_and_never_more)
{
    uint64_t random = 20;
    for (uint32_t i = 0; i < 400; i++) {
        static _Alignas(8) unsigned char bytes[4096];
        size_t length = chance_between(&random, 1, 600);
        if (i % 3 != 0)
            length = wire_encode_generate(bytes, sizeof(bytes), 1 + i, 2, 3);
        uint32_t changes = i % 3 == 0 ? (uint32_t)length : chance_between(&random, 1, 6);
        for (uint32_t c = 0; c < changes; c++)
            bytes[i % 3 == 0 ? c : chance_below(&random, (uint32_t)length)] =
                (unsigned char)chance_draw(&random);
        wire_open(&wire, &scene.spawn);
        wire_send(&wire, bytes, length);
        shutdown(wire.fd, SHUT_WR);
        for (struct frame frame; wire_next(&wire, &frame);)
            continue;
        wire_close(&wire);
    }
    scene_end(&scene);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("hostile");
    TCase *tcase = tcase_create("a daemon among them");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, every_bad_message_is_refused_with_its_code);
    tcase_add_test(tcase, a_client_that_says_no_hello_is_told_and_closed);
    tcase_add_test(tcase, frames_that_end_anywhere_do_no_harm);
    tcase_add_test(tcase, half_a_frame_held_open_is_told_and_closed);
    tcase_add_test(tcase, a_slow_reader_is_closed_and_its_work_cancelled);
    tcase_add_test(tcase, a_client_gone_mid_batch_takes_its_work_along);
    tcase_add_test(tcase, a_thousand_connections_at_a_time_and_those_too_many_are_told);
    tcase_add_test(tcase, another_user_cancels_drains_and_sees_nothing);
    tcase_add_test(tcase, a_second_daemon_on_the_socket_is_told_so);
    tcase_add_test(tcase, noise_is_refused_or_understood_and_never_more);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    signal(SIGPIPE, SIG_IGN);
    return runner_run(runner);
}
