/* What load balancers are told, and the grace before the end in which they see it: the line by its
 * rule, and a process with real sockets. */
#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/api/agent.h"
#include "tests/daemon/daemon_suites.h"
#include "tests/daemon/rig/spawn.h"
#include "tests/daemon/rig/world.h"

#define SECOND 1000000u

/* ---- the weight --------------------------------------------------------------------------------
 */

START_TEST(a_weight_goes_by_the_wait_and_the_target)
{
    struct agent agent = {0};
    ck_assert_uint_eq(agent_weight(&agent, 0, 100000, SECOND), 100);
    agent = (struct agent){0};
    ck_assert_uint_eq(agent_weight(&agent, 100000, 100000, SECOND), 100);
    agent = (struct agent){0};
    ck_assert_uint_eq(agent_weight(&agent, 200000, 100000, SECOND), 50);
    agent = (struct agent){0};
    ck_assert_uint_eq(agent_weight(&agent, 400000, 100000, SECOND), 25);
    agent = (struct agent){0}; /* 0 would be a drain */
    ck_assert_uint_eq(agent_weight(&agent, 1e12, 100000, SECOND), 1);
    agent = (struct agent){0};
    ck_assert_uint_eq(agent_weight(&agent, 2, 0, SECOND), 50);
}
END_TEST

/* However many ask, and however often: what counts is the time that a wait has lasted. */
START_TEST(a_weight_is_smooth_whoever_asks_how_often)
{
    for (uint32_t each_us = 10000; each_us <= SECOND; each_us *= 10) {
        struct agent agent = {0};
        time_us now_us = SECOND;
        uint32_t last = agent_weight(&agent, 0, 100000, now_us);
        for (int i = 0; i < 3; i++) /* a spike of a moment */
            ck_assert_uint_eq(agent_weight(&agent, 0, 100000, now_us += each_us), last);
        uint32_t first = agent_weight(&agent, 200000, 100000, now_us += each_us);
        ck_assert_uint_eq(first, 100);
        for (; now_us < 30 * SECOND; now_us += each_us) {
            uint32_t next = agent_weight(&agent, 200000, 100000, now_us);
            ck_assert_uint_le(next, last);
            ck_assert(next == last || last - next >= AGENT_STEP);
            last = next;
        }
        ck_assert_uint_ge(last, 50);
        ck_assert_uint_lt(last, 50 + AGENT_STEP);
        for (; now_us < 2000 * SECOND; now_us += each_us)
            last = agent_weight(&agent, 0, 100000, now_us);
        ck_assert_uint_eq(last, 100);
    }
}
END_TEST

static void expect_line(struct agent *agent, const struct world *world, const char *wanted)
{
    char line[AGENT_LINE_MAX];
    size_t length = agent_line(agent, &world->server, world->now_us, line);
    ck_assert_uint_eq(length, strlen(line));
    ck_assert_str_eq(line, wanted);
}

START_TEST(a_line_is_whole_in_every_phase)
{
    struct world world;
    struct agent agent = {0};
    struct error error;
    world_make(&world);
    expect_line(&agent, &world, "down #loading\n");
    world_ready(&world);
    expect_line(&agent, &world, "up ready 100%\n");
    server_drain(&world.server);
    expect_line(&agent, &world, "up drain\n");
    server_resume(&world.server);
    expect_line(&agent, &world, "up ready 100%\n");
    server_leave(&world.server);
    expect_line(&agent, &world, "up drain\n");
    server_end(&world.server);
    expect_line(&agent, &world, "up drain\n");
    error_set(&error, ERR_DEVICE, "it broke");
    server_fail(&world.server, &error, world.now_us);
    expect_line(&agent, &world, "down #failed\n");
    world_free(&world);
}
END_TEST

START_TEST(a_queue_lowers_the_weight)
{
    struct world world;
    struct client client;
    struct agent agent = {0};
    const struct ask ask = {.job = JOB_GENERATE, .id = 1, .count = 8, .length = 4, .max_tokens = 4};
    char line[AGENT_LINE_MAX];
    unsigned percent = 0;
    world_make(&world);
    world_ready(&world);
    client_open(&world, &client, 1);
    world.replica.room = 1;
    client_ask(&client, &ask);
    for (int i = 0; i < 4; i++) { /* one leaves each second */
        world_pass(&world, SECOND);
        world_step(&world, 4);
    }
    ck_assert_uint_gt(world.server.models[0].waiting.count, 0);
    agent_line(&agent, &world.server, world.now_us, line);
    ck_assert_int_eq(sscanf(line, "up ready %u%%", &percent), 1);
    ck_assert_uint_lt(percent, 50);
    client_free(&client);
    world_finish(&world);
    world_free(&world);
}
END_TEST

