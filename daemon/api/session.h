/* A session: one client of the native protocol, from HELLO on. A connection (daemon/net/conn.h)
 * brings it frames; a table says whose each type is: submit.c, tokenize.c or control.c. What
 * becomes of its requests comes back as news, and reply.c makes frames of it when the connection
 * has room.
 *
 * Lifetime: session_accept() makes it, the end of the turn in which its connection closed frees it.
 *
 * loop thread
 */
#pragma once

#include "daemon/net/conn.h"
#include "daemon/request/request.h"
#include "protocol/base/clock.h"
#include "protocol/base/list.h"

struct server;

struct session {
    struct conn conn;
    struct server *server;
    struct response_sink sink; /* of its requests */
    struct list ready;         /* seq.wait_link: sequences with news */
    struct list submits;       /* whose texts are being tokenized; see submit.c */
    struct list texts;         /* TOKENIZE that wait for their tokens; see tokenize.c */
    struct list stats_asks;    /* STATS that wait for the workers' figures; see control.c */
    uint32_t text_count, stats_asked;
    bool greeted;
};

/* A session over this transport; its connection. NULL when it is refused: then the reason was sent,
 * and the transport closed. */
struct conn *session_accept(struct server *server, struct transport *transport,
                            const struct peer *peer, time_us now_us);
