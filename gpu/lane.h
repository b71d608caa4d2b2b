/* The streams of one GPU, and the way of a step over them.
 *
 *   copy_in    H2D(n+1) --\               H2D(n+2)
 *   compute      step n  --+-- step n+1 ------
 *   copy_out                D2H(n)
 *   notify                       host function(n)
 *
 * Ranks that share a model have two more: for large sums (comm.h), and from stage to stage
 * (relay.h).
 *
 * compute has the greatest priority. copy_in and copy_out carry a step's control only; bulk_in and
 * bulk_out everything large (weights). All are created non-blocking; the legacy default stream is
 * never touched, the thread's own default stream serves set-up and is synchronised once, before the
 * first step. Events have no timing unless the engine profiles.
 *
 * Of a step, three events each order one stream behind another: the plan is there (compute waits
 * for copy_in), the results are there (copy_out waits for compute), the results are on the host
 * (notify waits for copy_out). None can be left out: tests/gpu/wait_test.c takes each away.
 *
 * The host function stores the step's number and writes to the eventfd: it owns nothing, frees
 * nothing, locks nothing, and makes no CUDA call.
 *
 * Thread: the rank's own, but lane_completed (any). Owns its streams and events.
 */
#pragma once

#include <cuda_runtime_api.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "gpu/profile.h"
#include "protocol/base/error.h"

#define LANE_TICKETS 16 /* more than steps can be in flight */

/* What a host function is handed; lives as long as the lane. */
struct lane_ticket {
    struct lane *lane;
    uint64_t step;
    uint64_t told_ns; /* written by the host function, of a profiled step */
};

struct lane {
    cudaStream_t compute, copy_in, copy_out, bulk_in, bulk_out, notify;
    cudaEvent_t plan_there, results_there, results_on_host;
    struct profile profile;
    int wake_fd;
    _Atomic uint64_t completed;    /* number of the last step that has ended */
    _Atomic uint64_t synchronizes; /* see lane_synchronize */
    uint64_t notified;             /* number of the last step enqueued */
    struct lane_ticket tickets[LANE_TICKETS];
};

/* On failure nothing is left behind. */
int lane_open(struct lane *lane, int wake_fd, uint64_t profile_steps, struct error *error);
/* Drained before, unless the device failed. */
void lane_close(struct lane *lane);

/* The hand-overs of a step, in the order of use. */
int lane_plan_in(struct lane *lane, uint64_t step, void *device, const void *pinned, size_t bytes,
                 struct error *error); /* and compute waits for it */
int lane_results_there(struct lane *lane, uint64_t step,
                       struct error *error); /* copy_out waits for compute */
int lane_results_out(struct lane *lane, uint64_t step, void *pinned, const void *device,
                     size_t bytes, struct error *error); /* and notify waits for them */
int lane_notify(struct lane *lane, uint64_t step, struct error *error);

uint64_t lane_completed(const struct lane *lane);
/* When the host function of a completed, profiled step ran. */
uint64_t lane_told_ns(const struct lane *lane, uint64_t step);

/* Waits for everything enqueued. Counted where a step is unfinished: that never happens but at the
 * end. */
int lane_synchronize(struct lane *lane, struct error *error);
