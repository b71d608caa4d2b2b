/* What stands below the daemon's loop knows of it (daemon/service/event_loop.h). */
#pragma once

#include <stdbool.h>
#include <uv.h>

struct loop_ref {
    uv_loop_t *uv;
    bool *touched;               /* set when something happened: a turn is due */
    void (*turn)(void *context); /* the turn, if one is due: for callbacks of timers */
    void *context;
};
