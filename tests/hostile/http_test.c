/* A real daemon's HTTP among clients that are huge, deep, endless, slow or gone, a thousand of them
 * at a time. Each is refused or bounded, the canary sees nothing of it, and afterwards the daemon
 * is as it was. `ctest -R hostile_http` runs it; it raises the number of descriptors by itself, and
 * says SKIPPED where that is not allowed. */
#include <check.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/daemon/rig/demo_model.h"
#include "tests/hostile/bad.h"
#include "tests/hostile/scene.h"
#include "tests/runner.h"

#define MIB ((size_t)1 << 20)
#define DESCRIPTORS 4096
#if defined(__SANITIZE_THREAD__)
#define CROWD 200 /* what is slow anyway is not done several times over */
#define AT_A_TIME 1
#define STRIDE 3
#else
#define CROWD 1000
#define AT_A_TIME 4
#define STRIDE 1
#endif

static struct scene scene;
static char http_option[160];
static int tcp_port;

/* ---- the least of an HTTP client ---------------------------------------------------------------
 */

static int http_connect(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(fd, 0);
    snprintf(address.sun_path, sizeof(address.sun_path), "%s/http", scene.spawn.directory);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

/* False when the other side takes no more: it may have answered before all was there. */
static bool http_send(int fd, const void *bytes, size_t length)
{
    const char *at = bytes;
    while (length > 0) {
        ssize_t sent = send(fd, at, length, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0)
            return false;
        at += sent;
        length -= (size_t)sent;
    }
    return true;
}

/* The status, 0 when it was closed without one; text: the first bytes of the answer. */
static int http_status(int fd, char *text, size_t size)
{
    size_t used = 0;
    int status = 0;
    while (used + 1 < size) {
        struct pollfd ready = {fd, POLLIN, 0};
        ck_assert_msg(poll(&ready, 1, 3 * SPAWN_PATIENCE_MS) == 1, "no answer in time");
        ssize_t got = recv(fd, text + used, size - 1 - used, 0);
        if (got <= 0)
            break;
        used += (size_t)got;
        text[used] = '\0';
        const char *body = strstr(text, "\r\n\r\n");
        const char *length = strcasestr(text, "content-length: ");
        if (body && length && strlen(body + 4) >= strtoul(length + 16, NULL, 10))
            break;
    }
    text[used] = '\0';
    sscanf(text, "HTTP/1.1 %d", &status);
    return status;
}

static int http_head(const char *path, size_t length)
{
    char head[256];
    int fd = http_connect();
    snprintf(head, sizeof(head),
             "POST %s HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n"
             "Content-Length: %zu\r\n\r\n",
             path, length);
    ck_assert(http_send(fd, head, strlen(head)));
    return fd;
}

static int http_post(const char *path, const char *body, size_t length, char *text, size_t size)
{
    int fd = http_head(path, length);
    http_send(fd, body, length);
    int status = http_status(fd, text, size);
    close(fd);
    return status;
}

static void expect(const char *path, const char *body, size_t length, int status, const char *says)
{
    char text[4096];
    int seen = http_post(path, body, length, text, sizeof(text));
    ck_assert_msg(seen == status, "%s: %d, must be %d: %s", says, seen, status, text);
    ck_assert_msg(strstr(text, says) != NULL, "not \"%s\": %s", says, text);
    scene_check(&scene);
}

/* ---- before and after --------------------------------------------------------------------------
 */

static bool raise_descriptors(void)
{
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur >= DESCRIPTORS)
        return true;
    limit.rlim_cur = limit.rlim_max < DESCRIPTORS ? limit.rlim_max : DESCRIPTORS;
    setrlimit(RLIMIT_NOFILE, &limit); /* the daemon has it from here */
    return limit.rlim_cur >= DESCRIPTORS;
}

static void start(const char *model, const char *input_max, const struct canary_song *song)
{
    const char *const arguments[] = {"--model",
                                     model,
                                     "--device",
                                     "cpu",
                                     "--http",
                                     http_option,
                                     "--log-level",
                                     "debug",
                                     "--frame-timeout",
                                     "1s",
                                     "--stall-timeout",
                                     "1s",
                                     "--connections-max",
                                     "2000",
                                     "--frame-max",
                                     "16MiB",
                                     "--input-max",
                                     input_max,
                                     "--kv-idle-release",
                                     "100ms",
                                     "--cpu-threads",
                                     "1",
                                     "--insecure-loopback",
                                     "yes",
                                     NULL};
    scene_start(&scene, arguments, song);
}

