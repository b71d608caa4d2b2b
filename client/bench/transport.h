/* How requests get to a server and answers back: what a driver needs of it, and no more.
 *
 * One thread. A transport tells its drivers of tokens and ends within wait() alone, with the time
 * at which it saw them; it may be told to cancel from there.
 */
#pragma once

#include <stdint.h>

#include "protocol/base/clock.h"
#include "protocol/base/error.h"

struct driver;

struct transport {
    /* Sends the driver's item; *ret_call names it until driver_end() was told. */
    int (*submit)(struct transport *transport, struct driver *driver, uint32_t index,
                  void **ret_call, struct error *error);
    void (*cancel)(struct transport *transport, void *call);
    /* Moves what can be moved; waits for that, but not longer than until_us (0 = no limit). */
    void (*wait)(struct transport *transport, time_us until_us);
    void (*close)(struct transport *transport);
};

/* What is known of the server before the run. */
struct transport_info {
    char model[128];
    uint32_t vocabulary; /* 0 = unknown */
};
