/* All that is known after a run, for those who tell it. */
#pragma once

#include "client/bench/options.h"
#include "client/bench/recorder.h"
#include "client/bench/summary.h"
#include "client/bench/transport.h"
#include "client/bench/workload.h"

struct result {
    const struct bench_options *options;
    const struct bench_goals *goals;
    const char *backend; /* "sluice" or "openai" */
    struct transport_info info;
    const struct workload *load, *probes; /* probes: NULL without --probe-rate */
    const struct recorder *records, *probe_records;
    struct summary summary, probe_summary;
};