/* ---- the process -------------------------------------------------------------------------------
 */

static struct spawn spawn;

static void setup(void)
{
    spawn_make(&spawn);
}

static void teardown(void)
{
    spawn_free(&spawn);
}

static void start(const char *grace)
{
    char http[112], agent[112];
    snprintf(http, sizeof(http), "unix:%s/http", spawn.directory);
    snprintf(agent, sizeof(agent), "unix:%s/agent", spawn.directory);
    const char *const arguments[] = {
        "--model", "synthetic:null", "--device", "cpu", "--http", http, "--agent-check",
        agent,     "--drain-grace",  grace,      NULL};
    spawn_start(&spawn, arguments, NULL);
    spawn_await_ready(&spawn);
}

/* What the socket sends until its end, after what it is sent. */
static const char *ask_socket(const char *name, const char *sent)
{
    static char got[8192];
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct timeval patience = {.tv_sec = SPAWN_PATIENCE_MS / 1000};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    size_t length = 0;
    ssize_t count;
    snprintf(address.sun_path, sizeof(address.sun_path), "%s/%s", spawn.directory, name);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    (void)!send(fd, sent, strlen(sent), MSG_NOSIGNAL); /* the line may have come already */
    while ((count = recv(fd, got + length, sizeof(got) - 1 - length, 0)) > 0)
        length += (size_t)count;
    got[length] = '\0';
    close(fd);
    return got;
}

#define COMPLETION                                                                                 \
    "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"       \
    "Content-Length: 38\r\n\r\n{\"prompt\":[1],\"max_tokens\":2,\"seed\":1}"

static void await_line(const char *line)
{
    for (int tries = 0; tries < SPAWN_PATIENCE_MS / 10; tries++) {
        if (strcmp(ask_socket("agent", ""), line) == 0)
            return;
        usleep(10000);
    }
    ck_abort_msg("never %s", line);
}

#define contains(text, part) ck_assert_msg(strstr(text, part) != NULL, "%s not in %s", part, text)

/* The answer says that the connection ends with it, so the end of the stream is waited for. */
START_TEST(in_the_grace_work_is_taken_and_readiness_has_fallen)
{
    start("3600s");
    ck_assert_str_eq(ask_socket("agent", ""), "up ready 100%\n");
    kill(spawn.pid, SIGTERM);
    await_line("up drain\n");
    const char *answer = ask_socket("http", COMPLETION);
    contains(answer, "HTTP/1.1 200 ");
    contains(answer, "Connection: close\r\n");
    contains(answer, "\"completion_tokens\":2");
    answer = ask_socket("http", "GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n");
    contains(answer, "HTTP/1.1 503 ");
    answer = ask_socket("http", "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n");
    contains(answer, "HTTP/1.1 200 ");
    kill(spawn.pid, SIGTERM); /* who asks twice does not wait */
    ck_assert_int_eq(spawn_wait(&spawn), 1);
}
END_TEST

START_TEST(after_the_grace_the_daemon_ends)
{
    start("300ms");
    kill(spawn.pid, SIGTERM);
    ck_assert_int_eq(spawn_wait(&spawn), 0);
    ck_assert(spawn_logged(&spawn, "drain-grace is over: no new work"));
}
END_TEST

START_TEST(what_an_agent_check_sends_does_not_destroy_the_line)
{
    start("0s");
    for (int i = 0; i < 50; i++)
        ck_assert_str_eq(ask_socket("agent", "hello\n"), "up ready 100%\n");
}
END_TEST

Suite *agent_suite(void)
{
    Suite *suite = suite_create("agent");
    TCase *pure = tcase_create("line"), *process = tcase_create("process");
    tcase_add_test(pure, a_weight_goes_by_the_wait_and_the_target);
    tcase_add_test(pure, a_weight_is_smooth_whoever_asks_how_often);
    tcase_add_test(pure, a_line_is_whole_in_every_phase);
    tcase_add_test(pure, a_queue_lowers_the_weight);
    suite_add_tcase(suite, pure);
    tcase_set_timeout(process, 60);
    tcase_add_checked_fixture(process, setup, teardown);
    tcase_add_test(process, in_the_grace_work_is_taken_and_readiness_has_fallen);
    tcase_add_test(process, after_the_grace_the_daemon_ends);
    tcase_add_test(process, what_an_agent_check_sends_does_not_destroy_the_line);
    suite_add_tcase(suite, process);
    return suite;
}
