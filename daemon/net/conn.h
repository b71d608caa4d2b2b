/* A connection: bytes in, frames out, and the requests that it owns.
 *
 * It knows no socket. Bytes come and go through a transport: daemon/net/uv_transport.c puts a Unix
 * socket behind it, the tests a piece of memory, the simulation a seeded network.
 *
 * Way in: the transport asks conn_room() where the next bytes belong, puts them there and calls
 * conn_received(). Frames are decoded and handled in place. While no frame is half received, that
 * is the server's one receive buffer, so an idle connection holds no memory for input. A half frame
 * moves to a buffer of the connection's own, which starts at a multiple of 8 and grows with what
 * has really come, never with what a header promises.
 *
 * Way out: nothing is encoded before there is room for it. Sequences with news wait in `ready`;
 * once a turn conn_deliver() turns them into frames until the output holds `output-high` bytes, and
 * sends all of it by one write. What does not fit stays where it is, as numbers in the sequence, so
 * that a slow reader costs what it asked for and no more. Above the high-water mark the connection
 * is not read.
 *
 * Lifetime: server_accept() makes it. conn_close() may be called any number of times and from
 * anywhere below conn_received(); it cancels what the connection owns and closes the transport. The
 * memory goes at the end of the turn, so a caller may still look at conn->closed.
 *
 * loop thread
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/request/request.h"
#include "protocol/base/clock.h"
#include "protocol/base/error.h"
#include "protocol/base/list.h"

struct conn;
struct server;

/* Where the bytes go. An implementation embeds it. */
struct transport {
    const struct transport_api *api;
};

struct transport_api {
    /* How many of the bytes were taken; fewer than length when the other side takes no more now.
     * Negative when it is gone. Never blocks and never calls back. */
    ssize_t (*send)(struct transport *transport, const void *bytes, size_t length);
    /* What the connection waits for: bytes or their end (conn_received, conn_ended), room to write
     * (conn_writable). That the other side is gone (conn_lost) is always told. Called when the
     * answer changes. */
    void (*watch)(struct transport *transport, bool reading, bool writing);
    /* Called once, by conn_close(). The transport makes no call to the connection from then on. */
    void (*close)(struct transport *transport);
};

/* Who is at the other end. */
struct peer {
    uint32_t uid, gid;
    int32_t pid;     /* 0 = unknown */
    bool admin;      /* may drain, resume and see what others run */
    const char *via; /* name of the listener, for the log; outlives the connection */
};

/* Bytes from `start` to `end` are in use; storage is aligned to 8. */
struct conn_buffer {
    unsigned char *bytes;
    size_t size, start, end;
};

enum conn_greeting { CONN_NEW, CONN_GREETED };

struct conn {
    struct server *server;
    struct transport *transport;
    struct response_sink sink;
    struct peer peer;
    enum conn_greeting greeting;
    bool closed;
    bool closing; /* an ERROR of the connection is on its way out; nothing is read any more */
    bool ended;   /* the client says no more; it is closed once all it asked for is answered */
    bool reading, writing; /* what the transport watches */
    bool starved;          /* waits for room in the input of all connections */

    struct conn_buffer in;  /* the half frame; size 0 while there is none */
    size_t in_need;         /* bytes that make its frame whole; 0 = whole frames may be in there */
    size_t in_counted;      /* of in.size, what counts against `input-max` */
    struct conn_buffer out; /* encoded frames */
    bool urgent;            /* some of it must go with this turn, see conn_output_done() */

    /* The TOKENS frame at the end of `out` that further records of its request may join. */
    size_t tokens_at;        /* offset of its header in out.bytes */
    uint64_t tokens_request; /* daemon-wide id, 0 = there is none */

    struct list ready;    /* seq.wait_link: sequences with news */
    uint32_t stats_asked; /* STATS that wait for the worker's figures */
    struct list submits;  /* whose texts are being tokenized; see daemon/api/submit.c */
    struct list texts;    /* TOKENIZE that wait for their tokens; see daemon/api/tokenize.c */
    uint32_t text_count;  /* of those */

    struct list conn_link;  /* server.conns */
    struct list dirty_link; /* server.dirty: has output or news */
    /* Lists in the order of time, since their delays are the same for all. */
    struct list held_link;   /* server.held: an ACCEPT that waits for company */
    struct list stall_link;  /* server.stalled: output that the reader does not take */
    struct list half_link;   /* server.half: a half frame */
    struct list greet_link;  /* server.greeting: no HELLO yet */
    struct list starve_link; /* server.starved */
    time_us held_us, stall_us, half_us, greet_us; /* when it got onto the list */
};

/* Where the next bytes go, and how many there may be; NULL when none are wanted now. */
void *conn_room(struct conn *conn, size_t *ret_size);
/* `length` bytes were put there. Handles every whole frame. */
void conn_received(struct conn *conn, size_t length, time_us now_us);
/* The transport takes bytes again. */
void conn_writable(struct conn *conn, time_us now_us);
/* End of file while reading: the client says no more, and reads its answers (half-close). */
void conn_ended(struct conn *conn, time_us now_us);
/* Both directions are closed, or an error: whoever it was is gone, and what it asked for is
 * cancelled. */
void conn_lost(struct conn *conn, time_us now_us);

/* Appends room for a frame of at most `size` bytes to the output and returns it, or NULL when the
 * connection had to be closed instead (out of memory, over output-max). conn_output_done() says how
 * many were used. An urgent frame leaves with this turn. Others, which is ACCEPT, wait up to 2 ms
 * for an urgent one: that makes one write of a short request's two frames. */
void *conn_output(struct conn *conn, size_t size);
void conn_output_done(struct conn *conn, size_t used, bool urgent, time_us now_us);

/* ERROR about a request of the client's, or with client_id 0 about the connection. */
void conn_error(struct conn *conn, uint64_t client_id, uint32_t sequence, bool last,
                const struct error *error, time_us now_us);
/* Says why, sends that as far as the reader takes it, and closes. */
void conn_refuse(struct conn *conn, const struct error *error, time_us now_us);
void conn_close(struct conn *conn, time_us now_us);

/* The connection as a sink. */
void conn_news(struct response_sink *sink, struct seq *seq);
/* Encodes news and sends; called by server_turn() for each dirty connection. */
void conn_deliver(struct conn *conn, time_us now_us);
/* Room for input was given back, `starved` ends. */
void conn_feed(struct conn *conn, time_us now_us);

size_t conn_unsent(const struct conn *conn);