/* Somebody else may take it before the daemon does: then the daemon says so, and the test fails. */
static int free_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, length), 0);
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&address, &length), 0);
    close(fd);
    return ntohs(address.sin_port);
}

static void make(void)
{
    raise_descriptors();
    spawn_make(&scene.spawn);
    tcp_port = free_port();
    snprintf(http_option, sizeof(http_option), "unix:%s/http,127.0.0.1:%d", scene.spawn.directory,
             tcp_port);
}

static void setup(void)
{
    make();
    start("synthetic:null", "256MiB", NULL);
    /* What the first of everything takes stays: a thread for long bodies, its heap. */
    static char body[64 << 10];
    memset(body, ' ', sizeof(body));
    memcpy(body, "{\"prompt\":\"a\",\"max_tokens\":1}", 29);
    expect("/v1/completions", body, sizeof(body), 200, "\"object\":\"text_completion\"");
    scene.resident = spawn_resident(&scene.spawn);
    scene.slack = 8 * MIB; /* four threads with a heap each */
}

static void teardown(void)
{
    scene_free(&scene);
}

/* ---- bodies ------------------------------------------------------------------------------------
 */

/* `head`, then `length` bytes of a pattern, then `tail`. */
static char *body_of(const char *head, const char *pattern, size_t length, const char *tail,
                     size_t *ret_length)
{
    size_t before = strlen(head), after = strlen(tail), step = strlen(pattern);
    char *body = malloc(before + length + after);
    ck_assert_ptr_nonnull(body);
    memcpy(body, head, before);
    for (size_t i = 0; i < length; i++)
        body[before + i] = pattern[i % step];
    memcpy(body + before + length, tail, after);
    *ret_length = before + length + after;
    return body;
}

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
        char *body = body_of(bodies[i].head, bodies[i].pattern, 10 * MIB / pattern * pattern,
                             bodies[i].tail, &length);
        expect("/v1/completions", body, length, bodies[i].status, bodies[i].says);
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
    if (!raise_descriptors()) {
        scene_end(&scene);
        RUNNER_SKIP("raise the limit of open files (ulimit -n)");
    }
    for (uint32_t i = 0; i < CROWD; i++)
        fds[i] = slow_open((enum slowness)(i % SLOW_KINDS));
    /* While they are there, others are served. */
    for (int i = 0; i < 10; i++)
        expect("/v1/completions", "{\"prompt\":\"a\",\"max_tokens\":1}", 29, 200, "\"choices\"");
    outlast(fds, CROWD);
    for (uint32_t i = 0; i < CROWD; i++)
        close(fds[i]);
    scene_end(&scene);
}
END_TEST

START_TEST(a_crowd_that_vanishes_takes_its_work_along)
{
    static int fds[CROWD];
    uint32_t count = raise_descriptors() ? CROWD : 100;
    for (uint32_t i = 0; i < count; i++)
        fds[i] = slow_open((enum slowness)(i % SLOW_KINDS));
    scene_check(&scene);
    for (uint32_t i = 0; i < count; i++)
        close(fds[i]);
    scene_end(&scene);
}
END_TEST

/* ---- framing -----------------------------------------------------------------------------------
 */

/* Behind everything that cannot be read stands what a proxy may have taken for its body. */
#define HIDDEN "GET /version HTTP/1.1\r\nHost: h\r\nx-request-id: smuggled\r\n\r\n"
#define POSTED "POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n"
#define CHUNKED POSTED "Transfer-Encoding: chunked\r\n\r\n"
#define ASK "{\"prompt\":\"a\",\"max_tokens\":1}"
#define RAW(status, bytes) {bytes HIDDEN, sizeof(bytes HIDDEN) - 1, status}

