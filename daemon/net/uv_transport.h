/* Links: connections of Unix sockets as transports of the server, over libuv's poll handles.
 *
 * loop thread. A link is made with its connection and goes in its handle's close callback.
 */
#pragma once

#include <stdint.h>
#include <uv.h>

#include "daemon/net/conn.h"

struct event_loop;

struct uv_transports {
    uint32_t count; /* handles that are not closed */
};

/* Takes the descriptor over. What cannot be served is closed. */
void uv_transport_open(struct event_loop *loop, int fd, const struct peer *peer);
