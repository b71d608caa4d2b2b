/* The worker of jobs: the thread that puts waiting jobs into chunks, gives them to the device's
 * lanes and takes them back. What daemon/worker/worker.h is for sequences of tokens, and as that
 * one reached by struct replica, a mailbox and the completion queue.
 *
 * A turn takes mail and cancels, then chunks that have ended, and only then makes new ones: no
 * piece that is enqueued after a cancel was taken is of the cancelled job. What is on the device
 * then runs to its end, since it writes where the results go; only then the job ends.
 *
 * When the device fails, or a chunk is on it for longer than job-timeout, what was on the device is
 * written to the records (record.h), every job here and every one sent later ends with ERR_DEVICE,
 * and COMPLETION_FAILED tells the loop, which ends the process.
 *
 * From start on the worker's thread allocates nothing.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "daemon/base/replica_api.h"
#include "daemon/base/seq.h"
#include "daemon/jobs/chunk.h"
#include "daemon/jobs/programs.h"
#include "daemon/jobs/timeline.h"
#include "daemon/worker/completion_queue.h"
#include "gpu/jobs/gpu_jobs.h"

#define JOB_WORKER_FOREVER UINT64_MAX

enum job_worker_state {
    JOB_WORKER_LOADING,
    JOB_WORKER_READY,
    JOB_WORKER_FAILED,
    JOB_WORKER_STOPPED
};

struct job_worker_options {
    struct gpu_jobs_options lanes;
    time_us timeout_us;      /* of a chunk on the device */
    time_us idle_release_us; /* memory of the pool goes back after so long without work */
    uint64_t copy_rate;      /* bytes a second that chunks copy each way; 0: as many as they can */
};

struct job_worker; /* opaque; its first member is a struct replica */

/* What chunks are made by, of these options. */
struct chunk_limits job_worker_limits(const struct gpu_jobs_options *options);

/* Loop thread, all of these. All memory is taken by make. */
int job_worker_make(const struct gpu_jobs_api *api, struct job_programs *programs,
                    const struct job_worker_options *options, struct completion_queue *completions,
                    struct job_worker **ret_worker, struct error *error);
/* Starts the thread, which opens the lanes; COMPLETION_READY or COMPLETION_FAILED follows. */
int job_worker_start(struct job_worker *worker, struct error *error);
struct replica *job_worker_replica(struct job_worker *worker);
/* Ends what is there with FINISH_CANCELLED and the thread; COMPLETION_STOPPED follows. */
void job_worker_stop(struct job_worker *worker);
void job_worker_join(struct job_worker *worker);
void job_worker_free(struct job_worker *worker); /* NULL is allowed */

/* Any thread. */
enum job_worker_state job_worker_state(const struct job_worker *worker);
const struct error *job_worker_failure(const struct job_worker *worker); /* while it is FAILED */
void job_worker_figures(const struct job_worker *worker, struct gpu_jobs_memory *ret_memory,
                        struct gpu_jobs_counters *ret_counters);
struct timeline *job_worker_timeline(struct job_worker *worker);

/* ---- the turns: the worker's thread, or the simulation ----------------------------------------
 */

int job_worker_open(struct job_worker *worker);
/* False when it has stopped: no further turn. */
bool job_worker_turn(struct job_worker *worker, time_us now_us);
uint64_t job_worker_wait_us(const struct job_worker *worker, time_us now_us);
int job_worker_fd(const struct job_worker *worker);
