/* The figures of a run, from its raw records. Names and definitions are vLLM's:
 *
 * TTFT   first chunk with tokens, from the sending
 * ITL    gaps between consecutive chunks, of all requests together (a chunk may hold several
 * tokens; AIPerf calls this inter-chunk latency, and TPOT inter-token latency) E2EL   last chunk
 * with tokens, from the sending TPOT   (E2EL - TTFT) / (output tokens - 1), of requests with more
 * than one
 *
 * and beside them TTFT and E2EL from the scheduled arrival, which no delay of the generator or of
 * --max-concurrency can make look better. Latencies are of requests that were completed; throughput
 * counts those, too. Milliseconds.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/bench/options.h"
#include "client/bench/recorder.h"
#include "client/bench/workload.h"

enum metric_kind {
    METRIC_TTFT,
    METRIC_TPOT,
    METRIC_ITL,
    METRIC_E2EL,
    METRIC_TTFT_DUE, /* from the scheduled arrival */
    METRIC_E2EL_DUE,
    METRICS
};

struct metric {
    double *sorted;
    size_t count;
    double mean, std;
};

struct summary {
    struct metric metrics[METRICS];
    struct metric lateness; /* sending, after the request could be sent */
    uint32_t completed, failed, cancelled, unsent;
    uint64_t input_tokens, output_tokens;
    uint64_t cached_tokens; /* of the input */
    uint32_t cached;        /* completed requests with any */
    uint64_t later_input_tokens, later_cached_tokens; /* those of sessions' further turns */
    double duration_s;      /* first sending to last end */
    double request_throughput, output_throughput, total_throughput, request_goodput;
    double offered_rate, sent_rate; /* arrivals as drawn, and as sent; 0 when all came at once */
    double peak_output_throughput;  /* of the seconds of the run; over HTTP a chunk counts as one
                                     * token, as it does in vLLM's */
    uint32_t peak_concurrent;
    size_t chunks_lost;
};

/* What lateness and rates must be past to come first in the report. */
#define SUMMARY_LATENESS_MS 1.0
#define SUMMARY_RATE_SHORT 0.99

int summary_make(const struct workload *workload, const struct recorder *recorder,
                 const struct bench_goals *goals, struct summary *ret_summary, struct error *error);
void summary_free(struct summary *summary);

/* The generator was late itself, or sent less than was drawn. */
bool summary_is_late(const struct summary *summary);
bool summary_is_short(const struct summary *summary);

/* Gaps between a request's chunks, in the order of the chunks. The caller frees *ret_gaps;
 * (*ret_first)[i] is where request i's begin, with count + 1 entries. */
int summary_gaps(const struct workload *workload, const struct recorder *recorder,
                 double **ret_gaps, size_t **ret_first, struct error *error);
