/* The turns of the worker of jobs: mail, chunks that have ended, new ones, news. The worker's
 * thread. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "daemon/jobs/job_worker_inner.h"
#include "daemon/jobs/record.h"
#include "protocol/base/log.h"

#define ASK_US 1000000u /* how often a device with chunks on it is asked whether it lives */
#define COPY_CREDIT_US 2000u /* of copies that were not made, and may be made up for */

static void set_state(struct job_worker *worker, enum job_worker_state state)
{
    atomic_store_explicit(&worker->state, state, memory_order_release);
}

/* ---- the end of a job --------------------------------------------------------------------------
 */

static void end_job(struct job_worker *worker, struct seq *seq, time_us now_us)
{
    seq->stamps.ended_us = now_us;
    seq->stamps.last_token_us = now_us;
    completion_visit(worker->completions, seq, COMPLETION_ENDED);
}

/* Takes no further piece; it ends once those on the device are through. */
static void stop_job(struct job_worker *worker, struct seq *seq, enum finish finish, time_us now_us)
{
    struct tensor_job *job = seq->job;
    if (list_linked(&seq->run_link))
        list_remove(&seq->run_link);
    job->stopped = true;
    seq->finish = finish;
    if (job->under_way == 0)
        end_job(worker, seq, now_us);
}

static void fail_job(struct job_worker *worker, struct seq *seq, const struct error *error,
                     time_us now_us)
{
    if (seq->job->stopped)
        return; /* it was cancelled, or another piece of it has failed */
    *seq->failure = *error;
    stop_job(worker, seq, FINISH_ERROR, now_us);
}

/* ---- the end of the device ---------------------------------------------------------------------
 */

/* Once each program, although several of its chunks may be on the device. */
static void record_programs(struct job_worker *worker, const struct chunk *only,
                            const struct error *error)
{
    char reason[JOB_REASON_MAX];
    snprintf(reason, sizeof(reason), "%.200s\n", error->text);
    for (unsigned i = 0; i < worker->programs->count; i++) {
        struct job_program *program = &worker->programs->list[i];
        bool named = only ? only->base.program == &program->program
                          : atomic_load_explicit(&program->under_way, memory_order_relaxed) > 0;
        if (!named)
            continue;
        int why = record_write(program->record, reason);
        if (why)
            log_line(LOG_ERROR, "jobs",
                     "program %s stays on, its record cannot be written to %s: %s",
                     program->program.name, program->record, strerror(why));
        else
            log_line(LOG_ERROR, "jobs",
                     "program %s is off from now on, since jobs of it were on the device: %s",
                     program->program.name, program->record);
    }
}

/* Nothing is copied out any more, so what was on the device has ended, too. */
static void end_all(struct job_worker *worker, enum finish finish, const struct error *error,
                    time_us now_us)
{
    struct list *link;
    while ((link = list_take(&worker->on_device))) {
        struct chunk *chunk = container_of(link, struct chunk, link);
        for (uint32_t i = 0; i < chunk->base.count; i++) {
            struct seq *seq = chunk->seqs[i];
            bool stopped = seq->job->stopped;
            seq->job->under_way--;
            if (!stopped && error)
                *seq->failure = *error;
            if (!stopped)
                stop_job(worker, seq, finish, now_us);
            else if (seq->job->under_way == 0)
                end_job(worker, seq, now_us);
        }
    }
    while (!list_empty(&worker->waiting)) {
        struct seq *seq = container_of(worker->waiting.next, struct seq, run_link);
        if (error)
            *seq->failure = *error;
        stop_job(worker, seq, finish, now_us);
    }
}

static void fail(struct job_worker *worker, const struct chunk *only, const struct error *error,
                 time_us now_us)
{
    worker->failure = *error;
    worker->failure.code = ERR_DEVICE;
    record_programs(worker, only, error);
    atomic_store_explicit(&worker->busy_since_us, 0, memory_order_relaxed);
    set_state(worker, JOB_WORKER_FAILED);
    end_all(worker, FINISH_ERROR, &worker->failure, now_us);
    completion_control(worker->completions, COMPLETION_FAILED);
}

/* ---- mail --------------------------------------------------------------------------------------
 */

