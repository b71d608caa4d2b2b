/* The loop's side of a worker, and its thread. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "daemon/worker/worker_inner.h"

/* ---- the loop's side --------------------------------------------------------------------------
 */

/* Any thread. */
static void mask_ready(void *context)
{
    worker_wake(context);
}

/* Any thread. */
static void chunk_ready(void *context)
{
    worker_wake(context);
}

int worker_create(const struct gpu_api *api, struct gpu_engine *engine,
                  const struct gpu_model *model, const struct gpu_limits *limits,
                  const struct worker_options *options, struct completion_queue *completions,
                  struct worker **ret_worker, struct error *error)
{
    struct worker *worker = calloc(1, sizeof(*worker));
    if (worker == NULL)
        return error_set(error, ERR_NO_MEMORY, "no memory for a worker");
    worker->api = api;
    worker->engine = engine;
    worker->options = *options;
    worker->completions = completions;
    atomic_init(&worker->state, WORKER_LOADING);
    mailbox_init(&worker->in);
    mailbox_init(&worker->cancels);
    worker->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    const struct sched_calls calls = worker_calls(worker);
    int rc = worker->wake_fd < 0 ? error_set(error, ERR_IO, "eventfd: %s", strerror(errno))
                                 : sched_init(&worker->sched, model, limits, &options->sched,
                                              &calls, &worker->stats, error);
    if (rc == 0)
        rc = mask_crew_make(mask_ready, worker, &worker->masks, error);
    if (rc == 0)
        rc = rank_group_make(api, engine, options->ranks ? options->ranks : 1, &worker->group,
                             error);
    if (rc == 0)
        rc = chunk_thread_make(api, engine, model, chunk_ready, worker, &worker->chunks, error);
    if (rc < 0) {
        worker->engine = NULL; /* stays the caller's */
        worker_destroy(worker);
        return rc;
    }
    *ret_worker = worker;
    return 0;
}

void worker_destroy(struct worker *worker)
{
    if (worker == NULL)
        return;
    chunk_thread_free(worker->chunks);
    if (worker->engine != NULL) {
        struct error ignored; /* nobody is left whom it could be told */
        if (worker->opened)
            (void)rank_group_stop(worker->group, &ignored);
        worker->api->close(worker->engine);
    }
    rank_group_free(worker->group);
    mask_crew_free(worker->masks);
    sched_destroy(&worker->sched);
    mailbox_destroy(&worker->in);
    mailbox_destroy(&worker->cancels);
    /* Last: the device writes to it until it is closed, and one that failed at any time; not where
     * the model was not loaded for what is no fault of the device. */
    const int code = worker_state(worker) == WORKER_FAILED ? worker->failure.code : 0;
    if (worker->wake_fd >= 0 && code != ERR_DEVICE)
        close(worker->wake_fd);
    free(worker);
}

void worker_send(struct worker *worker, struct seq *seq)
{
    worker->sent++;
    worker->sent_tokens += seq->prompt_len - seq->had;
    mailbox_push(&worker->in, &seq->in_link);
}

struct prefix_hint *worker_hint(struct worker *worker)
{
    return &worker->sched.cache.hint;
}

struct prefix_wants *worker_wants(struct worker *worker)
{
    return &worker->sched.wants[SCHED_WAITS_TO_COME];
}

uint32_t worker_cached(const struct worker *worker, const struct prefix_key *keys, uint32_t count,
                       bool expected, uint32_t *ret_host)
{
    const struct sched *sched = &worker->sched;
    uint64_t token_ns = atomic_load(&worker->shown.token_ns);
    uint64_t copy_ns = atomic_load(&worker->shown.copy_ns);
    uint32_t here = prefix_hint_count(&sched->cache.hint, keys, count, expected);
    bool pays = token_ns == 0 || copy_ns < token_ns;
    *ret_host = pays ? prefix_hint_count_behind(&sched->tier.hint, keys, here, count) : 0;
    return here + *ret_host;
}

void worker_cancel(struct worker *worker, struct seq *seq)
{
    mailbox_push(&worker->cancels, &seq->cancel_link);
}

void worker_wake(struct worker *worker)
{
    /* Fails else only when the counter is full, and then the worker is being woken anyway. */
    while (write(worker->wake_fd, &(uint64_t){1}, sizeof(uint64_t)) < 0 && errno == EINTR)
        continue;
}

static void command(struct worker *worker, unsigned bit)
{
    atomic_fetch_or_explicit(&worker->commands, bit, memory_order_release);
    worker_wake(worker);
}

void worker_ask_stats(struct worker *worker)
{
    atomic_store_explicit(&worker->snapshot_there, false, memory_order_relaxed);
    command(worker, COMMAND_STATS);
}

const struct stats_worker *worker_snapshot(const struct worker *worker)
{
    bool there = atomic_load_explicit(&worker->snapshot_there, memory_order_acquire);
    return there ? &worker->snapshot : NULL;
}

