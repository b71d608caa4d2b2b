/* Requests of the daemon's own: one token of each model, or without a model the list of programs,
 * asked and answered through the server as a client's would be, over a transport of memory. The
 * service manager is told READY=1 once all were answered, and a new version of a model takes over once
 * it has answered.
 *
 * loop thread. self_test_close() before the server is destroyed.
 */
#pragma once

#include "daemon/net/conn.h"
#include "protocol/base/error.h"

struct served_model;
struct server;

#define SELF_TEST_ROOM 16384 /* no frame that answers it is larger */

enum self_test_state { SELF_TEST_IDLE, SELF_TEST_ASKED, SELF_TEST_ANSWERED, SELF_TEST_REFUSED };

struct self_test {
    struct transport transport;
    struct conn *conn; /* NULL once it is closed */
    enum self_test_state state;
    struct error error; /* while the state is SELF_TEST_REFUSED */
    uint32_t waits;     /* answers that are still to come */
    size_t length;
    _Alignas(8) unsigned char answers[SELF_TEST_ROOM];
};

/* Asks. The answer changes the state in a later turn of the server, or at once. */
void self_test_ask(struct self_test *probe, struct server *server, time_us now_us);
/* The same of one model alone. */
void self_test_ask_one(struct self_test *probe, struct server *server,
                       const struct served_model *model, time_us now_us);
/* More than once does nothing. */
void self_test_close(struct self_test *probe, time_us now_us);
