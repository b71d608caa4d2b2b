/* One line on a terminal that says how far a long batch is. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "protocol/base/clock.h"

#define PROGRESS_INTERVAL_US 200000u

struct progress {
    bool active; /* stderr is a terminal, and the results do not go to one */
    bool shown;
    time_us started_us, next_us;
};

struct progress_state {
    uint64_t done, tokens;
    uint32_t running, waiting;
    double fraction; /* of the input that is done; negative = not known */
};

void progress_init(struct progress *progress, time_us now_us);
void progress_show(struct progress *progress, const struct progress_state *state, time_us now_us);
/* Takes the line away, so that something else can be said. */
void progress_clear(struct progress *progress);
