/* Rings of the pinned and device buffers that steps in flight use: plans in, results out.
 *
 * Step n has place n modulo depth + 1. With at most `depth` steps unfinished and results valid
 * until `depth` further steps were submitted, that is enough: who submits step n has seen the end
 * of step n - depth, so nothing on the device still uses the place of the step before that.
 *
 * Sizes are fixed at start. Thread: the rank's own; the memory is mem's.
 */
#pragma once

#include "gpu/engine/plan_pack.h"
#include "gpu/memory/pools.h"

#define RING_PLACES_MAX (GPU_DEPTH_MAX + 1)

struct ring_place {
    uint64_t step;               /* 0: unused */
    bool waited;                 /* as in gpu_results */
    struct result_layout layout; /* of that step */
    void *plan_pinned, *plan;    /* plan: device */
    void *result_pinned, *result;
};

struct ring {
    size_t plan_bytes, result_bytes; /* of one place */
    uint32_t count;
    struct ring_place places[RING_PLACES_MAX];
};

int ring_open(struct ring *ring, struct mem *mem, const struct gpu_limits *limits, uint32_t hidden,
              struct error *error);

static inline struct ring_place *ring_at(struct ring *ring, uint64_t step)
{
    return &ring->places[step % ring->count];
}
