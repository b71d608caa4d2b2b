/* One connection of the front: bytes in, requests by framing.h to exchanges, answers out. */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>

#include "daemon/http/access.h"
#include "daemon/http/http_server_inner.h"
#include "daemon/request/server.h"
#include "protocol/base/log.h"

#define IN_START ((size_t)4096)
#define STREAM_BLOCK ((size_t)16 << 10)
#define CHUNK_LINE 20u /* "3ff0", CR, LF, and those behind the chunk */
#define ANSWERS_MAX 16 /* of one connection and turn */
#define HEAD_ROOM 2048u

/* ---- input -------------------------------------------------------------------------------------
 */

static void forget_input(struct http_conn *conn)
{
    free(conn->in);
    conn->in = NULL;
    conn->in_size = conn->in_length = conn->scanned = 0;
}

static void consume(struct http_conn *conn, size_t used)
{
    conn->scanned = 0;
    conn->in_length -= used;
    if (conn->in_length == 0)
        forget_input(conn);
    else
        memmove(conn->in, conn->in + used, conn->in_length);
}

static bool make_room(struct http_conn *conn)
{
    size_t size = conn->state == HTTP_CONN_BODY ? FRAMING_HEAD_MAX
                  : conn->in                    ? 2 * conn->in_size
                                                : IN_START;
    if (conn->in_length < conn->in_size)
        return true;
    char *in = size <= FRAMING_HEAD_MAX ? realloc(conn->in, size) : NULL;
    if (!in)
        return false;
    conn->in = in;
    conn->in_size = size;
    return true;
}

static void throw_away(struct http_conn *conn)
{
    static char nowhere[64 << 10];
    ssize_t got = recv(conn->fd, nowhere, sizeof(nowhere), MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR))
        http_server_drop(conn);
}

static void end_early(struct http_conn *conn)
{
    static const struct framing_refusal early = {400, ERR_BAD_HEAD,
                                                 "the request ended before it was whole"};
    conn->ended = true;
    if (conn->state == HTTP_CONN_HEAD && conn->in_length == 0)
        http_server_drop(conn);
    else
        http_server_refuse(conn, &early);
}

void http_server_read(struct http_conn *conn)
{
    ssize_t got;
    if (conn->state == HTTP_CONN_LINGER) {
        throw_away(conn);
        return;
    }
    if (conn->state == HTTP_CONN_ANSWER)
        return;
    if (!make_room(conn)) {
        http_server_drop(conn);
        return;
    }
    do
        got = recv(conn->fd, conn->in + conn->in_length, conn->in_size - conn->in_length,
                   MSG_DONTWAIT);
    while (got < 0 && errno == EINTR);
    if (got == 0) {
        end_early(conn);
    } else if (got > 0) {
        if (conn->state == HTTP_CONN_HEAD && conn->in_length == 0)
            http_server_wait(conn, &conn->front->heads); /* from a head's first byte to its last */
        conn->in_length += (size_t)got;
        conn->wait_bytes += (size_t)got;
        conn->heard_us = clock_now_us();
    } else if (errno != EAGAIN && errno != EWOULDBLOCK) {
        http_server_drop(conn);
    }
}

/* ---- requests ----------------------------------------------------------------------------------
 */

static bool open_exchange(struct http_conn *conn)
{
    struct http_server *front = conn->front;
    const struct exchange_peer peer = {
        .user = conn->user,
        .admin = conn->admin,
        .tcp = conn->tcp,
        .loopback = conn->loopback,
        .metrics_only = conn->kind == HTTP_SERVER_METRICS,
        .metrics_apart = front->http.server->options->metrics[0] != '\0',
    };
    conn->headed = conn->whole = conn->head_only = false;
    conn->exchange = exchange_open(&front->http, &peer, clock_now_us());
    if (conn->exchange)
        conn->exchange->carrier = conn;
    else
        http_server_drop(conn);
    return conn->exchange != NULL;
}

static void await_answer(struct http_conn *conn)
{
    conn->state = HTTP_CONN_ANSWER;
    http_server_wait(conn, NULL);
}

void http_server_refuse(struct http_conn *conn, const struct framing_refusal *refusal)
{
    struct error error;
    if (!conn->exchange && !open_exchange(conn))
        return;
    log_line(LOG_INFO, "http", "a connection is closed: %u, %s", refusal->status, refusal->text);
    error_set(&error, refusal->code, "%s", refusal->text);
    exchange_fail(conn->exchange, refusal->status, &error);
    conn->last = true;
    forget_input(conn);
    await_answer(conn);
}