static const struct raw {
    const char *bytes;
    size_t length;
    int status;
} raws[] = {
    RAW(400, POSTED "Content-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    RAW(400, POSTED "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n"),
    RAW(400, POSTED "Content-Length: 29\r\nContent-Length: 0\r\n\r\n" ASK),
    RAW(400, POSTED "Content-Length: 29\r\nContent-Length: 29\r\n\r\n" ASK),
    RAW(400, POSTED "Content-Length: 29, 29\r\n\r\n" ASK),
    RAW(400, POSTED "Content-Length: +29\r\n\r\n" ASK),
    RAW(400, POSTED "Content-Length: -1\r\n\r\n" ASK),
    RAW(413, POSTED "Content-Length: 18446744073709551645\r\n\r\n" ASK),
    RAW(400, POSTED "Content-Length : 29\r\n\r\n" ASK),
    RAW(400, POSTED "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n"),
    RAW(400, POSTED "x: y\r\n Content-Length: 29\r\n\r\n" ASK),
    RAW(400, POSTED "x: y\nContent-Length: 29\r\n\r\n" ASK),
    RAW(400, POSTED "x: y\rContent-Length: 29\r\n\r\n" ASK),
    RAW(400, POSTED "x: \0\r\nContent-Length: 29\r\n\r\n" ASK),
    RAW(400, POSTED "Content-Length: 29\n\n" ASK),
    RAW(400, POSTED "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n"),
    RAW(400, POSTED "Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n"),
    RAW(400, POSTED "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    RAW(501, POSTED "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
    RAW(501, POSTED "Transfer-Encoding: xchunked\r\n\r\n"),
    RAW(400, CHUNKED "1;a=b\r\n{\r\n0\r\n\r\n"),
    RAW(400, CHUNKED "fffffffffffffffff\r\n{\r\n0\r\n\r\n"),
    RAW(400, CHUNKED "1\r\n{}\r\n0\r\n\r\n"),
    RAW(400, CHUNKED "1\n{\n0\n\n"),
    RAW(400, CHUNKED "0\r\nContent-Length: 5\r\n\r\n"),
    RAW(400, "GET /version\r\n\r\n"),
    RAW(400, "GET  /version HTTP/1.1\r\nHost: h\r\n\r\n"),
    RAW(400, "GET /version HTTP/1.1\r\nHost: h\r\nHost: h\r\n\r\n"),
    RAW(400, "\x16\x03\x01\x02\x00\x01\r\n\r\n"),
    RAW(505, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    /* Read, and refused before its body was: what follows is the body's, not a request. */
    RAW(415, "POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Length: 200\r\n\r\n"),
    RAW(404, "POST /nowhere HTTP/1.1\r\nHost: h\r\nContent-Length: 200\r\n\r\n"),
    RAW(413, POSTED "Content-Length: 99999999999\r\n\r\n"),
};

/* All that comes up to the end of the stream. */
static void read_all(int fd, char *text, size_t size)
{
    size_t used = 0;
    for (;;) {
        struct pollfd ready = {fd, POLLIN, 0};
        ck_assert_msg(poll(&ready, 1, 3 * SPAWN_PATIENCE_MS) == 1, "no end in time");
        ssize_t got = recv(fd, text + used, size - 1 - used, 0);
        if (got <= 0)
            break;
        used += (size_t)got;
        ck_assert_uint_lt(used, size - 1);
    }
    text[used] = '\0';
}

static uint32_t answers_in(const char *text)
{
    uint32_t count = 0;
    while ((text = strstr(text, "HTTP/1.1 "))) {
        text += 9;
        count++;
    }
    return count;
}

static void check_refused(const char *text, int status, const char *bytes)
{
    int seen = 0;
    sscanf(text, "HTTP/1.1 %d", &seen);
    ck_assert_msg(seen == status && answers_in(text) == 1, "%d, must be %d:\n%s\n--\n%s", seen,
                  status, bytes, text);
    ck_assert_msg(!strstr(text, "smuggled"), "%s\n--\n%s", bytes, text);
    ck_assert_msg(strstr(text, "Connection: close\r\n") != NULL, "%s", text);
    ck_assert_msg(strstr(text, "Content-Type: application/json\r\n") != NULL, "%s", text);
    ck_assert_msg(strstr(text, "{\"error\":{\"message\":\"") != NULL, "%s", text);
}

START_TEST(what_is_framed_wrong_is_refused_and_nothing_after_it_is_a_request)
{
    char text[8192];
    for (size_t i = 0; i < sizeof(raws) / sizeof(raws[0]); i++) {
        for (size_t step = raws[i].length; step > 0; step = step > 1 ? 1 : 0) {
            int fd = http_connect();
            for (size_t at = 0; at < raws[i].length; at += step)
                if (!http_send(fd, raws[i].bytes + at, step))
                    break; /* it was refused by then */
            read_all(fd, text, sizeof(text));
            check_refused(text, raws[i].status, raws[i].bytes);
            close(fd);
        }
    }
    scene_end(&scene);
}
END_TEST

#define ASKED POSTED "Content-Length: 29\r\n\r\n" ASK
#define LAST "GET /version HTTP/1.1\r\nHost: h\r\nConnection: close\r\nx-request-id: last\r\n\r\n"

START_TEST(what_is_framed_right_is_answered_in_order)
{
    static const char *const good[] = {
        ASKED ASKED LAST,
        POSTED "Transfer-Encoding: chunked\r\n\r\n1d\r\n" ASK "\r\n0\r\n\r\n" ASKED LAST,
        ASKED "\r\n" ASKED LAST,
        "HEAD /version HTTP/1.1\r\nHost: h\r\n\r\n" ASKED LAST,
    };
    char text[16384];
    for (size_t i = 0; i < 2 * sizeof(good) / sizeof(good[0]); i++) {
        const char *bytes = good[i / 2];
        size_t length = strlen(bytes), step = i % 2 ? 1 : length;
        int fd = http_connect();
        for (size_t at = 0; at < length; at += step)
            ck_assert(http_send(fd, bytes + at, step));
        read_all(fd, text, sizeof(text));
        close(fd);
        const char *last = strstr(text, "x-request-id: last");
        ck_assert_msg(answers_in(text) == 3 && last && answers_in(last) == 0, "%s\n--\n%s", bytes,
                      text);
        ck_assert_ptr_null(strstr(text, "HTTP/1.1 4"));
    }
    scene_end(&scene);
}
END_TEST

START_TEST(half_a_request_is_told_that_its_time_is_over)
{
    static const char *const halves[] = {"G", "GET / HTTP/1.1\r\nHost: h\r\n",
                                         POSTED "Content-Length: 29\r\n\r\n{\"prompt\"",
                                         CHUNKED "5\r\n{\"pr"};
    char text[8192];
    for (int cut = 0; cut < 2; cut++) {
        for (size_t i = 0; i < sizeof(halves) / sizeof(halves[0]); i++) {
            int fd = http_connect();
            ck_assert(http_send(fd, halves[i], strlen(halves[i])));
            if (cut)
                shutdown(fd, SHUT_WR);
            read_all(fd, text, sizeof(text));
            check_refused(text, cut ? 400 : 408, halves[i]);
            close(fd);
        }
    }
    int fd = http_connect(); /* who says nothing is told nothing */
    read_all(fd, text, sizeof(text));
    ck_assert_str_eq(text, "");
    close(fd);
    scene_end(&scene);
}
END_TEST

START_TEST(who_waits_to_be_told_to_go_on_is_told)
{
    char text[8192];
    int fd = http_connect();
    static const char head[] = POSTED "Content-Length: 29\r\nExpect: 100-continue\r\n\r\n";
    static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
    ck_assert(http_send(fd, head, strlen(head)));
    for (size_t used = 0; used < strlen(go_on);) {
        struct pollfd ready = {fd, POLLIN, 0};
        ck_assert_int_eq(poll(&ready, 1, SPAWN_PATIENCE_MS), 1);
        ssize_t got = recv(fd, text + used, strlen(go_on) - used, 0);
        ck_assert_int_gt(got, 0);
        used += (size_t)got;
    }
    ck_assert_mem_eq(text, go_on, strlen(go_on));
    ck_assert(http_send(fd, ASK, 29));
    ck_assert_int_eq(http_status(fd, text, sizeof(text)), 200);
    close(fd);
    scene_end(&scene);
}
END_TEST

/* ---- clients that end their side ---------------------------------------------------------------
 */

static int tcp_connect(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)tcp_port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

static size_t long_ask(char *request, size_t size, uint32_t tokens, bool stream)
{
    char body[256];
    snprintf(body, sizeof(body), "{\"prompt\":[1],\"max_tokens\":%u,\"ignore_eos\":true%s}", tokens,
             stream ? ",\"stream\":true" : "");
    return (size_t)snprintf(request, size,
                            "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
                            "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
                            strlen(body), body);
}

START_TEST(who_shuts_down_its_writing_side_gets_all_its_answers)
{
    static char text[1 << 20];
    char request[1024];
    for (int i = 0; i < 4; i++) {
        bool tcp = i & 1, stream = i & 2;
        int fd = tcp ? tcp_connect() : http_connect();
        size_t length = long_ask(request, sizeof(request), 500, stream);
        ck_assert(http_send(fd, request, length));
        ck_assert(http_send(fd, request, length));
        ck_assert_int_eq(shutdown(fd, SHUT_WR), 0);
        read_all(fd, text, sizeof(text));
        close(fd);
        const char *first = strstr(text, "\"finish_reason\":\"length\"");
        ck_assert_msg(first && strstr(first + 1, "\"finish_reason\":\"length\""), "%s", text);
    }
    scene_end(&scene);
    ck_assert(!spawn_logged(&scene.spawn, " cancelled="));
}
END_TEST

/* Both ways: at once, and after the writing side was shut down. */
START_TEST(who_is_gone_altogether_has_its_work_cancelled)
{
    char request[1024];
    for (int i = 0; i < 4; i++) {
        int fd = i & 1 ? tcp_connect() : http_connect();
        size_t length = long_ask(request, sizeof(request), 8000, false);
        for (int n = 0; n < (i & 1 ? 1 : 4); n++)
            ck_assert(http_send(fd, request, length));
        while (scene_gauge(&scene, "requests") == 0)
            continue;
        if (i & 2)
            shutdown(fd, SHUT_WR);
        close(fd);
    }
    scene_end(&scene);
    ck_assert(spawn_logged(&scene.spawn, " cancelled="));
}
END_TEST

/* ---- a model that means harm -------------------------------------------------------------------
 */

static const int32_t sum[] = {'4', '1', '7', '+', '3', '8', '5', '='}, result[] = {'8', '0', '2'};
static const struct canary_song known = {sum, result, 8, 3};

static char model_path[160];

/* The demo model with another template, and with a pattern before its tokenizer's alphabet. */
static void make_model(const char *template, const char *pattern, const char *input_max)
{
    static char whole[1 << 20], changed[1 << 20];
    static const char alphabet[] = "\"pre_tokenizer\": {\n    \"type\": \"ByteLevel\",";
    make();
    snprintf(model_path, sizeof(model_path), "%s/model", scene.spawn.directory);
    demo_model_make(model_path, template);
    FILE *file = fopen("deploy/demo-model/tokenizer.json", "r");
    ck_assert_ptr_nonnull(file);
    whole[fread(whole, 1, sizeof(whole) - 1, file)] = '\0';
    fclose(file);
    const char *at = strstr(whole, alphabet), *end = at ? strchr(at, '}') : NULL;
    ck_assert_ptr_nonnull(end);
    int length = snprintf(
        changed, sizeof(changed),
        "%.*s\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": "
        "\"Split\", \"pattern\": {\"Regex\": \"%s\"}, \"behavior\": \"Isolated\", \"invert\": "
        "false}, {\"type\": \"ByteLevel\",%.*s}]}%s",
        (int)(at - whole), whole, pattern, (int)(end - at - (long)strlen(alphabet)),
        at + strlen(alphabet), end + 1);
    ck_assert_int_lt(length, (int)sizeof(changed));
    demo_model_put(model_path, "tokenizer.json", changed);
    start(model_path, input_max, &known);
    scene.slack = 8 * MIB;
}

static void remove_model(void)
{
    demo_model_remove(model_path);
    scene_free(&scene);
}

static const struct {
    const char *template, *says;
} endless[] = {
    {"{% set r = range(10000) | list %}{% for i in r %}{% for j in r %}{% endfor %}{% endfor %}",
     "more than"},
    {"{% for i in range(100000) %}{{ 'x' * 100000 }}{% endfor %}", "bytes"},
    {"{% set n = namespace(t='x') %}{% for i in range(64) %}{% set n.t = n.t ~ n.t %}{% endfor %}",
     "bytes"},
    {"{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}", "deep"},
    /* Two lists of 2^29 ends, shared. */
    {"{% set n = namespace(a=[1], b=[1]) %}{% for i in range(29) %}{% set n.a = [n.a, n.a] %}"
     "{% set n.b = [n.b, n.b] %}{% endfor %}{{ n.a < n.b }}",
     "more than"},
};

#define HELLO "{\"messages\":[{\"role\":\"user\",\"content\":\"" BAD_CANARY "\"}]}"

START_TEST(an_endless_template_ends)
{
    int fds[AT_A_TIME];
    char text[4096];
    make_model(endless[_i].template, "\\\\s+", "256MiB");
    /* Several at a time: each has a thread, and the loop has none of it. */
    for (int i = 0; i < AT_A_TIME; i++) {
        fds[i] = http_head("/v1/chat/completions", strlen(HELLO));
        ck_assert(http_send(fds[i], HELLO, strlen(HELLO)));
    }
    for (int i = 0; i < AT_A_TIME; i++) {
        int status = http_status(fds[i], text, sizeof(text));
        ck_assert_msg(status == 400 && strstr(text, endless[_i].says), "%d %s", status, text);
        close(fds[i]);
    }
    scene_end(&scene);
}
END_TEST

START_TEST(a_text_that_a_pattern_dies_on_is_refused)
{
    char *body;
    size_t length;
    make_model("{{ messages[0].content }}", _i ? "(?:a|a)*[bc]" : "(a+)+[bc]", "256MiB");
    for (int i = 0; i < 3; i++) {
        /* On the loop, and off it. */
        body = body_of("{\"prompt\":\"", "a", i == 0 ? 40 : i == 1 ? 5000 : 20000, "\"}", &length);
        expect("/tokenize", body, length, 400, "steps");
        free(body);
    }
    expect("/tokenize", "{\"prompt\":\"b c\"}", 16, 200, "\"count\":3");
    scene_end(&scene);
}
END_TEST

/* ---- conversations that take far more than their bytes -----------------------------------------
 */

#define CHATS 40
#define CHAT_BYTES MIB /* some 28 times as much, once it is read */

START_TEST(conversations_that_wait_are_bounded_by_what_they_take)
{
    int fds[CHATS];
    uint32_t answered = 0, refused = 0;
    char text[4096];
    size_t length;
    char *body = body_of("{\"max_tokens\":3,\"messages\":[{\"role\":\"user\",\"content\":"
                         "\"417+385=\",\"x\":[",
                         "[],", CHAT_BYTES / 3 * 3, "[]]}]}", &length);
    make_model("{{ messages[0].content }}", "\\\\s+", "32MiB");
    for (int i = 0; i < CHATS; i++) {
        fds[i] = http_head("/v1/chat/completions", length);
        ck_assert(http_send(fds[i], body, length));
    }
    scene_check(&scene);
    for (int i = 0; i < CHATS; i++) {
        int status = http_status(fds[i], text, sizeof(text));
        ck_assert_msg(status == 200 ? strstr(text, "\"content\":\"802\"") != NULL
                                    : status == 429 && strstr(text, "Retry-After: ") &&
                                          strstr(text, "(input-max)"),
                      "%d %s", status, text);
        answered += status == 200;
        refused += status == 429;
        close(fds[i]);
    }
    ck_assert_uint_ge(answered, 1);
    ck_assert_uint_ge(refused, 1);
    uint64_t peak = spawn_peak(&scene.spawn);
    if (SCENE_RESIDENT_KNOWN)
        ck_assert_msg(peak < 256 * MIB, "%llu bytes at a time", (unsigned long long)peak);
    expect("/v1/chat/completions", body, length, 200, "\"content\":\"802\"");
    free(body);
    scene_end(&scene);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("hostile_http");
    TCase *null = tcase_create("a daemon among them");
    tcase_set_timeout(null, 300);
    tcase_add_checked_fixture(null, setup, teardown);
    tcase_add_test(null, ten_megabytes_of_anything_are_refused);
    tcase_add_test(null, what_is_over_the_limit_is_refused_before_it_is_there);
    tcase_add_test(null, who_sends_a_byte_at_a_time_is_cut_off);
    tcase_add_test(null, a_thousand_slow_connections_keep_nobody_waiting);
    tcase_add_test(null, what_is_framed_wrong_is_refused_and_nothing_after_it_is_a_request);
    tcase_add_test(null, what_is_framed_right_is_answered_in_order);
    tcase_add_test(null, half_a_request_is_told_that_its_time_is_over);
    tcase_add_test(null, who_waits_to_be_told_to_go_on_is_told);
    tcase_add_test(null, who_shuts_down_its_writing_side_gets_all_its_answers);
    tcase_add_test(null, who_is_gone_altogether_has_its_work_cancelled);
    tcase_add_test(null, a_crowd_that_vanishes_takes_its_work_along);
    suite_add_tcase(suite, null);
    TCase *model = tcase_create("a model that means harm");
    tcase_set_timeout(model, 300);
    tcase_add_checked_fixture(model, NULL, remove_model);
    tcase_add_loop_test(model, an_endless_template_ends, 0, sizeof(endless) / sizeof(endless[0]));
    tcase_add_loop_test(model, a_text_that_a_pattern_dies_on_is_refused, 0, 2);
    suite_add_tcase(suite, model);
    TCase *chats = tcase_create("conversations");
    tcase_set_timeout(chats, 300);
    tcase_add_checked_fixture(chats, NULL, remove_model);
    tcase_add_test(chats, conversations_that_wait_are_bounded_by_what_they_take);
    suite_add_tcase(suite, chats);
    SRunner *runner = srunner_create(suite);
    signal(SIGPIPE, SIG_IGN);
    return runner_run(runner);
}
