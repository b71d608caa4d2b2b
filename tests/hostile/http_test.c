/* Bodies that are huge, deep or endless, and clients that are slow, a thousand of them at a time.
 */
#include <check.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/hostile/bad.h"
#include "tests/hostile/http_rig.h"
#include "tests/hostile/http_suites.h"
#include "tests/runner.h"

/* ---- bodies ------------------------------------------------------------------------------------
 */

static const struct {
    const char *head, *pattern, *tail, *says;
    int status;
} bodies[] = {
    {"{\"prompt\":\"", "a", "\"}", "8388608 is the limit", 400},
    {"{\"prompt\":[", "1,", "1]}", "more than 1048576 values", 400},
    {"{\"prompt\":[[", "1],[", "1]]}", "more than 1048576 values", 400},
    {"{\"x\":", "[", "", "nested deeper than 32", 400},
    {"{\"x\":", "{\"x\":", "", "nested deeper than 32", 400},
    {"{\"prompt\":\"a\",\"logit_bias\":{\"1\":", "1", "}}", "JSON at byte", 400},
    {"", " ", "", "the text ends too early", 400},
    {"", "\xff", "", "JSON at byte 0", 400},
    {"{\"prompt\":\"", "\\u00e9", "\"}", "more than 8192 tokens", 400},
    {"{\"prompt\":\"a\",\"stop\":[\"", "a\",\"", "a\"]}", "more than 1048576 values", 400},
};

START_TEST(ten_megabytes_of_anything_are_refused)
{
    for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i += STRIDE) {
        size_t length, pattern = strlen(bodies[i].pattern);
        /* Whole patterns, so that what stands behind them belongs there. */
        char *body = http_body_of(bodies[i].head, bodies[i].pattern, 10 * MIB / pattern * pattern,
                                  bodies[i].tail, &length);
        http_expect("/v1/completions", body, length, bodies[i].status, bodies[i].says);
        free(body);
    }
    scene_end(&scene);
}
END_TEST

#define TEN_DOCUMENTS "\"b\",\"b\",\"b\",\"b\",\"b\",\"b\",\"b\",\"b\",\"b\",\"b\""

/* Pairs multiply: what is said once is read with each of what is said often. */
static const struct {
    const char *path, *head, *pattern;
    size_t mib;
    const char *tail, *says;
} pairs[] = {
    {"/v1/rerank", "{\"query\":\"a\",\"documents\":[\"", "a\",\"", 10, "a\"]}",
     "more than 1048576 values"},
    {"/v1/rerank", "{\"query\":\"a\",\"documents\":[", "\"\",", 2, "\"\"]}",
     "at most 4096 are accepted"},
    {"/v1/rerank", "{\"query\":\"a\",\"documents\":", "[", 4, "", "nested deeper than 32"},
    {"/v1/rerank", "{\"documents\":[" TEN_DOCUMENTS "," TEN_DOCUMENTS "],\"query\":\"", "a", 7,
     "\"}", "would wait for the tokenizer"},
    {"/v1/rerank", "{\"documents\":[" TEN_DOCUMENTS "],\"query\":\"", "a", 1, "\"}",
     "more than 8192 tokens"},
    {"/v1/score", "{\"text_1\":\"a\",\"text_2\":[\"", "a", 4, "\"]}", "more than 8192 tokens"},
};

START_TEST(pairs_without_measure_are_refused)
{
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        size_t length, pattern = strlen(pairs[i].pattern);
        char *body = http_body_of(pairs[i].head, pairs[i].pattern,
                                  pairs[i].mib * MIB / pattern * pattern, pairs[i].tail, &length);
        http_expect(pairs[i].path, body, length, 400, pairs[i].says);
        free(body);
    }
    scene_end(&scene);
}
END_TEST

START_TEST(what_is_over_the_limit_is_refused_before_it_is_there)
{
    char text[4096];
    static const char chunked[] = "POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Type: "
                                  "application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
    int fd = http_head("/v1/completions", 100 * MIB);
    ck_assert_int_eq(http_status(fd, text, sizeof(text)), 413);
    close(fd);
    fd = http_connect();
    ck_assert(http_send(fd, chunked, strlen(chunked)));
    char *piece = malloc(MIB + 16);
    size_t length = (size_t)sprintf(piece, "%zx\r\n", MIB);
    memset(piece + length, ' ', MIB);
    memcpy(piece + length + MIB, "\r\n", 2);
    for (int i = 0; i < 20 && http_send(fd, piece, length + MIB + 2); i++)
        continue;
    free(piece);
    http_send(fd, "0\r\n\r\n", 5);
    ck_assert_int_eq(http_status(fd, text, sizeof(text)), 413);
    close(fd);
    scene_end(&scene);
}
END_TEST

/* ---- slow ones ---------------------------------------------------------------------------------
 */

#define HEAD                                                                                       \
    "POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n"               \
    "Content-Length: 1000\r\n"
