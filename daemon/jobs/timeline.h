/* When the last chunks ran, stage by stage: what the worker timed, kept for whoever asks.
 *
 * Times cost the device's streams some events, so chunks are timed only for TIMELINE_LEASE_US after
 * somebody asked; whoever wants more asks again. The memory is taken at once, and the oldest chunk
 * makes room for the newest.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon/jobs/job.h"
#include "gpu/jobs/gpu_jobs.h"
#include "protocol/base/clock.h"

#define TIMELINE_CHUNKS_MAX 4096u
#define TIMELINE_LEASE_US 2000000u

struct timeline_chunk {
    const struct job_program *program; /* lives as long as the daemon */
    uint32_t pieces;
    struct gpu_chunk_times times;
};

struct timeline {
    _Atomic time_us until_us; /* chunks that are enqueued before are timed */
    pthread_mutex_t lock;
    uint64_t count; /* of all that were timed; the newest is number count - 1 */
    struct timeline_chunk chunks[TIMELINE_CHUNKS_MAX];
};

void timeline_init(struct timeline *timeline);
void timeline_destroy(struct timeline *timeline);

/* Worker's thread. */
bool timeline_on(const struct timeline *timeline, time_us now_us);
void timeline_take(struct timeline *timeline, const struct job_program *program,
                   const struct gpu_chunk *chunk);

/* Any thread. */
void timeline_ask(struct timeline *timeline, time_us now_us);
/* Nobody asks any more. */
void timeline_end(struct timeline *timeline);
/* The number that the next chunk gets. */
uint64_t timeline_next(struct timeline *timeline);
/* Copies at most `max` chunks from number `from` on; how many. *ret_first: the number of the first,
 * or of the next one that there will be; later than `from` where older ones are forgotten. */
uint32_t timeline_read(struct timeline *timeline, uint64_t from, uint32_t max,
                       struct timeline_chunk *ret_chunks, uint64_t *ret_first);
