/* The front: libmicrohttpd in the loop, driven by its epoll descriptor and never by threads.
 *
 * It parses and writes; what to answer is daemon/http/exchange.c's. Three things it does not do are
 * done here: a connection whose answer is awaited is suspended, and then its descriptor is watched
 * for its client's going; nothing that has no bytes to send is left running, since it would be
 * asked again at once; and the time for a request's head and body is counted in all, not from byte
 * to byte.
 *
 * loop thread
 */
#pragma once

#include <stdbool.h>
#include <uv.h>

#include "daemon/conn.h"
#include "daemon/http/http.h"

struct MHD_Daemon;
struct loop;

struct front {
    struct loop *loop;
    struct http http;
    struct MHD_Daemon *daemon; /* NULL: there is no HTTP */
    uv_poll_t poll;
    uv_timer_t timer;
    bool due;                    /* connections were resumed: it has to run */
    struct list conns;           /* all of them */
    struct list heads, bodies;   /* front_conn.wait_link: what is not whole yet, oldest first */
    struct front_conn *accepted; /* while it is handed over */
};

/* Before the first listener. */
int front_open(struct front *front, struct loop *loop, uint64_t salt, struct error *error);
/* Nothing waits for the device any more. NULL daemon is allowed. */
void front_close(struct front *front);

enum front_kind { FRONT_API, FRONT_METRICS };
/* Takes the descriptor over; what cannot be served is closed. peer->uid is for Unix sockets. */
void front_accept(struct front *front, int fd, enum front_kind kind, bool tcp,
                  const struct peer *peer);
/* After server_turn(). */
void front_turn(struct front *front, time_us now_us);
static inline bool front_idle(const struct front *front)
{
    return front->http.exchanges == 0;
}