static void begin(struct http_conn *conn)
{
    await_answer(conn);
    exchange_begin(conn->exchange, clock_now_us());
}

/* Answered before all of it was there: the rest is not read, so nothing after it can be. */
static void cut_short(struct http_conn *conn)
{
    conn->last = true;
    forget_input(conn);
    await_answer(conn);
}

static void start(struct http_conn *conn, const struct framing_head *head, size_t used)
{
    const struct exchange_head wanted = {
        .method = head->method,
        .path = head->path,
        .host = head->host,
        .content_type = head->content_type,
        .authorization = head->authorization,
        .request_id = head->request_id,
        .api_key = head->api_key,
        .user = head->user,
        .origin = head->origin,
        .cors_method = head->cors_method,
        .cors_headers = head->cors_headers,
        .content_encoding = head->content_encoding,
        .json_length = head->json_length,
        .content_length = head->length,
    };
    bool body = head->chunked || head->length > 0, expects = head->expects;
    if (!open_exchange(conn))
        return;
    conn->http10 = head->http10;
    conn->last |= head->close || head->http10;
    conn->head_only = strcmp(head->method, "HEAD") == 0;
    conn->chunked = head->chunked;
    conn->chunks = (struct framing_chunks){0};
    conn->left = head->length;
    bool wants = exchange_head(conn->exchange, &wanted);
    consume(conn, used); /* the head's texts lay there */
    if (!wants && body) {
        cut_short(conn);
    } else if (!body) {
        begin(conn);
    } else {
        conn->state = HTTP_CONN_BODY;
        http_server_wait(conn, &conn->front->bodies);
        if (expects && conn->in_length == 0 &&
            !buffer_append(&conn->out, "HTTP/1.1 100 Continue\r\n\r\n", 25, SIZE_MAX))
            http_server_drop(conn);
    }
}

/* True when the state has changed. */
static bool take_head(struct http_conn *conn)
{
    struct framing_head head;
    struct framing_refusal refusal;
    size_t used;
    if (conn->in_length == 0)
        return false;
    switch (framing_head(conn->in, conn->in_length, &conn->scanned, &head, &used, &refusal)) {
    case FRAMING_MORE:
        return false;
    case FRAMING_BAD:
        http_server_refuse(conn, &refusal);
        return true;
    case FRAMING_OK:
        start(conn, &head, used);
        return true;
    }
    return false;
}

/* The next piece of the body; false when there is none, or it was refused. */
static bool take_piece(struct http_conn *conn)
{
    struct framing_refusal refusal;
    struct framing_piece piece = {conn->in, conn->in_length};
    size_t used;
    if (!conn->chunked) {
        used = conn->in_length < conn->left ? conn->in_length : (size_t)conn->left;
        piece.length = used;
        conn->left -= used;
    } else {
        switch (framing_chunks(&conn->chunks, conn->in, conn->in_length, &used, &piece, &refusal)) {
        case FRAMING_BAD:
            http_server_refuse(conn, &refusal);
            return false;
        case FRAMING_MORE:
        case FRAMING_OK:
            break;
        }
    }
    if (piece.length > 0)
        exchange_body(conn->exchange, piece.bytes, piece.length);
    consume(conn, used);
    return true;
}

static bool take_body(struct http_conn *conn)
{
    while (conn->state == HTTP_CONN_BODY) {
        bool whole = conn->chunked ? conn->chunks.place == FRAMING_DONE : conn->left == 0;
        if (whole)
            begin(conn);
        else if (exchange_ready(conn->exchange))
            cut_short(conn);
        else if (conn->in_length == 0 || !take_piece(conn))
            break;
    }
    return conn->state != HTTP_CONN_BODY;
}

/* ---- answers -----------------------------------------------------------------------------------
 */

static size_t unsent(const struct http_conn *conn)
{
    return conn->out.length - conn->out_sent + conn->body.length - conn->body_sent;
}

