/* A run over time: what happened in each of a number of equal spans. */
#pragma once

#include <stdint.h>

#include "client/bench/recorder.h"
#include "client/bench/workload.h"

#define SERIES_MAX 200 /* spans */

enum series_column {
    SERIES_ARRIVALS, /* per second, as scheduled */
    SERIES_SENT,
    SERIES_COMPLETED,
    SERIES_FAILED,
    SERIES_TOKENS,
    SERIES_TTFT_P50, /* ms from the scheduled arrival, by the arrival's span; NAN: none came */
    SERIES_TTFT_P99,
    SERIES_E2EL_P50,
    SERIES_E2EL_P99,
    SERIES_COLUMNS
};

extern const char *const series_names[SERIES_COLUMNS];

struct series {
    uint32_t count;
    double width_s; /* of a span: 1, 2 or 5 times a power of ten */
    double *values[SERIES_COLUMNS];
};

int series_make(const struct workload *workload, const struct recorder *recorder,
                struct series *ret_series, struct error *error);
void series_free(struct series *series);
