/* When the stages of a chunk ran, by events with timing: made for every slot, and recorded only for
 * chunks that ask, since such an event costs the stream it is recorded in.
 *
 * All chunks of all lanes have one clock. Its origin is an event, the first one of an earlier chunk:
 * the time between two events is told as a float of milliseconds, so what is measured against it
 * must not be far away, and after a while a later chunk's event takes its place.
 *
 * Thread: the worker's. Owns its events.
 */
#pragma once

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#include "gpu/jobs/gpu_jobs.h"

#define LANE_CLOCK_RENEW_MS 1000.0f /* by then a float still tells a ten-thousandth of one */

struct lane_clock {
    cudaEvent_t origin;
    uint64_t origin_ns; /* 0: there is none yet */
    float renew_ms;
};

struct lane_times {
    uint32_t streams;
    cudaEvent_t in_first, in_last, out_first, out_last;
    cudaEvent_t begun[SLUICE_STREAMS_MAX], through[SLUICE_STREAMS_MAX]; /* of each compute stream */
};

/* On failure, what was made is closed by the callers' close. */
int lane_clock_open(struct lane_clock *clock, struct error *error);
void lane_clock_close(struct lane_clock *clock);
int lane_times_open(struct lane_times *times, uint32_t streams, struct error *error);
void lane_times_close(struct lane_times *times);

/* Of a chunk that has ended and had so many compute streams, all of whose events were recorded. */
int lane_times_read(struct lane_times *times, struct lane_clock *clock, uint32_t streams,
                    struct gpu_chunk_times *ret_times, struct error *error);