#define STREAM                                                                                     \
    "{\"prompt\":[1],\"max_tokens\":8000,\"ignore_eos\":true,\"stream\":true,\"logprobs\":5}"

enum slowness { SLOW_HEAD, SLOW_BODY, SLOW_READER, SLOW_SILENT, SLOW_KINDS };

/* One that will never be done in time. */
static int slow_open(enum slowness slowness)
{
    char request[512];
    int fd = http_connect(), small = 4096;
    switch (slowness) {
    case SLOW_HEAD:
        ck_assert(http_send(fd, HEAD, 20));
        break;
    case SLOW_BODY:
        ck_assert(http_send(fd, HEAD "\r\n{\"prompt\":\"" BAD_CANARY, strlen(HEAD) + 29));
        break;
    case SLOW_READER:
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
        snprintf(request, sizeof(request),
                 "POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n"
                 "Content-Length: %zu\r\n\r\n" STREAM,
                 strlen(STREAM));
        ck_assert(http_send(fd, request, strlen(request)));
        break;
    default:
        break;
    }
    return fd;
}

/* A byte each, where they still talk. */
static void slow_drip(const int *fds, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (i % SLOW_KINDS == SLOW_HEAD || i % SLOW_KINDS == SLOW_BODY)
            send(fds[i], "a", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* How many of them the daemon has hung up on. Nobody reads, so what it has sent stays there. */
static uint32_t slow_closed(const int *fds, uint32_t count)
{
    static struct pollfd polls[CROWD];
    uint32_t closed = 0;
    for (uint32_t i = 0; i < count; i++)
        polls[i] = (struct pollfd){.fd = fds[i], .events = 0};
    ck_assert_int_ge(poll(polls, count, 0), 0);
    for (uint32_t i = 0; i < count; i++)
        closed += (polls[i].revents & (POLLHUP | POLLERR)) != 0;
    return closed;
}

/* A byte every 100 ms, until all of them are cut off. */
static void outlast(const int *fds, uint32_t count)
{
    uint32_t closed = 0;
    for (int i = 0; i < 3 * SPAWN_PATIENCE_MS / 100 && closed < count; i++) {
        slow_drip(fds, count);
        poll(NULL, 0, 100);
        closed = slow_closed(fds, count);
        if (i % 5 == 0)
            scene_check(&scene);
    }
    ck_assert_msg(closed == count, "%u of %u were cut off", closed, count);
}

START_TEST(who_sends_a_byte_at_a_time_is_cut_off)
{
    int fds[SLOW_KINDS];
    for (int i = 0; i < SLOW_KINDS; i++)
        fds[i] = slow_open((enum slowness)i);
    outlast(fds, SLOW_KINDS);
    for (int i = 0; i < SLOW_KINDS; i++)
        close(fds[i]);
    scene_end(&scene);
}
END_TEST

START_TEST(a_thousand_slow_connections_keep_nobody_waiting)
{
    static int fds[CROWD];
    if (!http_raise_descriptors()) {
        scene_end(&scene);
        RUNNER_SKIP("raise the limit of open files (ulimit -n)");
    }
    for (uint32_t i = 0; i < CROWD; i++)
        fds[i] = slow_open((enum slowness)(i % SLOW_KINDS));
    /* While they are there, others are served. */
    for (int i = 0; i < 10; i++)
        http_expect("/v1/completions", "{\"prompt\":\"a\",\"max_tokens\":1}", 29, 200,
                    "\"choices\"");
    outlast(fds, CROWD);
    for (uint32_t i = 0; i < CROWD; i++)
        close(fds[i]);
    scene_end(&scene);
}
END_TEST

START_TEST(a_crowd_that_vanishes_takes_its_work_along)
{
    static int fds[CROWD];
    uint32_t count = http_raise_descriptors() ? CROWD : 100;
    for (uint32_t i = 0; i < count; i++)
        fds[i] = slow_open((enum slowness)(i % SLOW_KINDS));
    scene_check(&scene);
    for (uint32_t i = 0; i < count; i++)
        close(fds[i]);
    scene_end(&scene);
}
END_TEST

Suite *crowd_suite(void)
{
    Suite *suite = suite_create("crowd");
    TCase *tcase = tcase_create("crowd");
    tcase_set_timeout(tcase, 300);
    tcase_add_checked_fixture(tcase, http_setup, http_teardown);
    tcase_add_test(tcase, ten_megabytes_of_anything_are_refused);
    tcase_add_test(tcase, pairs_without_measure_are_refused);
    tcase_add_test(tcase, what_is_over_the_limit_is_refused_before_it_is_there);
    tcase_add_test(tcase, who_sends_a_byte_at_a_time_is_cut_off);
    tcase_add_test(tcase, a_thousand_slow_connections_keep_nobody_waiting);
    tcase_add_test(tcase, a_crowd_that_vanishes_takes_its_work_along);
    suite_add_tcase(suite, tcase);
    return suite;
}
