/* Weights that are still coming to the device while steps run, of a model that wakes
 * (engine/keep.c).
 *
 * They come in the order of memory, which is about the order in which a step's ops take them, and
 * events on the stream that brings them say how far they are. A step waits in front of each launch
 * for as much as that takes (program.c), so its first layers compute while the last are on their
 * way. Steps are in order on compute: what one has waited for, none behind it waits for, and the
 * first that goes through all of the model is the last that waits at all. Until then no graph is
 * captured or launched (cuda_graph_fits): a wait would be captured with it.
 *
 * Thread: the rank's own. Owns its events. Zeroed: all weights are there.
 */
#pragma once

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#include "protocol/base/error.h"

#define ARRIVAL_EVENTS 64

struct arrival {
    cudaEvent_t events[ARRIVAL_EVENTS];
    uint64_t ends[ARRIVAL_EVENTS]; /* by each so many bytes of the weights' memory are there */
    uint32_t count, awaited;       /* events, and how many of them compute is behind */
};

/* Whether a step may have to wait. */
static inline bool arrival_on(const struct arrival *arrival)
{
    return arrival->awaited < arrival->count;
}

/* `stream` has brought what is before `end` once it comes to here; at most ARRIVAL_EVENTS times, of
 * rising ends. */
int arrival_mark(struct arrival *arrival, uint64_t end, cudaStream_t stream, struct error *error);
/* What follows on compute comes behind the weights before `end`, which is no more than the last
 * mark's. Enqueues one wait at most. */
int arrival_await(struct arrival *arrival, uint64_t end, cudaStream_t compute, struct error *error);
/* Before the stream goes; the copies may be under way still. */
void arrival_close(struct arrival *arrival);
