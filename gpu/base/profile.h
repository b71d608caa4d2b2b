/* How long a step's copies take, by events with timing, and when the host gave the step away; made
 * only for as many steps as the options ask for, since a timed event costs the stream it is
 * recorded in. The kernels' own times are stamps of the device's clock in the step's first and last
 * kernel, and always there; the event right behind the last kernel ties the copies' events to that
 * clock.
 *
 * Thread: the rank's own; profile_read by the leader, of a completed step. Owns its events;
 * PROFILE_PLACES steps are told apart.
 */
#pragma once

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#include "gpu/gpu.h"
#include "protocol/base/error.h"

#define PROFILE_PLACES (GPU_DEPTH_MAX + 1)

enum profile_mark {
    PROFILE_IN_FIRST,
    PROFILE_IN_LAST,
    PROFILE_COMPUTE_LAST,
    PROFILE_OUT_FIRST,
    PROFILE_OUT_LAST,
    PROFILE_PEER_FIRST, /* of a stage that hands on; of others never recorded */
    PROFILE_PEER_LAST,
    PROFILE_MARKS
};

/* What the host knows of a step. */
struct profile_place {
    cudaEvent_t events[PROFILE_MARKS];
    struct gpu_profile host; /* without lanes and told_ns */
    bool peer;               /* something was handed on */
};

struct profile {
    uint64_t steps; /* the first so many are profiled; 0: none */
    struct profile_place places[PROFILE_PLACES];
};

int profile_open(struct profile *profile, uint64_t steps, struct error *error);
void profile_close(struct profile *profile);

static inline bool profile_covers(const struct profile *profile, uint64_t step)
{
    return step <= profile->steps;
}

/* CLOCK_MONOTONIC. */
uint64_t profile_now_ns(void);

/* These do nothing for a step that is not covered. begin and end stand around its submission. */
void profile_begin(struct profile *profile, const struct gpu_plan *plan);
void profile_end(struct profile *profile, uint64_t step);
int profile_record(struct profile *profile, uint64_t step, enum profile_mark mark,
                   cudaStream_t stream, struct error *error);

/* Of the copies of a completed step; 0 where it is not covered. */
uint64_t profile_in_ns(const struct profile *profile, uint64_t step);
uint64_t profile_out_ns(const struct profile *profile, uint64_t step);
/* Of a covered step. compute: by the kernels' stamps; told_ns: by the host function. */
void profile_read(const struct profile *profile, uint64_t step, struct gpu_span compute,
                  uint64_t told_ns, struct gpu_profile *ret);
