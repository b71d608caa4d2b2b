/* What stands below the daemon's loop knows of it (daemon/service/event_loop.h). */
#pragma once

#include <stdbool.h>
#include <uv.h>

struct loop_ref {
    uv_loop_t *uv;
    bool *touched;               /* set when something happened: a turn is due */
    /* For callbacks of timers: the turn comes in this iteration, once descriptors were looked at, so
     * that nobody is late whose bytes lie there. */
    void (*soon)(void *context);
    void *context;
};
