/* A request of the daemon's own: one token, asked and answered through the server as a client's
 * would be, over a transport of memory. The service manager is told READY=1 once it was answered.
 *
 * loop thread. probe_close() before the server is destroyed.
 */
#pragma once

#include "daemon/conn.h"
#include "protocol/base/error.h"

#define PROBE_ROOM 16384 /* no frame that answers it is larger */

enum probe_state { PROBE_IDLE, PROBE_ASKED, PROBE_ANSWERED, PROBE_REFUSED };

struct probe {
    struct transport transport;
    struct conn *conn; /* NULL once it is closed */
    enum probe_state state;
    struct error error; /* while the state is PROBE_REFUSED */
    size_t length;
    _Alignas(8) unsigned char answers[PROBE_ROOM];
};

/* Asks. The answer changes the state in a later turn of the server, or at once. */
void probe_ask(struct probe *probe, struct server *server, time_us now_us);
/* More than once does nothing. */
void probe_close(struct probe *probe, time_us now_us);