/* False when the client takes no more now, or is gone. */
static bool send_output(struct http_conn *conn)
{
    while (unsent(conn) > 0) {
        struct iovec parts[2] = {
            {conn->out.data + conn->out_sent, conn->out.length - conn->out_sent},
            {conn->body.data + conn->body_sent, conn->body.length - conn->body_sent}};
        struct msghdr message = {.msg_iov = parts[0].iov_len ? parts : parts + 1,
                                 .msg_iovlen = parts[0].iov_len && parts[1].iov_len ? 2 : 1};
        ssize_t sent = sendmsg(conn->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno == EINTR)
            continue;
        bool full = sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
        if (full && !list_linked(&conn->wait_link))
            http_server_wait(conn, &conn->front->stalled);
        else if (sent < 0 && !full)
            http_server_drop(conn);
        if (sent < 0)
            return false;
        size_t first = (size_t)sent < parts[0].iov_len ? (size_t)sent : parts[0].iov_len;
        conn->out_sent += first;
        conn->body_sent += (size_t)sent - first;
        if (conn->state == HTTP_CONN_ANSWER)
            http_server_wait(conn, unsent(conn) > 0 ? &conn->front->stalled : NULL);
    }
    if (conn->out.room > STREAM_BLOCK || conn->whole)
        buffer_free(&conn->out);
    buffer_free(&conn->body);
    conn->out.length = conn->out_sent = conn->body_sent = 0;
    return true;
}

static size_t put(char *text, size_t used, const char *name, const char *value)
{
    size_t room = HEAD_ROOM - used;
    int length = snprintf(text + used, room, "%s: %s\r\n", name, value);
    assert(length > 0 && (size_t)length < room); /* all of it is ours, and short */
    return used + (size_t)length;
}

static size_t put_fields(char *text, size_t used, const struct exchange *exchange)
{
    char value[64];
    struct tm now;
    time_t seconds = time(NULL);
    if (gmtime_r(&seconds, &now) && strftime(value, sizeof(value), "%a, %d %b %Y %T GMT", &now))
        used = put(text, used, "Date", value);
    if (exchange->content_type)
        used = put(text, used, "Content-Type", exchange->content_type);
    used = put(text, used, "x-request-id", exchange->request_id);
    if (exchange->allow)
        used = put(text, used, "Allow", exchange->allow);
    if (exchange->json_bytes > 0) {
        snprintf(value, sizeof(value), "%zu", exchange->json_bytes);
        used = put(text, used, "Inference-Header-Content-Length", value);
    }
    if (exchange->status == 401)
        used = put(text, used, "WWW-Authenticate", "Bearer");
    if (exchange->streaming)
        used = put(text, used, "Cache-Control", "no-cache");
    used += access_fields(exchange, text + used, HEAD_ROOM - used);
    if (exchange->retry_after_ms > 0) {
        snprintf(value, sizeof(value), "%u", (exchange->retry_after_ms + 999) / 1000);
        used = put(text, used, "Retry-After", value);
        snprintf(value, sizeof(value), "%u", exchange->retry_after_ms);
        used = put(text, used, "retry-after-ms", value);
    }
    return used;
}

/* The head of the answer, and all of it where it is not streamed. */
static bool put_head(struct http_conn *conn)
{
    struct exchange *exchange = conn->exchange;
    char text[HEAD_ROOM], value[32];
    size_t used = (size_t)snprintf(text, sizeof(text), "HTTP/1.1 %u %s\r\n", exchange->status,
                                   framing_reason(exchange->status));
    used = put_fields(text, used, exchange);
    if (!exchange->streaming && exchange->status != 204) {
        snprintf(value, sizeof(value), "%zu", exchange->out.buffer.length);
        used = put(text, used, "Content-Length", value);
    } else if (exchange->streaming && !conn->http10) {
        used = put(text, used, "Transfer-Encoding", "chunked");
    }
    /* Who is about to end is asked no more: the client goes to another, and is not cut off. */
    const struct server *server = conn->front->http.server;
    conn->last |= server->leaving || server->draining;
    if (conn->last)
        used = put(text, used, "Connection", "close");
    conn->headed = true;
    if (!buffer_append(&conn->out, text, used, SIZE_MAX) ||
        !buffer_append(&conn->out, "\r\n", 2, SIZE_MAX))
        return false;
    if (exchange->streaming)
        return true;
    conn->whole = true;
    if (!conn->head_only) {
        conn->body = exchange->out.buffer;
        exchange->out.buffer = (struct buffer){0};
        conn->front->http.server->counts.bytes_out_total += conn->body.length;
    }
    return true;
}

