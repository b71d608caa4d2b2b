/* How long a step's copies take, by events with timing; made only where the options ask for it,
 * since a timed event costs the stream it is recorded in. The kernels' own times are stamps of the
 * device's clock in the step's first and last kernel, and always there.
 *
 * Thread: the rank's own. Owns its events; RING_PLACES steps are told apart.
 */
#pragma once

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#include "protocol/base/error.h"

#define PROFILE_STEPS 3

enum profile_mark {
    PROFILE_IN_FIRST,
    PROFILE_IN_LAST,
    PROFILE_OUT_FIRST,
    PROFILE_OUT_LAST,
    PROFILE_MARKS
};

struct profile {
    bool on;
    cudaEvent_t events[PROFILE_STEPS][PROFILE_MARKS];
};

int profile_open(struct profile *profile, struct error *error);
void profile_close(struct profile *profile);

/* Does nothing when profiling is off. */
int profile_record(struct profile *profile, uint64_t step, enum profile_mark mark,
                   cudaStream_t stream, struct error *error);

/* Of a completed step; 0 when off. */
uint64_t profile_in_ns(const struct profile *profile, uint64_t step);
uint64_t profile_out_ns(const struct profile *profile, uint64_t step);
