#include "daemon/jobs/timeline.h"

#include <string.h>

void timeline_init(struct timeline *timeline)
{
    memset(timeline, 0, sizeof(*timeline));
    pthread_mutex_init(&timeline->lock, NULL);
}

void timeline_destroy(struct timeline *timeline)
{
    pthread_mutex_destroy(&timeline->lock);
}

bool timeline_on(const struct timeline *timeline, time_us now_us)
{
    return now_us < atomic_load_explicit(&timeline->until_us, memory_order_relaxed);
}

void timeline_take(struct timeline *timeline, const struct job_program *program,
                   const struct gpu_chunk *chunk)
{
    pthread_mutex_lock(&timeline->lock);
    timeline->chunks[timeline->count++ % TIMELINE_CHUNKS_MAX] =
        (struct timeline_chunk){program, chunk->count, chunk->times};
    pthread_mutex_unlock(&timeline->lock);
}

void timeline_ask(struct timeline *timeline, time_us now_us)
{
    atomic_store_explicit(&timeline->until_us, now_us + TIMELINE_LEASE_US, memory_order_relaxed);
}

void timeline_end(struct timeline *timeline)
{
    atomic_store_explicit(&timeline->until_us, 0, memory_order_relaxed);
}

uint64_t timeline_next(struct timeline *timeline)
{
    pthread_mutex_lock(&timeline->lock);
    uint64_t count = timeline->count;
    pthread_mutex_unlock(&timeline->lock);
    return count;
}

uint32_t timeline_read(struct timeline *timeline, uint64_t from, uint32_t max,
                       struct timeline_chunk *ret_chunks, uint64_t *ret_first)
{
    pthread_mutex_lock(&timeline->lock);
    const uint64_t count = timeline->count;
    const uint64_t oldest = count > TIMELINE_CHUNKS_MAX ? count - TIMELINE_CHUNKS_MAX : 0;
    uint64_t first = from < oldest ? oldest : from < count ? from : count;
    uint32_t taken = count - first < max ? (uint32_t)(count - first) : max;
    for (uint32_t i = 0; i < taken; i++)
        ret_chunks[i] = timeline->chunks[(first + i) % TIMELINE_CHUNKS_MAX];
    pthread_mutex_unlock(&timeline->lock);
    *ret_first = first;
    return taken;
}
