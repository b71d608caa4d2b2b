/* When requests arrive: drawn ahead of the run, so that no answer can move an arrival.
 *
 * Gaps are Gamma distributed with the shape `burstiness` and the mean 1 / rate, by vLLM's rules:
 * burstiness 1 is a Poisson process, below 1 burstier, above 1 smoother, infinite even gaps. A
 * fixed number of arrivals without a ramp is stretched so that the last one comes at count / rate.
 * With a ramp the rate goes from its start to its end over the requests.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "client/bench/random.h"

enum ramp { RAMP_NONE, RAMP_LINEAR, RAMP_EXPONENTIAL };

struct schedule_rule {
    double rate;       /* per second; infinite: all at once */
    double burstiness; /* above 0 */
    enum ramp ramp;
    double ramp_start, ramp_end; /* per second */
};

/* `count` arrivals in microseconds after the start, ascending. */
void schedule_draw(const struct schedule_rule *rule, struct random *random, uint64_t *arrivals_us,
                   size_t count);
/* Arrivals up to span_us after the start, at most `max` of them; returns how many. */
size_t schedule_draw_span(const struct schedule_rule *rule, struct random *random,
                          uint64_t *arrivals_us, size_t max, uint64_t span_us);