/* The next piece of a stream, as a chunk; *ret_any: there was one, or the end. */
static bool put_piece(struct http_conn *conn, bool *ret_any)
{
    struct buffer *out = &conn->out;
    char line[CHUNK_LINE];
    bool framed = !conn->http10;
    *ret_any = false;
    if (!buffer_reserve(out, STREAM_BLOCK + CHUNK_LINE, SIZE_MAX))
        return false;
    char *place = out->data + out->length + (framed ? 6 : 0);
    size_t count = exchange_read(conn->exchange, place, STREAM_BLOCK);
    if (count == 0)
        return true;
    *ret_any = true;
    if (count == EXCHANGE_READ_END) {
        conn->whole = true;
        return !framed || buffer_append(out, "0\r\n\r\n", 5, SIZE_MAX);
    }
    if (framed) { /* a size of four digits, always */
        _Static_assert(STREAM_BLOCK <= 0xffff, "a chunk's size has four digits");
        snprintf(line, sizeof(line), "%04zx\r\n", count);
        memcpy(out->data + out->length, line, 6);
        memcpy(place + count, "\r\n", 2);
    }
    out->length += count + (framed ? 8 : 0);
    return true;
}

static void end_answer(struct http_conn *conn)
{
    conn->exchange->carrier = NULL;
    exchange_close(conn->exchange, clock_now_us());
    conn->exchange = NULL;
    conn->state = HTTP_CONN_HEAD;
    http_server_wait(conn, &conn->front->heads);
    if (!conn->last)
        return;
    if (conn->ended || shutdown(conn->fd, SHUT_WR) != 0) {
        http_server_drop(conn);
        return;
    }
    conn->state = HTTP_CONN_LINGER;
    http_server_wait(conn, &conn->front->lingering);
}

/* True when the answer was sent to its end. */
static bool take_answer(struct http_conn *conn)
{
    for (bool any = true;;) {
        if (!send_output(conn)) /* the rest of what a client did not take is first */
            return false;
        if (conn->whole) {
            end_answer(conn);
            return true;
        }
        if (!any || !exchange_ready(conn->exchange))
            return false;
        bool made = conn->headed ? put_piece(conn, &any) : put_head(conn);
        if (!made) {
            http_server_drop(conn); /* no memory: what is not whole shows it */
            return false;
        }
    }
}

/* ---- both --------------------------------------------------------------------------------------
 */

void http_server_ended(struct http_conn *conn)
{
    conn->ended = true;
    /* Over TCP somebody who has gone and somebody who only says no more look the same until
     * something is sent. This every client has to put up with, and the kernel of one that is gone
     * answers it with a reset. */
    if (conn->tcp && conn->state == HTTP_CONN_ANSWER && !conn->http10 && !conn->headed &&
        !buffer_append(&conn->out, "HTTP/1.1 100 Continue\r\n\r\n", 25, SIZE_MAX))
        http_server_drop(conn);
}

/* A hang-up of both sides is told to whoever waits for anything, here for urgent bytes, which
 * nobody sends us. Over TCP the end of the other side is told by itself; once is enough. */
static void watch(struct http_conn *conn)
{
    int events = UV_PRIORITIZED;
    if (conn->state != HTTP_CONN_ANSWER)
        events |= UV_READABLE;
    else if (conn->tcp && !conn->ended)
        events |= UV_DISCONNECT;
    if (unsent(conn) > 0)
        events |= UV_WRITABLE;
    if (events != conn->events)
        http_server_watch(conn, events);
}

void http_server_go(struct http_conn *conn)
{
    bool on = send_output(conn);
    for (int answers = 0; on && !conn->closed;) {
        switch (conn->state) {
        case HTTP_CONN_HEAD:
            on = take_head(conn);
            break;
        case HTTP_CONN_BODY:
            on = take_body(conn);
            break;
        case HTTP_CONN_ANSWER:
            on = take_answer(conn);
            if (on && ++answers == ANSWERS_MAX) {
                http_server_mark(conn); /* others have their turn */
                on = false;
            }
            break;
        case HTTP_CONN_LINGER:
            on = false;
            break;
        }
    }
    /* What was held up is taken after all: nobody tells that the answer may go on. Where nothing
     * was, the exchange tells when there is more. */
    if (!conn->closed && unsent(conn) > 0 && send_output(conn) && conn->state == HTTP_CONN_ANSWER &&
        (conn->whole || exchange_ready(conn->exchange)))
        http_server_mark(conn);
    if (!conn->closed)
        watch(conn);
}
