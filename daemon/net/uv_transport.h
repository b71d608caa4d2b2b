/* Connections of Unix sockets as transports, over libuv's poll handles.
 *
 * loop thread. A link is made with its connection and goes in its handle's close callback.
 */
#pragma once

#include <stdint.h>
#include <uv.h>

#include "daemon/net/conn.h"
#include "daemon/net/loop_ref.h"

struct uv_transports {
    struct loop_ref loop;
    /* Takes a connection in: NULL when it was refused, and the transport closed. */
    struct conn *(*accept)(void *context, struct transport *transport, const struct peer *peer);
    void *context;
    uint32_t count; /* handles that are not closed */
};

/* Takes the descriptor over. What cannot be served is closed. */
void uv_transport_open(struct uv_transports *set, int fd, const struct peer *peer);
