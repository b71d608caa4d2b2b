#include "daemon/worker.h"

#include <assert.h>
#include <errno.h>
#include <malloc.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "daemon/group.h"

#define LATE_MIN_US 100000u /* a step is never called late before */
#define LATE_FACTOR 4

enum command { COMMAND_STATS = 1, COMMAND_TRIM = 2, COMMAND_STOP = 4 };

/* What the worker tells the loop about its room; single words, read without order between them. */
struct shown {
    atomic_uint sequences, empty;
    _Atomic uint64_t kv_tokens, prefill_tokens, wait_us;
    _Atomic uint64_t taken, taken_tokens; /* out of the mailbox, since start */
};

struct worker {
    const struct gpu_api *api;
    struct gpu_engine *engine;
    struct group *group;
    struct worker_options options;
    struct outbox *outbox;
    int wake_fd;
    pthread_t thread;
    bool has_thread, opened;
    bool threaded; /* written before there is a thread */

    struct queue in, cancels;
    atomic_uint commands;
    atomic_uint state; /* enum worker_state */
    struct shown shown;
    uint64_t sent, sent_tokens;   /* loop: into the mailbox, since start */
    uint64_t taken, taken_tokens; /* worker: the same, out of it */

    _Atomic time_us
        busy_since_us;    /* oldest step in flight, or the submission under way; 0 = none */
    struct error failure; /* written before state becomes WORKER_FAILED */

    /* The worker's own. */
    struct sched sched;
    struct stats_worker stats;
    struct stats_worker snapshot; /* the loop's once OUTBOX_STATS is told */
    atomic_bool snapshot_there;
    time_us late_us;   /* when a step in flight counts as late; 0 = none is in flight */
    struct error lost; /* how a call from within the scheduler found the device lost; code 0: not */
};

/* ---- the loop's side --------------------------------------------------------------------------
 */

static int grow_slab(void *context, uint32_t group, uint32_t *ret_slab);
static void shrink_slab(void *context, uint32_t group, uint32_t slab);
static void progressed(void *context, struct seq *seq);
static void ended(void *context, struct seq *seq);

int worker_create(const struct gpu_api *api, struct gpu_engine *engine,
                  const struct gpu_model *model, const struct gpu_limits *limits,
                  const struct worker_options *options, struct outbox *outbox,
                  struct worker **ret_worker, struct error *error)
{
    struct worker *worker = calloc(1, sizeof(*worker));
    if (worker == NULL)
        return error_set(error, ERR_NO_MEMORY, "no memory for a worker");
    worker->api = api;
    worker->engine = engine;
    worker->options = *options;
    worker->outbox = outbox;
    atomic_init(&worker->state, WORKER_LOADING);
    queue_init(&worker->in);
    queue_init(&worker->cancels);
    worker->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    struct sched_calls calls = {.context = worker,
                                .kv_grow = grow_slab,
                                .kv_shrink = shrink_slab,
                                .progressed = progressed,
                                .ended = ended};
    int rc = worker->wake_fd < 0 ? error_set(error, ERR_IO, "eventfd: %s", strerror(errno))
                                 : sched_init(&worker->sched, model, limits, &options->sched,
                                              &calls, &worker->stats, error);
    if (rc == 0)
        rc = group_make(api, engine, options->ranks ? options->ranks : 1, &worker->group, error);
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
    if (worker->engine != NULL) {
        if (worker->opened)
            group_stop(worker->group);
        worker->api->close(worker->engine);
    }
    group_free(worker->group);
    sched_destroy(&worker->sched);
    queue_destroy(&worker->in);
    queue_destroy(&worker->cancels);
    /* Last: the device writes to it until it is closed. */
    if (worker->wake_fd >= 0)
        close(worker->wake_fd);
    free(worker);
}

void worker_send(struct worker *worker, struct seq *seq)
{
    worker->sent++;
    worker->sent_tokens += seq->prompt_len;
    queue_push(&worker->in, &seq->in_link);
}

void worker_cancel(struct worker *worker, struct seq *seq)
{
    queue_push(&worker->cancels, &seq->cancel_link);
}

