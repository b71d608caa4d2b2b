/* The streams of one GPU, and the way of a step over them.
 *
 *   copy_in    H2D(n+1) --\               H2D(n+2)
 *   compute      step n  --+-- step n+1 ------
 *   copy_out                D2H(n)
 *   notify                       host function(n)
 *
 * Ranks that share a model have two more: for large sums (comm.h), and from stage to stage
 * (pipeline_link.h).
 *
 * compute has the greatest priority. copy_in and copy_out carry a step's control only; bulk_in and
 * bulk_out everything large (weights, KV blocks). All are created non-blocking; the legacy default
 * stream is never touched, the thread's own default stream serves set-up and is synchronised once,
 * before the first step. Events have no timing unless the engine profiles.
 *
 * Of a step, three events each order one stream behind another: the plan is there (compute waits
 * for copy_in), the results are there (copy_out waits for compute), the results are on the host
 * (notify waits for copy_out). None can be left out: tests/gpu/engine/wait_test.c takes each away.
 *
 * Copies of blocks to the host wait for the steps that were enqueued before them (bulk_out for
 * compute), those from it for the allocation of the slabs that they write to (bulk_in for compute).
 * Nothing in a stream waits for them: plans name what they have written once the host knows their
 * end, which a host function in their own stream tells. tests/gpu/engine/copies_test.c takes either
 * wait away.
 *
 * The host function stores the step's number and writes to the eventfd: it owns nothing, frees
 * nothing, locks nothing, and makes no CUDA call.
 *
 * Thread: the rank's own, but streams_completed (any). Owns its streams and events.
 */
#pragma once

#include <cuda_runtime_api.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "gpu/base/profile.h"
#include "protocol/base/error.h"

#define STREAMS_TICKETS 16 /* more than steps can be in flight */

/* What a host function is handed; lives as long as the lane. */
struct streams_ticket {
    struct streams *lane;
    uint64_t step;
    uint64_t told_ns; /* written by the host function, of a profiled step */
};

struct streams {
    cudaStream_t compute, copy_in, copy_out, bulk_in, bulk_out, notify;
    cudaEvent_t plan_there, results_there, results_on_host;
    struct profile profile;
    int wake_fd;
    _Atomic uint64_t completed;    /* number of the last step that has ended */
    _Atomic uint64_t synchronizes; /* see streams_synchronize */
    _Atomic uint64_t sampled;      /* the same of samplings */
    uint64_t notified;             /* number of the last step enqueued */
    uint64_t sampling;             /* and of the last sampling */
    cudaEvent_t slabs_there;       /* in compute: what was allocated there is memory */
    cudaEvent_t bulk_behind;       /* in compute: the steps that were enqueued */
    _Atomic uint64_t copied[GPU_WAYS];
    uint64_t copying[GPU_WAYS];
    struct streams_ticket copies[GPU_WAYS][GPU_COPIES_MAX];
    struct streams_ticket tickets[STREAMS_TICKETS];
    struct streams_ticket samplings[GPU_SAMPLINGS_MAX];
};

/* On failure nothing is left behind. */
int streams_open(struct streams *lane, int wake_fd, uint64_t profile_steps, struct error *error);
/* Drained before, unless the device failed. */
void streams_close(struct streams *lane);

/* The hand-overs of a step, in the order of use. */
int streams_plan_in(struct streams *lane, uint64_t step, void *device, const void *pinned,
                    size_t bytes, struct error *error); /* and compute waits for it */
int streams_results_there(struct streams *lane, uint64_t step,
                          struct error *error); /* copy_out waits for compute */
int streams_results_out(struct streams *lane, uint64_t step, void *pinned, const void *device,
                        size_t bytes, struct error *error); /* and notify waits for them */
int streams_notify(struct streams *lane, uint64_t step, struct error *error);

/* The same of a sampling, beside those of steps: its masks, then, behind its kernels, its samples. */
int streams_masks_in(struct streams *lane, void *device, const void *pinned, size_t bytes,
                     struct error *error);
int streams_samples_out(struct streams *lane, uint64_t sampling, void *pinned, const void *device,
                        size_t bytes, struct error *error);
uint64_t streams_sampled(const struct streams *lane);

/* Copies of blocks. A new slab: bulk_in is to wait for it. Then, before copies, the wait of their
 * way, and behind them their end. */
int streams_slab_there(struct streams *lane, struct error *error);
int streams_copies_begin(struct streams *lane, enum gpu_way way, struct error *error);
int streams_copies_end(struct streams *lane, enum gpu_way way, uint64_t number,
                       struct error *error);
uint64_t streams_copied(const struct streams *lane, enum gpu_way way);
static inline cudaStream_t streams_bulk(const struct streams *lane, enum gpu_way way)
{
    return way == GPU_TO_HOST ? lane->bulk_out : lane->bulk_in;
}

uint64_t streams_completed(const struct streams *lane);
/* When the host function of a completed, profiled step ran. */
uint64_t streams_told_ns(const struct streams *lane, uint64_t step);

/* Waits for all that steps and set-up have enqueued, and not for what is on bulk_in alone: weights
 * may still be coming (arrival.h). Counted where a step is unfinished: that never happens. */
int streams_synchronize(struct streams *lane, struct error *error);
/* For that, too, at the end, when a step may be that nobody waits for; counted never. */
int streams_finish(struct streams *lane, struct error *error);
