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
    double step_rows;    /* likewise, of those that decode */
    double all_rate;     /* requests a second, all of them */
    double found_percent;         /* of prompts' tokens, those that were cached */
    double blocks_out, blocks_in; /* copied to host memory and back */
    double preemptions;
    double idle_percent; /* of the device between its first step and its last */
};

/* Memory for keys and values, of the device and of the host. */
struct room {
    uint32_t device_gib; /* 0: all that is there */
    uint32_t host_gib;   /* 0: none */
};

/* Milliseconds. Gaps that end before from_us or after until_us do not count. */
struct figures run_load(const struct load *load, const struct sched_options *options,
                        struct room room, double from_us, double until_us);