void worker_wake(struct worker *worker)
{
    /* Fails only when the counter is full, and then the worker is being woken anyway. */
    ssize_t written = write(worker->wake_fd, &(uint64_t){1}, sizeof(uint64_t));
    (void)written;
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

void worker_stop(struct worker *worker)
{
    command(worker, COMMAND_STOP);
}

void worker_join(struct worker *worker)
{
    if (worker->has_thread)
        pthread_join(worker->thread, NULL);
    worker->has_thread = false;
}

static uint64_t less(uint64_t value, uint64_t by)
{
    return value > by ? value - by : 0;
}

struct place_room worker_room(const struct worker *worker)
{
    const struct shown *shown = &worker->shown;
    /* First what was taken: the room read after it counts at least that. */
    uint64_t way = worker->sent - atomic_load_explicit(&shown->taken, memory_order_acquire);
    uint64_t way_tokens =
        worker->sent_tokens - atomic_load_explicit(&shown->taken_tokens, memory_order_acquire);
    struct place_room room = {.ready = worker_state(worker) == WORKER_READY};
    room.sequences = (uint32_t)less(atomic_load(&shown->sequences), way);
    room.kv_tokens = less(atomic_load(&shown->kv_tokens), way_tokens);
    room.prefill_tokens = less(atomic_load(&shown->prefill_tokens), way_tokens);
    room.wait_us = atomic_load(&shown->wait_us);
    room.empty = way == 0 && atomic_load(&shown->empty);
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
    time_us since = atomic_load_explicit(&worker->busy_since_us, memory_order_relaxed);
    if (worker_state(worker) == WORKER_FAILED)
        return false;
    return since == 0 || now_us < since || now_us - since <= worker->options.step_timeout_us;
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

/* ---- the worker's side ------------------------------------------------------------------------
 */

static void set_state(struct worker *worker, enum worker_state state)
{
    atomic_store_explicit(&worker->state, state, memory_order_release);
}

/* The device is lost: whatever is here ends with a status that is worth a retry. */
static void fail(struct worker *worker, const struct error *error, time_us now_us)
{
    worker->failure = *error;
    worker->failure.code = ERR_DEVICE;
    worker->late_us = 0;
    atomic_store_explicit(&worker->busy_since_us, 0, memory_order_relaxed);
    set_state(worker, WORKER_FAILED);
    sched_end_all(&worker->sched, FINISH_ERROR, &worker->failure, now_us);
    outbox_control(worker->outbox, OUTBOX_FAILED);
}

static int grow_slab(void *context, uint32_t group, uint32_t *ret_slab)
{
    struct worker *worker = context;
    struct error error = {.code = 0};
    int rc = group_kv_grow(worker->group, group, ret_slab, &error);
    if (rc < 0 && rc != -ERR_DEVICE_MEMORY)
        worker->lost = error; /* no refusal: asking again would be in vain */
    return rc;
}

static void shrink_slab(void *context, uint32_t group, uint32_t slab)
{
    struct worker *worker = context;
    struct error error = {.code = 0};
    if (group_kv_shrink(worker->group, group, slab, &error) < 0)
        worker->lost = error;
}

static void progressed(void *context, struct seq *seq)
{
    struct worker *worker = context;
    outbox_visit(worker->outbox, seq, 0);
}

static void ended(void *context, struct seq *seq)
{
    struct worker *worker = context;
    outbox_visit(worker->outbox, seq, OUTBOX_ENDED);
}

static void take_sequence(struct worker *worker, struct seq *seq, time_us now_us)
{
    if (worker_state(worker) == WORKER_READY) {
        sched_add(&worker->sched, seq, now_us);
        return;
    }
    /* Sent before the loop knew that the device has failed. */
    *seq->failure = worker->failure;
    seq->finish = FINISH_ERROR;
    seq->stamps.ended_us = now_us;
    outbox_visit(worker->outbox, seq, OUTBOX_ENDED);
}

static void take_cancel(struct worker *worker, struct seq *seq, time_us now_us)
{
    unsigned flags = atomic_load_explicit(&seq->out_flags, memory_order_relaxed);
    if (flags & OUTBOX_ENDED) {
        outbox_visit(worker->outbox, seq, OUTBOX_CANCEL_SEEN); /* it was waited for */
        return;
    }
    outbox_cancel_seen(seq);
    sched_cancel(&worker->sched, seq, seq->cancel_reason, now_us);
}

static void take_mail(struct worker *worker, time_us now_us)
{
    /* Cancels are taken out first: each one's sequence was sent before it, so it is known then. */
    struct queue_link *cancels = queue_drain(&worker->cancels);
    struct queue_link *in = queue_drain(&worker->in);
    while (in != NULL) {
        struct seq *seq = container_of(in, struct seq, in_link);
        in = in->next;
        worker->taken++;
        worker->taken_tokens += seq->prompt_len;
        take_sequence(worker, seq, now_us);
    }
    while (cancels != NULL) {
        struct seq *seq = container_of(cancels, struct seq, cancel_link);
        cancels = cancels->next;
        take_cancel(worker, seq, now_us);
    }
}

/* A step that is under way from now on is late after that. */
static void arm(struct worker *worker, time_us now_us)
{
    bool busy = sched_in_flight(&worker->sched) > 0;
    double estimate = LATE_FACTOR * sched_estimate_us(&worker->sched);
    worker->late_us =
        busy ? now_us + (estimate > LATE_MIN_US ? (uint64_t)estimate : LATE_MIN_US) : 0;
}

/* While the profile lasts. */
static void trace_step(struct worker *worker, uint64_t step)
{
    struct trace *trace = worker->options.trace;
    if (!trace || trace_full(trace))
        return;
    struct gpu_profile profiles[GPU_DEVICES_MAX];
    uint32_t ranks = group_profile(worker->group, step, profiles);
    for (uint32_t rank = 0; rank < ranks; rank++)
        trace_take(trace, rank, &profiles[rank]);
    if (!trace_full(trace))
        return;
    trace_close(trace);
    outbox_control(worker->outbox, OUTBOX_TRACE);
}

static void take_results(struct worker *worker, time_us now_us)
{
    uint64_t completed = group_completed(worker->group);
    bool any = false;
    while (worker->sched.step_done < completed && sched_in_flight(&worker->sched) > 0) {
        struct gpu_results results;
        worker->api->results(worker->engine, worker->sched.step_done + 1, &results);
        trace_step(worker, results.step);
        sched_complete(&worker->sched, &results, now_us);
        any = true;
    }
    if (!any)
        return;
    arm(worker, now_us);
    atomic_store_explicit(&worker->busy_since_us, worker->late_us != 0 ? now_us : 0,
                          memory_order_relaxed);
}

static void ask_if_late(struct worker *worker, time_us now_us)
{
    if (worker->late_us == 0 || now_us < worker->late_us)
        return;
    struct error error = {.code = 0};
    worker->stats.late_queries_total++;
    if (group_query(worker->group, &error) == GPU_FAILED)
        fail(worker, &error, now_us);
    else
        arm(worker, now_us);
}

/* False when no further plan is to be made in this turn. */
static bool submit(struct worker *worker, const struct gpu_plan *plan, time_us now_us)
{
    struct error error = {.code = 0};
    bool first = sched_in_flight(&worker->sched) == 0;
    /* Before the call: a driver that never comes back is seen by the watchdog. */
    if (first)
        atomic_store_explicit(&worker->busy_since_us, now_us, memory_order_relaxed);
    int rc = group_submit(worker->group, plan, &error);
    if (rc == 0) {
        sched_submitted(&worker->sched, now_us);
        if (first)
            arm(worker, now_us);
        return true;
    }
    if (first)
        atomic_store_explicit(&worker->busy_since_us, 0, memory_order_relaxed);
    if (rc != -ERR_DEVICE_MEMORY) {
        sched_dropped(&worker->sched);
        fail(worker, &error, now_us);
        return false;
    }
    sched_refused(&worker->sched, now_us);
    return first; /* else: when the step in flight has given its scratch back */
}

static void plan_steps(struct worker *worker, time_us now_us)
{
    while (sched_in_flight(&worker->sched) < worker->sched.limits.depth) {
        const struct gpu_plan *plan = sched_plan(&worker->sched, now_us);
        if (worker->lost.code != 0) {
            if (plan != NULL)
                sched_dropped(&worker->sched);
            fail(worker, &worker->lost, now_us);
            return;
        }
        if (plan == NULL || !submit(worker, plan, now_us))
            return;
    }
}

static void tend(struct worker *worker, time_us now_us)
{
    bool released = sched_tend(&worker->sched, now_us);
    if (worker->lost.code == 0 && released) {
        (void)group_trim(worker->group, &worker->lost);
        malloc_trim(0); /* what requests leave in holes of the heap goes back as their KV does */
    }
    if (worker->lost.code != 0)
        fail(worker, &worker->lost, now_us);
}

static void fill_gauges(struct worker *worker)
{
    const struct sched *sched = &worker->sched;
    struct stats_worker *stats = &worker->stats;
    stats->running = sched->slot_count;
    stats->starting = sched->waiting_count;
    list_each(link, &sched->preempted) stats->starting++;
    list_each(link, &sched->last) stats->running++;
    stats->steps_in_flight = sched_in_flight(sched);
    stats->kv_blocks_used = stats->kv_blocks_free = stats->kv_blocks_max = stats->kv_slabs = 0;
    for (uint32_t g = 0; g < sched->kv.group_count; g++) {
        const struct kv_group *group = &sched->kv.group[g];
        stats->kv_blocks_used += group->used;
        stats->kv_blocks_free += (uint64_t)group->slabs * group->slab_blocks - group->used;
        stats->kv_blocks_max += (uint64_t)group->slabs_max * group->slab_blocks;
        stats->kv_slabs += group->slabs;
    }
}

static void show_room(struct worker *worker, time_us now_us)
{
    struct place_room room = sched_room(&worker->sched, now_us);
    struct shown *shown = &worker->shown;
    atomic_store_explicit(&shown->sequences, room.sequences, memory_order_relaxed);
    atomic_store_explicit(&shown->empty, room.empty, memory_order_relaxed);
    atomic_store_explicit(&shown->kv_tokens, room.kv_tokens, memory_order_relaxed);
    atomic_store_explicit(&shown->prefill_tokens, room.prefill_tokens, memory_order_relaxed);
    atomic_store_explicit(&shown->wait_us, room.wait_us, memory_order_relaxed);
    /* Last: who sees them as taken sees the room without them. */
    atomic_store_explicit(&shown->taken, worker->taken, memory_order_release);
    atomic_store_explicit(&shown->taken_tokens, worker->taken_tokens, memory_order_release);
}

static void give_stats(struct worker *worker)
{
    fill_gauges(worker);
    worker->snapshot = worker->stats;
    atomic_store_explicit(&worker->snapshot_there, true, memory_order_release);
    outbox_control(worker->outbox, OUTBOX_STATS);
}

static void stop(struct worker *worker, time_us now_us)
{
    sched_end_all(&worker->sched, FINISH_CANCELLED, NULL, now_us);
    if (worker->opened)
        group_stop(worker->group);
    worker->opened = false;
    atomic_store_explicit(&worker->busy_since_us, 0, memory_order_relaxed);
    if (worker_state(worker) != WORKER_FAILED)
        set_state(worker, WORKER_STOPPED);
    outbox_control(worker->outbox, OUTBOX_STOPPED);
}

int worker_open(struct worker *worker)
{
    struct error error = {.code = 0};
    int rc = group_start(worker->group, worker->wake_fd, worker->threaded, &error);
    if (rc < 0) {
        worker->failure = error;
        set_state(worker, WORKER_FAILED);
        outbox_control(worker->outbox, OUTBOX_FAILED);
    } else {
        worker->opened = true;
        show_room(worker, 0);
        set_state(worker, WORKER_READY);
        outbox_control(worker->outbox, OUTBOX_READY);
    }
    outbox_flush(worker->outbox);
    return rc;
}

bool worker_turn(struct worker *worker, time_us now_us)
{
    unsigned commands = atomic_exchange_explicit(&worker->commands, 0, memory_order_acquire);
    take_mail(worker, now_us);
    if (worker_state(worker) == WORKER_READY)
        take_results(worker, now_us);
    if (worker_state(worker) == WORKER_READY)
        ask_if_late(worker, now_us);
    if (worker_state(worker) == WORKER_READY && !(commands & COMMAND_STOP)) {
        plan_steps(worker, now_us);
        if (commands & COMMAND_TRIM)
            sched_trim(&worker->sched);
    }
    if (worker_state(worker) == WORKER_READY)
        tend(worker, now_us);
    if (commands & COMMAND_STATS)
        give_stats(worker);
    if (commands & COMMAND_STOP)
        stop(worker, now_us);
    show_room(worker, now_us);
    outbox_flush(worker->outbox);
    return !(commands & COMMAND_STOP);
}

uint64_t worker_wait_us(const struct worker *worker, time_us now_us)
{
    if (worker_state(worker) != WORKER_READY)
        return WORKER_FOREVER;
    time_us due = sched_due_us(&worker->sched);
    if (worker->late_us != 0 && worker->late_us < due)
        due = worker->late_us;
    if (due == SCHED_NEVER)
        return WORKER_FOREVER;
    return due > now_us ? due - now_us : 0;
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
    int rc = pthread_create(&worker->thread, NULL, thread_main, worker);
    if (rc != 0)
        return error_set(error, ERR_INTERNAL, "cannot start a worker thread: %s", strerror(rc));
    worker->has_thread = true;
    return 0;
}
