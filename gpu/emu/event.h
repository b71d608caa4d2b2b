/* Events: a place in a stream, taken when the event is recorded.
 *
 * Event storage is used again but never freed, so that late stamps and stale handles do no harm.
 */
#pragma once

#include "gpu/emu/stream.h"

struct event_place {
    struct CUstream_st *stream; /* NULL: never recorded, or in a capture */
    uint64_t seq;
    uint64_t capture_id; /* of the capture it was last recorded in; 0: in none */
    int32_t node;        /* in that capture; -1: before any of its work */
};

struct CUevent_st {
    uint32_t magic;
    struct lock lock;
    bool alive, timed;
    struct device *device;
    struct event_place place;
    uint64_t generation; /* goes up with every record */
    uint64_t stamped_generation, stamped_ns;
    struct CUevent_st *next_all;
};

void event_stamp(struct CUevent_st *event, uint64_t generation); /* stream's thread */
void event_reset(void);
uint32_t event_live(void);
