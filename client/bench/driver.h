/* The open loop: sends each request when it is due, whatever the answers do, and records both.
 *
 * It knows no clock and no socket. Time is a parameter and the server a struct transport, so that a
 * test runs it on a virtual clock. Stamps count from start_us on. A driver has every `stride`-th
 * session from `first` on, of one turn where there are no others: threads share a workload that
 * way. A session's next turn is due some time after the answer to the one before; one that failed
 * is its last. One thread, but for the live counters, which any thread may read.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/bench/later.h"
#include "client/bench/recorder.h"
#include "client/bench/transport.h"
#include "client/bench/workload.h"

struct driver_live {
    atomic_uint_least64_t sent, running, done, failed, tokens;
    atomic_uint_least64_t first_count, first_sum_us; /* times to first token, from the arrival */
};

struct driver {
    const struct workload *workload;
    struct recorder recorder;
    struct transport *transport;
    void **calls; /* by item; of those that are open */
    time_us start_us;
    uint32_t first, next, stride; /* items that begin a session */
    struct later later;           /* turns that follow */
    bool stopped;                 /* none follows any more */
    uint32_t open, open_max; /* open_max 0 = no limit */
    uint64_t freed_us;       /* when a place was last free again after none had been */
    uint64_t until_us;       /* nothing is sent after it; 0 = no limit */
    struct driver_live *live;
};

struct driver_end {
    bool cancelled;
    const struct error *error; /* NULL = it was completed */
    uint32_t output_tokens;    /* as the server counts them; UINT32_MAX = it did not say */
    uint32_t cached_tokens;    /* of the prompt's, those that the server had computed before */
};

/* records: of the whole workload, zeroed. calls likewise, shared as the records are. Set stride,
 * open_max, until_us, then driver_start(). */
void driver_init(struct driver *driver, const struct workload *workload, struct record *records,
                 void **calls, struct transport *transport, struct driver_live *live);
void driver_start(struct driver *driver, uint32_t first, time_us start_us);
void driver_free(struct driver *driver);

/* Sends the next item if it may be sent now; returns whether it did. */
bool driver_send(struct driver *driver, time_us now_us);
/* When the next item may be sent; 0 when an answer must come before. */
time_us driver_next_us(const struct driver *driver);
/* Nothing left to send, nothing open. */
bool driver_done(const struct driver *driver);
/* Sends nothing more and cancels what is open. */
void driver_stop(struct driver *driver);

/* By a transport that knows them: which tokens are about to be told. */
void driver_answer(struct driver *driver, uint32_t index, const int32_t *tokens, uint32_t count);
/* By the transport: tokens of an item came; it ended (once each). */
void driver_tokens(struct driver *driver, uint32_t index, uint32_t count, time_us now_us);
void driver_end(struct driver *driver, uint32_t index, const struct driver_end *end,
                time_us now_us);