void worker_trim(struct worker *worker)
{
    command(worker, COMMAND_TRIM);
}

void worker_share(struct worker *worker)
{
    atomic_store_explicit(&worker->shares, true, memory_order_relaxed);
}

bool worker_lacks(struct worker *worker)
{
    return atomic_exchange_explicit(&worker->lacks, false, memory_order_acquire);
}

void worker_yield(struct worker *worker)
{
    command(worker, COMMAND_YIELD);
}

void worker_hand_back(struct worker *worker)
{
    command(worker, COMMAND_HAND_BACK);
}

void worker_stop(struct worker *worker)
{
    command(worker, COMMAND_STOP);
}

void worker_join(struct worker *worker)
{
    if (worker->has_thread)
        pthread_join(worker->thread, NULL);
    worker->has_thread = false;
    mask_crew_stop(worker->masks);
    chunk_thread_stop(worker->chunks);
}

static uint64_t less(uint64_t value, uint64_t by)
{
    return value > by ? value - by : 0;
}

struct replica_room worker_room(const struct worker *worker)
{
    const struct worker_shown *shown = &worker->shown;
    /* First what was taken: the room read after it counts at least that. */
    uint64_t way = worker->sent - atomic_load_explicit(&shown->taken, memory_order_acquire);
    uint64_t way_tokens =
        worker->sent_tokens - atomic_load_explicit(&shown->taken_tokens, memory_order_acquire);
    struct replica_room room = {.ready = worker_state(worker) == WORKER_READY};
    room.sequences = (uint32_t)less(atomic_load(&shown->sequences), way);
    room.kv_tokens = less(atomic_load(&shown->kv_tokens), way_tokens);
    room.prefill_tokens = less(atomic_load(&shown->prefill_tokens), way_tokens);
    room.waiting = (uint32_t)(atomic_load(&shown->waiting) + way);
    room.gave_way = atomic_load(&shown->gave_way);
    room.wait_us = atomic_load(&shown->wait_us);
    room.token_ns = atomic_load(&shown->token_ns);
    room.copy_ns = atomic_load(&shown->copy_ns);
    room.empty = way == 0 && atomic_load(&shown->empty);
    room.starves = atomic_load(&shown->starves);
    return room;
}

/* ---- any thread -------------------------------------------------------------------------------
 */

enum worker_state worker_state(const struct worker *worker)
{
    return (enum worker_state)atomic_load_explicit(&worker->state, memory_order_acquire);
}

bool worker_healthy(const struct worker *worker, time_us now_us)
{
    uint64_t most = worker->options.step_timeout_us;
    if (atomic_load_explicit(&worker->weights_come, memory_order_acquire) &&
        most < WORKER_WEIGHTS_US)
        most = WORKER_WEIGHTS_US;
    time_us since = atomic_load_explicit(&worker->busy_since_us, memory_order_relaxed);
    if (worker_state(worker) == WORKER_FAILED)
        return false;
    return since == 0 || now_us < since || now_us - since <= most;
}

uint32_t worker_progress(const struct worker *worker)
{
    return worker->api->progress(worker->engine);
}

const struct error *worker_failure(const struct worker *worker)
{
    return &worker->failure;
}

int worker_fd(const struct worker *worker)
{
    return worker->wake_fd;
}

/* ---- the thread -------------------------------------------------------------------------------
 */

static void wait_for_work(struct worker *worker)
{
    uint64_t wait_us = worker_wait_us(worker, clock_now_us()), drained;
    struct pollfd poll_fd = {.fd = worker->wake_fd, .events = POLLIN};
    struct timespec timeout = {.tv_sec = (time_t)(wait_us / 1000000u),
                               .tv_nsec = (long)(wait_us % 1000000u) * 1000};
    int ready = ppoll(&poll_fd, 1, wait_us == WORKER_FOREVER ? NULL : &timeout, NULL);
    if (ready > 0) {
        ssize_t got = read(worker->wake_fd, &drained, sizeof(drained));
        (void)got; /* it was readable, and nobody else reads it */
    }
}

static void *thread_main(void *argument)
{
    struct worker *worker = argument;
    /* When loading fails the turns go on: mail is still answered, until the loop says stop. */
    (void)worker_open(worker);
    /* After the driver has made its own threads here, which inherit the name that there is. */
    (void)pthread_setname_np(pthread_self(), "sluice-worker");
    do
        wait_for_work(worker);
    while (worker_turn(worker, clock_now_us()));
    return NULL;
}

int worker_start(struct worker *worker, struct error *error)
{
    worker->threaded = true;
    mask_crew_threads(worker->masks, MASK_CREW_THREADS);
    chunk_thread_threaded(worker->chunks, "");
    int rc = pthread_create(&worker->thread, NULL, thread_main, worker);
    if (rc != 0)
        return error_set(error, ERR_INTERNAL, "cannot start a worker thread: %s", strerror(rc));
    worker->has_thread = true;
    return 0;
}
