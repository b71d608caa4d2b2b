/* Where the time of the first N steps went: what `--profile-steps N FILE` tells.
 *
 * A trace holds, for one replica, what each device's lanes did for each step (gpu.h, profile()). It
 * is the worker's until it is full or the worker has stopped, then anybody's who saw that. All its
 * memory is taken when it is made.
 *
 * Times come on each device's own clock, and here on the host's. What ties them: a plan's copy
 * begins after the host submitted it, and the end of a step is told after its results were copied.
 * Over all steps that bounds the distance of the clocks to a few microseconds; its middle is taken
 * as constant, so a clock that drifts shows in long traces.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "gpu/gpu.h"
#include "protocol/base/error.h"

#define TRACE_STEPS_MAX 100000u

struct trace; /* opaque */

/* Of one device. */
struct trace_summary {
    uint64_t steps;
    uint64_t elapsed_ns; /* from the first copy's begin to the last step told */
    uint64_t busy_ns[GPU_LANES];
    double overlap; /* sum of the lanes' busy times over elapsed time; above 1: side by side */
    /* On compute, between a step's last kernel and the next one's first, where that was enqueued
     * before: what the device waits for between steps. */
    uint64_t gaps, gap_p50_ns, gap_p99_ns, gap_max_ns;
};

int trace_make(uint32_t steps, uint32_t ranks, struct trace **ret_trace, struct error *error);
void trace_free(struct trace *trace); /* NULL is allowed */
/* How its devices are called; before the worker starts. devices: one number for each rank. */
void trace_name(struct trace *trace, uint32_t replica, const int *devices);

/* worker. The next step of this rank; steps beyond the last one are ignored. */
void trace_take(struct trace *trace, uint32_t rank, const struct gpu_profile *profile);
/* worker. Every rank has all its steps. */
bool trace_full(const struct trace *trace);
/* Any thread: worker has said that the trace is full, or has stopped. */
void trace_close(struct trace *trace);
bool trace_closed(const struct trace *trace);

/* Of a closed trace. False where no step was taken. */
bool trace_summarise(const struct trace *trace, uint32_t rank, struct trace_summary *ret);
/* The same for people: a paragraph per device. */
void trace_print(const struct trace *trace, FILE *file);
/* Chrome's trace format: a process per device, a thread per lane, and one for the host's
 * submitting. */
void trace_write(struct trace *const *traces, uint32_t count, FILE *file);
