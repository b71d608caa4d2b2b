/* Who is late: a client that keeps the daemon waiting, and not one whose bytes the daemon has not
 * read yet, because it is slow or stood still. `ctest -R hostile_late` runs it. */
#include <check.h>
#include <linux/sockios.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "protocol/message.h"
#include "tests/daemon/rig/spawn.h"
#include "tests/runner.h"

#define STILL_MS 2500 /* more than twice every time that the daemon gives */
#define BODY_MAX ((size_t)2 << 20)
#define ASK "{\"prompt\":\"a\",\"max_tokens\":1}"

static struct spawn spawn;

static void setup(void)
{
    char http[112];
    spawn_make(&spawn);
    snprintf(http, sizeof(http), "unix:%s/http", spawn.directory);
    const char *const arguments[] = {"--model",         "synthetic:null",
                                     "--device",        "cpu",
                                     "--http",          http,
                                     "--frame-timeout", "1s",
                                     "--stall-timeout", "1s",
                                     "--cpu-threads",   "1",
                                     "--handshake-timeout", "1s",
                                     NULL};
    spawn_start(&spawn, arguments, NULL);
    spawn_await_ready(&spawn);
}

static void teardown(void)
{
    if (spawn.pid > 0)
        kill(spawn.pid, SIGCONT);
    spawn_free(&spawn);
}

/* ---- a client ----------------------------------------------------------------------------------
 */

static int http_connect(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    snprintf(address.sun_path, sizeof(address.sun_path), "%s/http", spawn.directory);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

static void put(int fd, const void *bytes, size_t length)
{
    ck_assert_int_eq(send(fd, bytes, length, MSG_NOSIGNAL), (ssize_t)length);
}

/* Until the daemon has read all that was sent. */
static void await_read(int fd)
{
    int unread = 1;
    for (int i = 0; i < SPAWN_PATIENCE_MS && unread > 0; i++) {
        ck_assert_int_eq(ioctl(fd, SIOCOUTQ, &unread), 0);
        poll(NULL, 0, unread > 0);
    }
    ck_assert_int_eq(unread, 0);
}

/* All of it is in the socket before the daemon, which stands still for so long, goes on. */
static void put_while_it_stands_still(int fd, const void *bytes, size_t length)
{
    await_read(fd);
    kill(spawn.pid, SIGSTOP);
    ck_assert_int_eq(send(fd, bytes, length, MSG_NOSIGNAL | MSG_DONTWAIT), (ssize_t)length);
    poll(NULL, 0, STILL_MS);
    kill(spawn.pid, SIGCONT);
}

static char body[BODY_MAX];

/* The head of a request whose body, in `body`, is so long. */
static int begin(size_t length)
{
    char head[256];
    int fd = http_connect();
    memset(body, ' ', sizeof(body));
    memcpy(body, ASK, strlen(ASK));
    snprintf(head, sizeof(head),
             "POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n"
             "Content-Length: %zu\r\n\r\n",
             length);
    put(fd, head, strlen(head));
    return fd;
}

static void expect_status(int fd, int expected)
{
    char text[4096];
    int status = 0;
    struct pollfd ready = {fd, POLLIN, 0};
    ck_assert_int_eq(poll(&ready, 1, SPAWN_PATIENCE_MS), 1);
    ssize_t got = recv(fd, text, sizeof(text) - 1, 0);
    text[got > 0 ? got : 0] = '\0';
    sscanf(text, "HTTP/1.1 %d", &status);
    ck_assert_msg(status == expected, "%d: %s", expected, text);
    close(fd);
}

/* ---- the daemon is late ------------------------------------------------------------------------
 */

/* More than it reads at once. */
START_TEST(a_body_that_came_while_the_daemon_stood_still_is_read)
{
    const size_t length = 140 << 10;
    int fd = begin(length);
    put(fd, body, 10);
    put_while_it_stands_still(fd, body + 10, length - 10);
    expect_status(fd, 200);
}
END_TEST

/* And what is not all there by then has its time from then on. */
START_TEST(who_was_sending_meanwhile_may_go_on)
{
    int fd = begin(BODY_MAX);
    size_t at = 128 << 10;
    put(fd, body, 10);
    put_while_it_stands_still(fd, body + 10, at - 10);
    await_read(fd);
    poll(NULL, 0, 100);
    for (; at < BODY_MAX; at += 64 << 10)
        put(fd, body + at, 64 << 10);
    expect_status(fd, 200);
}
END_TEST

START_TEST(so_is_the_rest_of_a_message)
{
    _Alignas(8) unsigned char bytes[4096];
    struct wire wire;
    struct frame frame;
    size_t length = wire_encode_generate(bytes, sizeof(bytes), 1, 1, 3);
    wire_open(&wire, &spawn);
    wire_send(&wire, bytes, 8);
    put_while_it_stands_still(wire.fd, bytes + 8, length - 8);
    wire_find(&wire, FRAME_DONE, &frame);
    wire_close(&wire);
}
END_TEST

START_TEST(so_is_the_first_message)
{
    const struct message_hello hello = {.version_min = 1, .version_max = 1, .client = "late"};
    _Alignas(8) unsigned char bytes[256];
    struct wire wire = {.fd = wire_connect(&spawn)};
    struct frame frame;
    size_t length = message_encode_hello(bytes, sizeof(bytes), &hello);
    ck_assert_int_ge(wire.fd, 0);
    wire_send(&wire, bytes, 8);
    put_while_it_stands_still(wire.fd, bytes + 8, length - 8);
    ck_assert(wire_next(&wire, &frame));
    ck_assert_int_eq(frame.type, FRAME_WELCOME);
    wire_close(&wire);
}
END_TEST

/* ---- a client is late, or not ------------------------------------------------------------------
 */

/* Five megabits a second, for three times frame-timeout. */
START_TEST(who_sends_all_the_time_is_not_late)
{
    int fd = begin(BODY_MAX);
    for (size_t at = 0; at < BODY_MAX; at += 64 << 10) {
        put(fd, body + at, 64 << 10);
        poll(NULL, 0, 100);
    }
    expect_status(fd, 200);
}
END_TEST

START_TEST(who_sends_nothing_while_the_daemon_stands_still_is_late)
{
    int fd = begin(100);
    put(fd, body, 10);
    await_read(fd);
    kill(spawn.pid, SIGSTOP);
    poll(NULL, 0, STILL_MS);
    kill(spawn.pid, SIGCONT);
    expect_status(fd, 408);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("hostile_late");
    TCase *tcase = tcase_create("late");
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, a_body_that_came_while_the_daemon_stood_still_is_read);
    tcase_add_test(tcase, who_was_sending_meanwhile_may_go_on);
    tcase_add_test(tcase, so_is_the_rest_of_a_message);
    tcase_add_test(tcase, so_is_the_first_message);
    tcase_add_test(tcase, who_sends_all_the_time_is_not_late);
    tcase_add_test(tcase, who_sends_nothing_while_the_daemon_stands_still_is_late);
    suite_add_tcase(suite, tcase);
    signal(SIGPIPE, SIG_IGN);
    return runner_run(srunner_create(suite));
}
