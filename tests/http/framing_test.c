/* Heads and chunks by themselves: whole, byte by byte and at every split, always the same. */
#include <stdlib.h>
#include <string.h>

#include "daemon/http/framing.h"
#include "tests/http/http_suites.h"

#define H "Host: h\r\n"
#define GET "GET / HTTP/1.1\r\n" H
#define POST "POST / HTTP/1.1\r\n" H

struct head_case {
    const char *bytes;
    unsigned status; /* 0: it is read */
    const char *path;
    uint64_t length;
    bool chunked, close;
};

static const struct head_case heads[] = {
    {GET "\r\n", 0, "/", 0, false, false},
    {"\r\n" GET "\r\n", 0, "/", 0, false, false},
    {"GET /a%2Fb%20c?q=%zz HTTP/1.1\r\n" H "\r\n", 0, "/a/b c", 0, false, false},
    {"GET / HTTP/1.0\r\n\r\n", 0, "/", 0, false, false},
    {POST "Content-Length: 0012 \t\r\n\r\n", 0, "/", 12, false, false},
    {POST "content-length:7\r\n\r\n", 0, "/", 7, false, false},
    {POST "Content-Length: 999999999999999999\r\n\r\n", 0, "/", 999999999999999999u, false, false},
    {POST "Transfer-Encoding: Chunked\r\n\r\n", 0, "/", 0, true, false},
    {GET "Connection: keep-alive, CLOSE\r\nConnection: x\r\n\r\n", 0, "/", 0, false, true},
    {GET "x:\r\nx: 1\r\nx-y: \xc3\xa9\r\n\r\n", 0, "/", 0, false, false},
    /* Lengths. */
    {POST "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400, NULL, 0, false, false},
    {POST "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n", 400, NULL, 0, false, false},
    {POST "Content-Length: 1\r\nContent-Length: 2\r\n\r\n", 400, NULL, 0, false, false},
    {POST "Content-Length: 1\r\nContent-Length: 1\r\n\r\n", 400, NULL, 0, false, false},
    {POST "Content-Length: 1, 1\r\n\r\n", 400, NULL, 0, false, false},
    {POST "Content-Length: +1\r\n\r\n", 400, NULL, 0, false, false},
    {POST "Content-Length: -1\r\n\r\n", 400, NULL, 0, false, false},
    {POST "Content-Length: 0x1\r\n\r\n", 400, NULL, 0, false, false},
    {POST "Content-Length: 1 1\r\n\r\n", 400, NULL, 0, false, false},
    {POST "Content-Length: 1.0\r\n\r\n", 400, NULL, 0, false, false},
    {POST "Content-Length:\r\n\r\n", 400, NULL, 0, false, false},
    {POST "Content-Length: 1000000000000000000\r\n\r\n", 413, NULL, 0, false, false},
    {POST "Content-Length: 18446744073709551617\r\n\r\n", 413, NULL, 0, false, false},
    /* Codings. */
    {POST "Transfer-Encoding: gzip, chunked\r\n\r\n", 501, NULL, 0, false, false},
    {POST "Transfer-Encoding: gzip\r\n\r\n", 501, NULL, 0, false, false},
    {POST "Transfer-Encoding: identity\r\n\r\n", 501, NULL, 0, false, false},
    {POST "Transfer-Encoding: xchunked\r\n\r\n", 501, NULL, 0, false, false},
    {POST "Transfer-Encoding: chunked;a=b\r\n\r\n", 501, NULL, 0, false, false},
    {POST "Transfer-Encoding: \"chunked\"\r\n\r\n", 501, NULL, 0, false, false},
    {POST "Transfer-Encoding: chunked, gzip\r\n\r\n", 400, NULL, 0, false, false},
    {POST "Transfer-Encoding: chunked, chunked\r\n\r\n", 400, NULL, 0, false, false},
    {POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", 400, NULL, 0, false,
     false},
    {POST "Transfer-Encoding: chunked,\r\n\r\n", 400, NULL, 0, false, false},
    {POST "Transfer-Encoding:\r\n\r\n", 400, NULL, 0, false, false},
    {"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400, NULL, 0, false, false},
    /* Lines. */
    {POST "Content-Length : 1\r\n\r\n", 400, NULL, 0, false, false},
    {POST "Content-Length\t: 1\r\n\r\n", 400, NULL, 0, false, false},
    {POST "x: 1\r\n Content-Length: 1\r\n\r\n", 400, NULL, 0, false, false},
    {POST "x: 1\r\n\tfolded\r\n\r\n", 400, NULL, 0, false, false},
    {"GET / HTTP/1.1\r\n " H "\r\n", 400, NULL, 0, false, false},
    {POST ": 1\r\n\r\n", 400, NULL, 0, false, false},
    {POST "no colon\r\n\r\n", 400, NULL, 0, false, false},
    {POST "n\xc3\xa9: 1\r\n\r\n", 400, NULL, 0, false, false},
    {"GET / HTTP/1.1\n" H "\r\n", 400, NULL, 0, false, false},
    {GET "x: 1\n\r\n", 400, NULL, 0, false, false},
    {GET "x: 1\r2\r\n\r\n", 400, NULL, 0, false, false},
    {GET "x: 1\r\r\n\r\n", 400, NULL, 0, false, false},
    {GET "x: \x01\r\n\r\n", 400, NULL, 0, false, false},
    {GET "x: \x7f\r\n\r\n", 400, NULL, 0, false, false},
    {"GET / HTTP/1.1\r\n" H H "\r\n", 400, NULL, 0, false, false},
    {"GET / HTTP/1.1\r\n\r\n", 400, NULL, 0, false, false},
    {"GET / HTTP/1.1\r\nHost: a\r\nOrigin: b\r\norigin: b\r\n\r\n", 400, NULL, 0, false, false},
    {"GET / HTTP/1.1\r\nHost: a\r\nX-Sluice-User: b\r\nx-sluice-user: c\r\n\r\n", 400, NULL, 0,
     false, false},
    {GET "Authorization: Bearer a\r\nAuthorization: Bearer b\r\n\r\n", 400, NULL, 0, false, false},
    {GET "Authorization: Bearer a\r\nauthorization: Bearer a\r\n\r\n", 0, "/", 0, false, false},
    {"GET / HTTP/1.1\r\nHost: a, b\r\n\r\n", 400, NULL, 0, false, false},
    {"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400, NULL, 0, false, false},
    {"\r\n\r\n" GET "\r\n", 400, NULL, 0, false, false},
    /* The first line. */
    {" GET / HTTP/1.1\r\n" H "\r\n", 400, NULL, 0, false, false},
    {"GET  / HTTP/1.1\r\n" H "\r\n", 400, NULL, 0, false, false},
    {"GET /  HTTP/1.1\r\n" H "\r\n", 400, NULL, 0, false, false},
    {"GET / HTTP/1.1 \r\n" H "\r\n", 400, NULL, 0, false, false},
    {"GET\t/ HTTP/1.1\r\n" H "\r\n", 400, NULL, 0, false, false},
    {"GET /\r\n" H "\r\n", 400, NULL, 0, false, false},
    {"GET /a b HTTP/1.1\r\n" H "\r\n", 400, NULL, 0, false, false},
    {"GET /a\xff HTTP/1.1\r\n" H "\r\n", 400, NULL, 0, false, false},
    {"GET /%00 HTTP/1.1\r\n" H "\r\n", 400, NULL, 0, false, false},
    {"GET /%0d%0a HTTP/1.1\r\n" H "\r\n", 400, NULL, 0, false, false},
    {"GET /%4 HTTP/1.1\r\n" H "\r\n", 400, NULL, 0, false, false},
    {"GET /# HTTP/1.1\r\n" H "\r\n", 400, NULL, 0, false, false},
    {"GET http://h/ HTTP/1.1\r\n" H "\r\n", 400, NULL, 0, false, false},
    {"CONNECT h:1 HTTP/1.1\r\n" H "\r\n", 400, NULL, 0, false, false},
    {"GET / http/1.1\r\n" H "\r\n", 400, NULL, 0, false, false},
    {"GET / HTTP/1.10\r\n" H "\r\n", 400, NULL, 0, false, false},
    {"GET / HTTP/2.0\r\n" H "\r\n", 505, NULL, 0, false, false},
    {"GET / HTTP/1.2\r\n" H "\r\n", 505, NULL, 0, false, false},
    {"PRI * HTTP/2.0\r\n\r\n", 505, NULL, 0, false, false},
    {POST "Expect: 200-maybe\r\n\r\n", 417, NULL, 0, false, false},
};
#define HEADS (sizeof(heads) / sizeof(heads[0]))

/* Given in pieces that end at `first`, and then every `step` bytes. */
static enum framing_status give(const char *bytes, size_t length, size_t first, size_t step,
                                char *place, struct framing_head *head, size_t *used,
                                struct framing_refusal *refusal)
{
    size_t scanned = 0, have = first < length ? first : length;
    enum framing_status status;
    memcpy(place, bytes, length);
    for (;; have = have + step < length ? have + step : length) {
        status = framing_head(place, have, &scanned, head, used, refusal);
        if (status != FRAMING_MORE || have == length)
            return status;
        ck_assert_mem_eq(place, bytes, length); /* untouched until it is whole */
    }
}

static void check_head(const struct head_case *known, size_t first, size_t step)
{
    size_t length = strlen(known->bytes), used;
    struct framing_head head;
    struct framing_refusal refusal = {0};
    char *place = malloc(length); /* of its very size, for the sanitizer */
    ck_assert_ptr_nonnull(place);
    enum framing_status status =
        give(known->bytes, length, first, step, place, &head, &used, &refusal);
    if (known->status) {
        ck_assert_msg(status == FRAMING_BAD && refusal.status == known->status,
                      "%d %u at %zu of\n%s", (int)status, refusal.status, first, known->bytes);
    } else {
        ck_assert_msg(status == FRAMING_OK, "%s: %s", refusal.text, known->bytes);
        ck_assert_uint_eq(used, length);
        ck_assert_str_eq(head.path, known->path);
        ck_assert_uint_eq(head.length, known->length);
        ck_assert(head.chunked == known->chunked && head.close == known->close);
    }
    free(place);
}

START_TEST(a_head_is_read_or_refused_the_same_in_any_pieces)
{
    size_t length = strlen(heads[_i].bytes);
    check_head(&heads[_i], 0, 1);
    for (size_t first = 0; first <= length; first++)
        check_head(&heads[_i], first, length);
}
END_TEST

START_TEST(a_zero_byte_is_refused_wherever_it_stands)
{
    static const char good[] = POST "Content-Length: 1\r\n\r\n";
    for (size_t at = 0; at < sizeof(good) - 1; at++) {
        char bytes[sizeof(good)];
        struct framing_head head;
        struct framing_refusal refusal;
        size_t used, scanned = 0;
        memcpy(bytes, good, sizeof(good));
        bytes[at] = '\0';
        ck_assert_int_eq(framing_head(bytes, sizeof(good) - 1, &scanned, &head, &used, &refusal),
                         FRAMING_BAD);
        ck_assert_uint_eq(refusal.status, 400);
    }
}
END_TEST

START_TEST(a_head_has_a_largest_size)
{
    static char bytes[FRAMING_HEAD_MAX + 1];
    struct framing_head head;
    struct framing_refusal refusal;
    size_t used, scanned = 0, length = strlen(GET);
    memset(bytes, 'a', sizeof(bytes));
    memcpy(bytes, GET, length);
    ck_assert_int_eq(framing_head(bytes, FRAMING_HEAD_MAX - 1, &scanned, &head, &used, &refusal),
                     FRAMING_MORE);
    ck_assert_int_eq(framing_head(bytes, FRAMING_HEAD_MAX, &scanned, &head, &used, &refusal),
                     FRAMING_BAD);
    ck_assert_uint_eq(refusal.status, 431);
    for (uint32_t i = 0; i <= FRAMING_FIELDS_MAX; i++, length += 6)
        memcpy(bytes + length, "x: 1\r\n", 6);
    memcpy(bytes + length, "\r\n", 2);
    scanned = 0;
    ck_assert_int_eq(framing_head(bytes, length + 2, &scanned, &head, &used, &refusal),
                     FRAMING_BAD);
    ck_assert_uint_eq(refusal.status, 431);
}
END_TEST

/* ---- chunks ------------------------------------------------------------------------------------
 */

static const struct {
    const char *bytes, *body; /* body NULL: refused */
} chunked[] = {
    {"3\r\nabc\r\n0\r\n\r\n", "abc"},
    {"0\r\n\r\n", ""},
    {"000\r\n\r\n", ""},
    {"1\r\na\r\nA\r\n0123456789\r\n00\r\n\r\n", "a0123456789"},
    {"3;x=y\r\nabc\r\n0\r\n\r\n", NULL},
    {"3 \r\nabc\r\n0\r\n\r\n", NULL},
    {" 3\r\nabc\r\n0\r\n\r\n", NULL},
    {"3\nabc\r\n0\r\n\r\n", NULL},
    {"3\r\nabcd\r\n0\r\n\r\n", NULL},
    {"3\r\nabc0\r\n\r\n", NULL},
    {"3\r\nabc\n0\r\n\r\n", NULL},
    {"\r\n\r\n", NULL},
    {"g\r\n", NULL},
    {"+3\r\nabc\r\n0\r\n\r\n", NULL},
    {"-1\r\n", NULL},
    {"0x3\r\nabc\r\n0\r\n\r\n", NULL},
    {"10000000000000000\r\n", NULL},
    {"fffffffffffffffff\r\n", NULL},
    {"0000000000000003\r\nabc\r\n0\r\n\r\n", NULL},
    {"0\r\nx: y\r\n\r\n", NULL},
    {"0\r\n\n", NULL},
    {"0;\r\n\r\n", NULL},
};

/* The body, or NULL; read in pieces of `step` bytes at most. */
static const char *unchunk(const char *bytes, size_t step, char *body)
{
    struct framing_chunks chunks = {0};
    size_t length = strlen(bytes), at = 0, got = 0, used;
    while (at < length && chunks.place != FRAMING_DONE) {
        struct framing_piece piece;
        struct framing_refusal refusal;
        size_t part = length - at < step ? length - at : step;
        enum framing_status status =
            framing_chunks(&chunks, bytes + at, part, &used, &piece, &refusal);
        if (status == FRAMING_BAD)
            return NULL;
        ck_assert(status == FRAMING_OK || used == part);
        memcpy(body + got, piece.bytes ? piece.bytes : "", piece.length);
        got += piece.length;
        at += used;
    }
    body[got] = '\0';
    ck_assert_uint_eq(at, length);
    return chunks.place == FRAMING_DONE ? body : NULL;
}

START_TEST(chunks_are_read_or_refused_the_same_in_any_pieces)
{
    char body[64];
    for (size_t step = 1; step <= strlen(chunked[_i].bytes); step++) {
        const char *read = unchunk(chunked[_i].bytes, step, body);
        if (chunked[_i].body)
            ck_assert_pstr_eq(read, chunked[_i].body);
        else
            ck_assert_ptr_null(read);
    }
}
END_TEST

Suite *framing_suite(void)
{
    Suite *suite = suite_create("framing");
    TCase *tcase = tcase_create("framing");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, a_head_is_read_or_refused_the_same_in_any_pieces, 0, (int)HEADS);
    tcase_add_test(tcase, a_zero_byte_is_refused_wherever_it_stands);
    tcase_add_test(tcase, a_head_has_a_largest_size);
    tcase_add_loop_test(tcase, chunks_are_read_or_refused_the_same_in_any_pieces, 0,
                        (int)(sizeof(chunked) / sizeof(chunked[0])));
    suite_add_tcase(suite, tcase);
    return suite;
}
