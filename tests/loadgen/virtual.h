/* A server on a virtual clock: it answers by known delays, one request after the other or all at
 * once, and stands still for a while when it is told to. Nothing here asks the OS for the time. */
#pragma once

#include "client/bench/driver.h"
#include "client/bench/transport.h"

#define VIRTUAL_START 1000000000u /* where the clock begins */

struct virtual_call {
    struct driver *driver;
    uint32_t index, given, tokens;
    time_us next_us; /* of its next token; 0 = free */
    bool cancelled;
};

struct virtual_server {
    struct transport transport;
    time_us now_us;
    time_us first_delay_us, gap_us;
    time_us stall_from_us, stall_until_us; /* no token in between, after VIRTUAL_START */
    uint32_t fail_from, fail_until;        /* items that are refused when they are sent */
    /* What is answered starts here and counts up, and what a prompt shares with the one before of
     * its session is cached; 0: a server that tells neither. */
    int32_t answers_from;
    struct virtual_call *calls;
    uint32_t room;
};

void virtual_init(struct virtual_server *server, uint32_t room);
void virtual_free(struct virtual_server *server);
/* Runs the driver to its end. From sleep_from_us to sleep_until_us the driver sleeps, as a process
 * does that the kernel does not run. */
void virtual_run(struct virtual_server *server, struct driver *driver, time_us sleep_from_us,
                 time_us sleep_until_us);
