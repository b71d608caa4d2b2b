/* A whole run: threads that drive the load, each over its own connections, until all of it is done.
 */
#pragma once

#include "client/bench/driver.h"
#include "client/bench/result.h"

struct run {
    const struct workload *load, *probes, *warmup; /* probes and warmup may be NULL */
    struct transport **transports;                 /* one per thread */
    uint32_t threads;
    uint32_t open_max;     /* in all threads; 0 = no limit */
    uint64_t until_us;     /* nothing is sent after it; 0 = no limit */
    bool (*stopped)(void); /* asked often, by every thread */
    /* Called now and then from the caller's thread. */
    void (*show)(void *context, const struct driver_live *live, uint64_t elapsed_us);
    void *context;
};

/* Both recorders are the caller's to free, records included; probes' stays empty without them. */
int run_all(const struct run *run, struct recorder *ret_load, struct recorder *ret_probes,
            struct error *error);
