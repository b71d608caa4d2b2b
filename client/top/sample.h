/* What the daemon said about itself at one time, and what happened between two such times. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "protocol/base/clock.h"
#include "protocol/base/error.h"
#include "protocol/base/hist.h"
#include "protocol/base/json.h"

/* The figures that are shown, by their names in daemon/base/stats.def. */
enum sample_counter {
    COUNTER_REQUESTS,
    COUNTER_SEQUENCES,
    COUNTER_BUSY,
    COUNTER_FINAL,
    COUNTER_STOP,
    COUNTER_LENGTH,
    COUNTER_CANCELLED,
    COUNTER_DEADLINE,
    COUNTER_ERROR,
    COUNTER_STEPS,
    COUNTER_PROMPT_TOKENS,
    COUNTER_GENERATED,
    COUNTER_PREEMPTIONS,
    COUNTER_CACHED_TOKENS,
    COUNTER_CACHE_HITS,
    COUNTER_CACHE_MISSES,
    COUNTER_CACHE_EVICTIONS,
    COUNTER_DRAFTED,
    COUNTER_ACCEPTED,
    COUNTER_HOST_OUT,
    COUNTER_HOST_IN,
    COUNTERS
};
enum sample_gauge {
    GAUGE_CONNECTIONS,
    GAUGE_WAITING,
    GAUGE_STARTING,
    GAUGE_RUNNING,
    GAUGE_KV_USED,
    GAUGE_KV_CACHED,
    GAUGE_HOST,
    GAUGE_KV_FREE,
    GAUGE_KV_MAX,
    GAUGE_KV_SLABS,
    GAUGES
};
enum sample_hist {
    HIST_TTFT,
    HIST_ITL,
    HIST_E2E,
    HIST_STEP,
    HIST_STEP_IN,
    HIST_STEP_COMPUTE,
    HIST_STEP_OUT,
    HIST_STEP_GAP,
    HISTS
};
enum sample_memory {
    MEMORY_WEIGHTS,
    MEMORY_KV_USED,
    MEMORY_KV_HELD,
    MEMORY_SCRATCH,
    MEMORY_FREE,
    MEMORY_TOTAL,
    MEMORY_HOST,
    MEMORIES
};

struct sample {
    time_us at_us;
    uint64_t uptime_us;
    uint64_t counters[COUNTERS], gauges[GAUGES], memory[MEMORIES];
    struct hist hists[HISTS];
};

/* From the answer to STATS with "buckets". What is missing is 0; ERR_BAD_HEAD when it is none. */
int sample_read(const json *stats, time_us at_us, struct sample *ret_sample, struct error *error);

/* A counter's rate per second between two samples. */
double sample_rate(const struct sample *from, const struct sample *to, enum sample_counter which);
/* What came in between; of a daemon that was started again since, all of `to`. */
void sample_between(const struct sample *from, const struct sample *to, enum sample_hist which,
                    struct hist *ret_hist);
double sample_mean_us(const struct hist *hist);
