/* Between the files of the front: one connection, and how it is moved on. Private to http_server.c
 * and http_conn.c. loop thread
 *
 *   HEAD    bytes of a head are awaited, or there are some of it; nothing else reads requests
 *   BODY    the head is read, the exchange takes the body as it comes
 *   ANSWER  nothing is read any more; the exchange's answer is awaited and sent
 *   LINGER  the last answer is sent, and the writing side shut down; what still comes is thrown
 * away for a moment, since a close with unread bytes can destroy what the client has not read
 *
 * After ANSWER comes HEAD, or LINGER where `last` says so: every refusal sets it.
 */
#pragma once

#include "daemon/base/buffer.h"
#include "daemon/http/exchange.h"
#include "daemon/http/framing.h"
#include "daemon/http/http_server.h"

enum http_server_state { HTTP_CONN_HEAD, HTTP_CONN_BODY, HTTP_CONN_ANSWER, HTTP_CONN_LINGER };

struct http_conn {
    struct http_server *front;
    struct list link;      /* http_server.conns */
    struct list wait_link; /* front.heads, bodies, stalled or lingering; of one at most */
    struct list due_link;  /* front.due */
    time_us wait_us;       /* since when it is there */
    uint64_t wait_bytes;   /* that came since then, and were not yet worth time to it */
    time_us heard_us;      /* when the last of them came */
    enum http_server_kind kind;
    bool tcp, loopback; /* loopback: by TCP, from this machine */
    bool admin;         /* root, the daemon's user, a member of admin-group */
    uint64_t user;
    int fd;
    uv_poll_t poll;
    int events; /* that are watched */
    bool closed;

    enum http_server_state state;
    bool last;  /* no request is read after this one */
    bool ended; /* the client has shut down its writing side */
    char *in;   /* NULL while there is nothing */
    size_t in_size, in_length;
    size_t scanned; /* of a head that is not whole */
    struct framing_chunks chunks;
    bool chunked;
    uint64_t left; /* of a body that says its length */

    struct exchange *exchange; /* NULL between requests */
    bool http10, head_only;
    bool headed;             /* the answer's head is among the output */
    bool whole;              /* and all of the rest */
    struct buffer out, body; /* body: of an answer that is not streamed; goes behind out */
    size_t out_sent, body_sent;
};

/* On this list since now; NULL: on none. */
void http_server_wait(struct http_conn *conn, struct list *list);
/* It is moved on with the next turn. */
void http_server_mark(struct http_conn *conn);
/* The poll handle waits for these (enum uv_poll_event). */
void http_server_watch(struct http_conn *conn, int events);
/* Whatever it was is cancelled, and the descriptor closed. The memory goes later. */
void http_server_drop(struct http_conn *conn);

/* Handles what is there and sends what can be sent. */
void http_server_go(struct http_conn *conn);
/* The descriptor is readable. */
void http_server_read(struct http_conn *conn);
/* The answer is this error, and nothing is read after it. */
void http_server_refuse(struct http_conn *conn, const struct framing_refusal *refusal);
/* Nothing more will be read: over TCP, whether anybody is there at all? */
void http_server_ended(struct http_conn *conn);
