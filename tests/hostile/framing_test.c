/* What is framed wrong, half or with conditions, and clients that end their side. */
#include <check.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/hostile/http_rig.h"
#include "tests/hostile/http_suites.h"

/* Behind everything that cannot be read stands what a proxy may have taken for its body. */
#define HIDDEN "GET /version HTTP/1.1\r\nHost: h\r\nx-request-id: smuggled\r\n\r\n"
#define POSTED "POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n"
#define CHUNKED POSTED "Transfer-Encoding: chunked\r\n\r\n"
#define ASK "{\"prompt\":\"a\",\"max_tokens\":1}"
#define RAW(status, bytes)                                                                         \
    {                                                                                              \
        bytes HIDDEN, sizeof(bytes HIDDEN) - 1, status                                             \
    }

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
        int fd = tcp ? http_tcp_connect() : http_connect();
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
        int fd = i & 1 ? http_tcp_connect() : http_connect();
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

Suite *framing_suite(void)
{
    Suite *suite = suite_create("framing");
    TCase *tcase = tcase_create("framing");
    tcase_set_timeout(tcase, 300);
    tcase_add_checked_fixture(tcase, http_setup, http_teardown);
    tcase_add_test(tcase, what_is_framed_wrong_is_refused_and_nothing_after_it_is_a_request);
    tcase_add_test(tcase, what_is_framed_right_is_answered_in_order);
    tcase_add_test(tcase, half_a_request_is_told_that_its_time_is_over);
    tcase_add_test(tcase, who_waits_to_be_told_to_go_on_is_told);
    tcase_add_test(tcase, who_shuts_down_its_writing_side_gets_all_its_answers);
    tcase_add_test(tcase, who_is_gone_altogether_has_its_work_cancelled);
    suite_add_tcase(suite, tcase);
    return suite;
}
