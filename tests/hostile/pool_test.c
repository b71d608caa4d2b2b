/* A real daemon whose pool is flooded with conversations that take long: what finds no place is
 * refused before it is read, and another user's turn comes all the same. Nothing here is measured;
 * what comes before what decides. */
#include <check.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "protocol/message.h"
#include "tests/daemon/rig/demo_model.h"
#include "tests/hostile/scene.h"
#include "tests/runner.h"

#define STRANGER 65534u
#define FLOOD 20000u
#define HEAVY 200u /* of them: seconds, for all threads together */
#define LONG 1000u /* thousands of turns of a loop: some hundredths of a second and more */

/* As many turns as the conversation says. */
static const char template[] =
    "{% set r = range(1000) | list %}"
    "{% for i in range(messages[0].n) %}{% for j in r %}{% endfor %}{% endfor %}"
    "{{ messages[0].content }}";

static struct scene scene;
static struct wire wire;
static char model[96];

static void start(const char *queue_sequences)
{
    const char *const arguments[] = {"--model",
                                     model,
                                     "--device",
                                     "cpu",
                                     "--cpu-threads",
                                     "1",
                                     "--output-high",
                                     "32MiB",
                                     "--output-max",
                                     "64MiB",
                                     "--queue-sequences",
                                     queue_sequences,
                                     "--stall-timeout",
                                     "600s",
                                     "--kv-idle-release",
                                     "100ms",
                                     "--cache-idle-release",
                                     "100ms",
                                     NULL};
    spawn_make(&scene.spawn);
    snprintf(model, sizeof(model), "%s/model", scene.spawn.directory);
    demo_model_make(model, template);
    spawn_start(&scene.spawn, arguments, NULL);
    spawn_await_ready(&scene.spawn);
}

static void end(void)
{
    demo_model_remove(model);
    scene_free(&scene);
}

static size_t encode_chat(void *buffer, size_t size, uint64_t id, uint32_t turns)
{
    char chat[128];
    int length =
        snprintf(chat, sizeof(chat),
                 "{\"messages\":[{\"role\":\"user\",\"content\":\"417+385=\",\"n\":%u}]}", turns);
    struct message_prompt prompt = {
        .sampling = sampling_unset(), .chat = chat, .chat_length = (uint32_t)length};
    prompt.sampling.max_tokens = 1;
    const struct message_submit_out submit = {.params.job = JOB_GENERATE,
                                              .params.stream = true,
                                              .params.normalize = true,
                                              .prompt_count = 1,
                                              .prompts = &prompt};
    return message_encode_submit(buffer, size, id, &submit);
}

static void send_chat(struct wire *on, uint64_t id, uint32_t turns)
{
    _Alignas(8) unsigned char buffer[1024];
    wire_send(on, buffer, encode_chat(buffer, sizeof(buffer), id, turns));
}

START_TEST(twenty_thousand_chats_are_refused_before_they_are_read)
{
    static uint8_t answers[FLOOD + 5];
    uint32_t busy = 0, accepted = 0, busy_first = 0;
    struct frame frame;
    start("64");
    wire_open(&wire, &scene.spawn);
    for (uint64_t id = 1; id <= 4; id++)
        send_chat(&wire, id, LONG);
    for (uint64_t id = 5; id <= FLOOD + 4; id++)
        send_chat(&wire, id, 1);
    while (busy + accepted < FLOOD + 4) {
        ck_assert(wire_next(&wire, &frame));
        if (frame.type != FRAME_ERROR && frame.type != FRAME_ACCEPT)
            continue;
        ck_assert_msg(answers[frame.id]++ == 0, "%" PRIu64 " is answered twice", frame.id);
        accepted += frame.type == FRAME_ACCEPT;
        busy_first += accepted == 0;
        if (frame.type == FRAME_ACCEPT)
            continue;
        struct message_error message;
        struct error error;
        ck_assert_int_eq(message_decode_error(&frame, &message, &error), 0);
        ck_assert_msg(message.error.code == ERR_BUSY, "%s", message.error.text);
        ck_assert_uint_gt(message.error.retry_after_ms, 0);
        busy++;
    }
    /* Half of the queue is one user's. Four threads would have read the first four before anything
     * behind them. */
    ck_assert_msg(busy_first > 0, "%u were accepted before one was refused", accepted);
    ck_assert_uint_ge(accepted, 32);
    ck_assert_uint_eq(scene_gauge(&scene, "refused_busy_total"), busy);
    wire_close(&wire);
}
END_TEST

/* In a process of its own, and as another user: its chat, once it is told to begin. 0: answered. */
static int stranger(int begin)
{
    static struct wire own;
    struct frame frame;
    char byte;
    if (setgid(STRANGER) || setuid(STRANGER))
        return 1;
    wire_open(&own, &scene.spawn);
    if (read(begin, &byte, 1) != 1)
        return 2;
    send_chat(&own, 1, 1);
    wire_find(&own, FRAME_DONE, &frame);
    return 0;
}

START_TEST(another_users_chat_goes_between_those_of_a_flood)
{
    int pipes[2], status;
    if (geteuid() != 0)
        RUNNER_SKIP("only root can become another user");
    start("4096");
    ck_assert_int_eq(chmod(scene.spawn.directory, 0755), 0);
    ck_assert_int_eq(chmod(scene.spawn.socket, 0666), 0);
    ck_assert_int_eq(pipe(pipes), 0);
    pid_t pid = fork();
    if (pid == 0)
        _exit(stranger(pipes[0]));
    wire_open(&wire, &scene.spawn);
    for (uint64_t id = 1; id <= HEAVY; id++)
        send_chat(&wire, id, LONG);
    wire_control(&wire, FRAME_HEALTH, ""); /* behind the chats: they are there */
    struct frame frame;
    wire_find(&wire, FRAME_HEALTH, &frame);
    ck_assert_int_eq(write(pipes[1], "", 1), 1);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the other user: %d", status);
    uint64_t requests = scene_gauge(&scene, "requests_total");
    ck_assert_msg(requests <= HEAVY / 2, "%" PRIu64 " chats went before another user's",
                  requests - 1);
    /* Who goes leaves no work behind: what waits is dropped, what runs is stopped. */
    wire_close(&wire);
    for (int i = 0; i < SCENE_SETTLE_MS / 20 && scene_gauge(&scene, "texts_running") > 0; i++)
        usleep(20000);
    ck_assert_uint_eq(scene_gauge(&scene, "texts_waiting"), 0);
    ck_assert_uint_eq(scene_gauge(&scene, "texts_running"), 0);
    ck_assert_uint_le(scene_gauge(&scene, "requests_total"), HEAVY / 2);
    close(pipes[0]);
    close(pipes[1]);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("hostile_pool");
    TCase *tcase = tcase_create("a pool among them");
    tcase_set_timeout(tcase, 300);
    tcase_add_checked_fixture(tcase, NULL, end);
    tcase_add_test(tcase, twenty_thousand_chats_are_refused_before_they_are_read);
    tcase_add_test(tcase, another_users_chat_goes_between_those_of_a_flood);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    signal(SIGPIPE, SIG_IGN);
    return runner_run(runner);
}
