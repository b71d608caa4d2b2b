/* A load served by the real scheduler (daemon/sched) on the model of the machine, in virtual time.
 */
#pragma once

#include "daemon/sched/sched.h"
#include "tests/bench/latency/load.h"

struct figures {
    double ttft_p50, ttft_p99, ttft_max;
    double itl_p50, itl_p99, itl_max;
    double tpot_p50, tpot_p99;
    double rate;         /* requests a second, of the middle three fifths that ended */
    double step_tokens;  /* mean */
    double idle_percent; /* of the device between its first step and its last */
};

/* Milliseconds. Gaps that end before from_us or after until_us do not count. */
struct figures run_load(const struct load *load, const struct sched_options *options,
                        double from_us, double until_us);