static void take_job(struct job_worker *worker, struct seq *seq, time_us now_us)
{
    if (job_worker_state(worker) == JOB_WORKER_READY) {
        list_append(&worker->waiting, &seq->run_link);
        return;
    }
    *seq->failure = worker->failure; /* sent before the loop knew */
    seq->finish = FINISH_ERROR;
    end_job(worker, seq, now_us);
}

static void take_cancel(struct job_worker *worker, struct seq *seq, time_us now_us)
{
    unsigned flags = atomic_load_explicit(&seq->out_flags, memory_order_relaxed);
    if (flags & COMPLETION_ENDED) {
        completion_visit(worker->completions, seq, COMPLETION_CANCEL_SEEN);
        return;
    }
    completion_cancel_seen(seq);
    if (!seq->job->stopped)
        stop_job(worker, seq, seq->cancel_reason, now_us);
}

static void take_mail(struct job_worker *worker, time_us now_us)
{
    /* Cancels first: each one's job was sent before it, so it is known then. */
    struct mailbox_link *cancels = mailbox_drain(&worker->cancels);
    struct mailbox_link *in = mailbox_drain(&worker->in);
    while (in) {
        struct seq *seq = container_of(in, struct seq, in_link);
        in = in->next;
        take_job(worker, seq, now_us);
    }
    while (cancels) {
        struct seq *seq = container_of(cancels, struct seq, cancel_link);
        cancels = cancels->next;
        take_cancel(worker, seq, now_us);
    }
}

/* ---- chunks ------------------------------------------------------------------------------------
 */

static struct job_program *program_of(const struct chunk *chunk)
{
    return container_of(chunk->base.program, struct job_program, program);
}

/* The chunk is free; its jobs have what became of it. */
static void take_chunk(struct job_worker *worker, struct chunk *chunk, time_us now_us)
{
    struct error error;
    if (chunk->base.status)
        error_set(&error, ERR_PROGRAM, "program %s returned %" PRId32,
                  program_of(chunk)->program.name, chunk->base.status);
    list_remove(&chunk->link);
    if (chunk->base.timed)
        timeline_take(&worker->timeline, program_of(chunk), &chunk->base);
    atomic_fetch_sub_explicit(&program_of(chunk)->under_way, 1, memory_order_relaxed);
    for (uint32_t i = 0; i < chunk->base.count; i++) {
        struct seq *seq = chunk->seqs[i];
        struct tensor_job *job = seq->job;
        job->under_way--;
        if (chunk->base.status && !job->stopped) {
            fail_job(worker, seq, &error, now_us);
        } else if (job->under_way == 0 && (job->stopped || job->taken)) {
            if (!job->stopped)
                seq->finish = FINISH_STOP;
            end_job(worker, seq, now_us);
        }
    }
    list_append(&worker->free, &chunk->link);
}

static void take_chunks(struct job_worker *worker, time_us now_us)
{
    struct error error = {.code = 0};
    struct gpu_chunk *base;
    while ((base = worker->api->take(worker->lanes, &error))) {
        take_chunk(worker, container_of(base, struct chunk, base), now_us);
        worker->limits.items = 0; /* there is memory again */
        worker->asked_us = now_us;
    }
    if (error.code)
        fail(worker, NULL, &error, now_us);
}

static void give_up_first(struct job_worker *worker, time_us now_us)
{
    struct seq *seq = container_of(worker->waiting.next, struct seq, run_link);
    struct error error;
    error_set(&error, ERR_PROGRAM,
              "program %s asks for more scratch than when the job was accepted",
              seq->job->program->program.name);
    fail_job(worker, seq, &error, now_us);
}

static void enqueued(struct job_worker *worker, struct chunk *chunk, time_us now_us)
{
    chunk->since_us = now_us;
    if (list_empty(&worker->on_device))
        worker->asked_us = now_us;
    list_append(&worker->on_device, &chunk->link);
    for (uint32_t i = 0; i < chunk->base.count; i++)
        if (!chunk->seqs[i]->stamps.scheduled_us)
            chunk->seqs[i]->stamps.scheduled_us = now_us;
}

