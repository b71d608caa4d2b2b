/* What job_worker.c, the loop's side and the thread, and job_turn.c, the turns, have in common.
 * Private to them. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "daemon/jobs/job_worker.h"

#define JOB_COMMAND_STOP 1u

struct job_worker {
    struct replica base;
    const struct gpu_jobs_api *api;
    struct gpu_jobs *lanes;
    struct job_programs *programs;
    struct job_worker_options options;
    struct chunk_limits limits; /* fewer items than at first while the device has little memory */
    struct completion_queue *completions;
    int wake_fd;
    pthread_t thread;
    bool has_thread;

    struct mailbox in, cancels;
    atomic_uint commands, state;
    _Atomic time_us busy_since_us; /* of the oldest chunk on the device; 0: none */
    struct error failure;          /* written before the state is FAILED */
    struct timeline timeline;

    /* The worker's own. */
    bool opened;
    struct list waiting;   /* seq.run_link: jobs with rows that no piece has */
    struct list free;      /* chunk.link */
    struct list on_device; /* chunk.link, by the time of their enqueueing */
    struct chunk *chunks;
    time_us asked_us; /* when the device was last asked whether it lives */
    time_us copy_us;  /* before it no chunk is enqueued: the copies of those before take so long */
    bool held;        /* there would be a chunk, but for that */
    time_us idle_us;  /* since when nothing is there; 0: something is, or memory was given back */
};
