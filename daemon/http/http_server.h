/* The front: sockets of HTTP/1.1 in the loop. framing.h says where requests begin and end, what to
 * answer is daemon/http/exchange.c's; here bytes are moved, and timeouts are kept: with heads and
 * bodies (frame-timeout, from the first byte to the last), and with clients that do not read
 * (stall-timeout).
 *
 * A connection has one exchange at a time; what a client sends ahead waits in the socket.
 *
 * loop thread
 */
#pragma once

#include <stdbool.h>
#include <uv.h>

#include "daemon/http/http.h"
#include "daemon/net/conn.h"
#include "daemon/net/loop_ref.h"

struct http_server {
    struct loop_ref loop;
    struct http http;
    bool open; /* else there is no HTTP */
    uv_timer_t timer;
    time_us armed_us;  /* when it is due; 0: it is not */
    struct list conns; /* all of them */
    struct list due;   /* http_conn.due_link: with news */
    /* http_conn.wait_link, oldest first: a head is awaited, a body, a reader, a last
     * goodbye. */
    struct list heads, bodies, stalled, lingering;
    time_us expired_us; /* when it was last looked who is late */
};

/* Before the first listener. */
int http_server_open(struct http_server *front, const struct loop_ref *loop, struct server *server,
                     const struct routes *routes, uint64_t salt, struct error *error);
/* The keys of api-key-file in the place of what there were; on failure those stay. What was
 * accepted goes on. */
int http_server_read_keys(struct http_server *front, const struct options *options,
                          struct error *error);
/* Nothing waits for the device any more. One that was never opened is allowed. */
void http_server_close(struct http_server *front);

enum http_server_kind { HTTP_SERVER_API, HTTP_SERVER_METRICS };
/* Takes the descriptor over; what cannot be served is closed. peer->uid is for Unix sockets. */
void http_server_accept(struct http_server *front, int fd, enum http_server_kind kind, bool tcp,
                        const struct peer *peer);
/* After server_turn(). */
void http_server_turn(struct http_server *front, time_us now_us);
static inline bool http_server_idle(const struct http_server *front)
{
    return front->http.exchanges == 0;
}