/* The device has no memory for it: later, when others have ended; or it goes without. */
static bool refused(struct job_worker *worker, struct chunk *chunk, int rc,
                    const struct error *error, time_us now_us)
{
    bool alone = list_empty(&worker->on_device);
    atomic_fetch_sub_explicit(&program_of(chunk)->under_way, 1, memory_order_relaxed);
    if (rc == -ERR_DEVICE_MEMORY && (!alone || chunk->base.count > 1)) {
        worker->limits.items = alone ? chunk->base.count / 2 : 0;
        chunk_give_back(chunk, &worker->waiting);
        list_append(&worker->free, &chunk->link);
        return alone; /* with half as many */
    }
    for (uint32_t i = 0; i < chunk->base.count; i++) {
        chunk->seqs[i]->job->under_way--;
        fail_job(worker, chunk->seqs[i], error, now_us);
    }
    list_append(&worker->free, &chunk->link);
    return true;
}

/* False when no further chunk is to be made in this turn. */
static bool submit(struct job_worker *worker, struct chunk *chunk, time_us now_us)
{
    struct error error = {.code = 0};
    chunk->base.timed = timeline_on(&worker->timeline, now_us);
    /* Before the call: it runs code of the program's. */
    atomic_fetch_add_explicit(&program_of(chunk)->under_way, 1, memory_order_relaxed);
    if (list_empty(&worker->on_device))
        atomic_store_explicit(&worker->busy_since_us, now_us, memory_order_relaxed);
    int rc = worker->api->submit(worker->lanes, &chunk->base, &error);
    if (rc == -ERR_DEVICE_MEMORY && list_empty(&worker->on_device) &&
        !worker->api->trim(worker->lanes, &error))
        rc = worker->api->submit(worker->lanes, &chunk->base, &error);
    if (rc == -ERR_DEVICE_MEMORY || rc == -ERR_TOO_LARGE)
        return refused(worker, chunk, rc, &error, now_us);
    enqueued(worker, chunk, now_us);
    if (rc)
        fail(worker, NULL, &error, now_us);
    return rc == 0;
}

static bool has_work(const struct job_worker *worker)
{
    return !list_empty(&worker->waiting) && !list_empty(&worker->free) &&
           worker->api->room(worker->lanes) > 0;
}

/* Its copies take as long as they do at the rate, whether the device is faster or not. */
static void count_copies(struct job_worker *worker, const struct chunk *chunk, time_us now_us)
{
    const time_us least = now_us > COPY_CREDIT_US ? now_us - COPY_CREDIT_US : 0;
    const time_us from = worker->copy_us > least ? worker->copy_us : least;
    if (worker->options.copy_rate > 0)
        worker->copy_us = from + chunk->bytes * 1000000u / worker->options.copy_rate;
}

static void make_chunks(struct job_worker *worker, time_us now_us)
{
    worker->held = false;
    while (has_work(worker)) {
        worker->held = now_us < worker->copy_us;
        if (worker->held)
            return;
        struct chunk *chunk = container_of(worker->free.next, struct chunk, link);
        if (chunk_fill(chunk, &worker->waiting, &worker->limits) == 0) {
            give_up_first(worker, now_us);
            continue;
        }
        list_remove(&chunk->link);
        if (!submit(worker, chunk, now_us))
            return;
        count_copies(worker, chunk, now_us);
    }
}

/* ---- time --------------------------------------------------------------------------------------
 */

static const struct chunk *oldest(const struct job_worker *worker)
{
    return list_empty(&worker->on_device)
               ? NULL
               : container_of(worker->on_device.next, struct chunk, link);
}

static void look_at_time(struct job_worker *worker, time_us now_us)
{
    const struct chunk *chunk = oldest(worker);
    struct error error = {.code = 0};
    if (!chunk)
        return;
    if (now_us - chunk->since_us >= worker->options.timeout_us) {
        error_set(&error, ERR_DEVICE,
                  "a batch of program %s was on the device for more than %" PRIu64
                  " ms (job-timeout)",
                  chunk->base.program->name, worker->options.timeout_us / 1000);
        fail(worker, chunk, &error, now_us);
    } else if (now_us - worker->asked_us >= ASK_US) {
        worker->asked_us = now_us;
        if (worker->api->query(worker->lanes, &error) == GPU_FAILED)
            fail(worker, NULL, &error, now_us);
    }
}

