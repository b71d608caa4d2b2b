/* The loop's side of the worker of jobs. */
#include "daemon/jobs/job_worker.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "daemon/jobs/job_worker_inner.h"

struct chunk_limits job_worker_limits(const struct gpu_jobs_options *options)
{
    const uint64_t chunks = (uint64_t)options->lanes * options->ring;
    return (struct chunk_limits){.bytes = options->chunk_bytes,
                                 .all = options->memory_max ? options->memory_max / chunks
                                                            : UINT64_MAX};
}

/* ---- as a replica ------------------------------------------------------------------------------
 */

static struct job_worker *of(const struct replica *replica)
{
    return (struct job_worker *)(uintptr_t)container_of(replica, struct job_worker, base);
}

static struct replica_room room(const struct replica *replica)
{
    return (struct replica_room){.ready = job_worker_state(of(replica)) == JOB_WORKER_READY};
}

static void send(struct replica *replica, struct seq *seq)
{
    mailbox_push(&of(replica)->in, &seq->in_link);
}

static void cancel(struct replica *replica, struct seq *seq)
{
    mailbox_push(&of(replica)->cancels, &seq->cancel_link);
}

static void wake_up(const struct job_worker *worker)
{
    while (write(worker->wake_fd, &(uint64_t){1}, sizeof(uint64_t)) < 0 && errno == EINTR)
        continue; /* a full counter wakes, too */
}

static void wake(struct replica *replica)
{
    wake_up(of(replica));
}

/* A chunk late by as much again is a device that the worker itself cannot tell of any more. */
static bool healthy(const struct replica *replica, time_us now_us)
{
    const struct job_worker *worker = of(replica);
    time_us since = atomic_load_explicit(&worker->busy_since_us, memory_order_relaxed);
    if (job_worker_state(worker) == JOB_WORKER_FAILED)
        return false;
    return since == 0 || now_us < since || now_us - since <= 2 * worker->options.timeout_us;
}

static const struct replica_api replica_api = {
    .room = room, .send = send, .cancel = cancel, .wake = wake, .healthy = healthy};

struct replica *job_worker_replica(struct job_worker *worker)
{
    return &worker->base;
}

/* ---- life --------------------------------------------------------------------------------------
 */

static int make_chunks(struct job_worker *worker, struct error *error)
{
    const uint32_t count = worker->options.lanes.lanes * worker->options.lanes.ring;
    worker->chunks = calloc(count, sizeof(*worker->chunks));
    if (!worker->chunks)
        return error_set(error, ERR_NO_MEMORY, "no memory for chunks");
    for (uint32_t i = 0; i < count; i++)
        list_append(&worker->free, &worker->chunks[i].link);
    return 0;
}

int job_worker_make(const struct gpu_jobs_api *api, struct job_programs *programs,
                    const struct job_worker_options *options, struct completion_queue *completions,
                    struct job_worker **ret_worker, struct error *error)
{
    struct job_worker *worker = calloc(1, sizeof(*worker));
    if (!worker)
        return error_set(error, ERR_NO_MEMORY, "no memory for a worker");
    worker->base.api = &replica_api;
    worker->api = api;
    worker->programs = programs;
    worker->options = *options;
    worker->limits = job_worker_limits(&options->lanes);
    worker->completions = completions;
    timeline_init(&worker->timeline);
    list_init(&worker->waiting);
    list_init(&worker->free);
    list_init(&worker->on_device);
    mailbox_init(&worker->in);
    mailbox_init(&worker->cancels);
    worker->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int rc = worker->wake_fd < 0 ? error_set(error, ERR_IO, "eventfd: %s", strerror(errno))
                                 : make_chunks(worker, error);
    if (!rc)
        rc = api->open(&options->lanes, &worker->lanes, error);
    if (rc) {
        job_worker_free(worker);
        return rc;
    }
    *ret_worker = worker;
    return 0;
}

void job_worker_free(struct job_worker *worker)
{
    if (!worker)
        return;
    if (worker->lanes) {
        if (worker->opened)
            worker->api->stop(worker->lanes);
        worker->api->close(worker->lanes);
    }
    mailbox_destroy(&worker->in);
    mailbox_destroy(&worker->cancels);
    timeline_destroy(&worker->timeline);
    /* A device that failed may write to it, and to its chunks, at any time. */
    if (job_worker_state(worker) == JOB_WORKER_FAILED)
        return;
    if (worker->wake_fd >= 0)
        close(worker->wake_fd);
    free(worker->chunks);
    free(worker);
}

void job_worker_stop(struct job_worker *worker)
{
    atomic_fetch_or_explicit(&worker->commands, JOB_COMMAND_STOP, memory_order_release);
    wake_up(worker);
}

/* ---- any thread --------------------------------------------------------------------------------
 */

enum job_worker_state job_worker_state(const struct job_worker *worker)
{
    return (enum job_worker_state)atomic_load_explicit(&worker->state, memory_order_acquire);
}

const struct error *job_worker_failure(const struct job_worker *worker)
{
    return &worker->failure;
}

void job_worker_figures(const struct job_worker *worker, struct gpu_jobs_memory *ret_memory,
                        struct gpu_jobs_counters *ret_counters)
{
    worker->api->memory(worker->lanes, ret_memory);
    worker->api->counters(worker->lanes, ret_counters);
}

struct timeline *job_worker_timeline(struct job_worker *worker)
{
    return &worker->timeline;
}

int job_worker_fd(const struct job_worker *worker)
{
    return worker->wake_fd;
}