static void give_memory_back(struct job_worker *worker, time_us now_us)
{
    struct error error = {.code = 0};
    bool busy = !list_empty(&worker->on_device) || !list_empty(&worker->waiting);
    struct gpu_jobs_memory memory;
    if (busy) {
        worker->idle_us = 0;
        return;
    }
    worker->api->memory(worker->lanes, &memory);
    if (memory.held == 0) {
        worker->idle_us = 0;
    } else if (!worker->idle_us) {
        worker->idle_us = now_us;
    } else if (now_us - worker->idle_us >= worker->options.idle_release_us) {
        worker->idle_us = 0;
        if (worker->api->trim(worker->lanes, &error))
            fail(worker, NULL, &error, now_us);
    }
}

static void show_busy(struct job_worker *worker)
{
    const struct chunk *chunk = oldest(worker);
    atomic_store_explicit(&worker->busy_since_us, chunk ? chunk->since_us : 0,
                          memory_order_relaxed);
}

/* ---- turns -------------------------------------------------------------------------------------
 */

static void stop(struct job_worker *worker, time_us now_us)
{
    /* First the lanes: outputs are copied until they have stopped. */
    if (worker->opened)
        worker->api->stop(worker->lanes);
    worker->opened = false;
    end_all(worker, FINISH_CANCELLED, NULL, now_us);
    atomic_store_explicit(&worker->busy_since_us, 0, memory_order_relaxed);
    if (job_worker_state(worker) != JOB_WORKER_FAILED)
        set_state(worker, JOB_WORKER_STOPPED);
    completion_control(worker->completions, COMPLETION_STOPPED);
}

int job_worker_open(struct job_worker *worker)
{
    struct error error = {.code = 0};
    int rc = worker->api->start(worker->lanes, worker->wake_fd, &error);
    if (rc) {
        worker->failure = error;
        set_state(worker, JOB_WORKER_FAILED);
        completion_control(worker->completions, COMPLETION_FAILED);
    } else {
        worker->opened = true;
        set_state(worker, JOB_WORKER_READY);
        completion_control(worker->completions, COMPLETION_READY);
    }
    completion_flush(worker->completions);
    return rc;
}

bool job_worker_turn(struct job_worker *worker, time_us now_us)
{
    unsigned commands = atomic_exchange_explicit(&worker->commands, 0, memory_order_acquire);
    take_mail(worker, now_us);
    if (job_worker_state(worker) == JOB_WORKER_READY)
        take_chunks(worker, now_us);
    if (job_worker_state(worker) == JOB_WORKER_READY)
        look_at_time(worker, now_us);
    if (job_worker_state(worker) == JOB_WORKER_READY && !(commands & JOB_COMMAND_STOP))
        make_chunks(worker, now_us);
    if (job_worker_state(worker) == JOB_WORKER_READY)
        give_memory_back(worker, now_us);
    if (job_worker_state(worker) == JOB_WORKER_READY)
        show_busy(worker);
    if (commands & JOB_COMMAND_STOP)
        stop(worker, now_us);
    completion_flush(worker->completions);
    return !(commands & JOB_COMMAND_STOP);
}

static uint64_t until(time_us at_us, time_us now_us)
{
    return at_us > now_us ? at_us - now_us : 0;
}

uint64_t job_worker_wait_us(const struct job_worker *worker, time_us now_us)
{
    const struct chunk *chunk = oldest(worker);
    if (job_worker_state(worker) != JOB_WORKER_READY)
        return JOB_WORKER_FOREVER;
    uint64_t copy = worker->held ? until(worker->copy_us, now_us) : JOB_WORKER_FOREVER;
    if (chunk) {
        uint64_t late = until(chunk->since_us + worker->options.timeout_us, now_us);
        uint64_t ask = until(worker->asked_us + ASK_US, now_us);
        uint64_t least = late < ask ? late : ask;
        return copy < least ? copy : least;
    }
    if (copy != JOB_WORKER_FOREVER)
        return copy;
    if (worker->idle_us)
        return until(worker->idle_us + worker->options.idle_release_us, now_us);
    return JOB_WORKER_FOREVER;
}
