/* A worker's turns: mail, results, plans, news. All of it is the worker's thread's. */
#include <malloc.h>

#include "daemon/worker/worker_inner.h"

#define LATE_MIN_US 100000u /* a step is never called late before */
#define LATE_FACTOR 4

static void set_state(struct worker *worker, enum worker_state state)
{
    atomic_store_explicit(&worker->state, state, memory_order_release);
}

static void tell_lost(struct worker *worker, const struct error *error)
{
    worker->failure = *error;
    worker->failure.code = ERR_DEVICE;
    set_state(worker, WORKER_FAILED);
    completion_control(worker->completions, COMPLETION_FAILED);
}

/* The device is lost: whatever is here ends with a status that is worth a retry. */
static void fail(struct worker *worker, const struct error *error, time_us now_us)
{
    worker->late_us = 0;
    atomic_store_explicit(&worker->busy_since_us, 0, memory_order_relaxed);
    tell_lost(worker, error);
    sched_end_all(&worker->sched, FINISH_ERROR, &worker->failure, now_us);
}

/* Another model may have it without need. */
static void tell_lack(struct worker *worker)
{
    if (!atomic_load_explicit(&worker->shares, memory_order_relaxed))
        return;
    atomic_store_explicit(&worker->lacks, true, memory_order_release);
    completion_control(worker->completions, COMPLETION_MEMORY);
}

static int grow_slab(void *context, uint32_t group, uint32_t *ret_slab)
{
    struct worker *worker = context;
    struct error error = {.code = 0};
    int rc = rank_group_kv_grow(worker->group, group, ret_slab, &error);
    if (rc < 0 && rc != -ERR_DEVICE_MEMORY)
        worker->lost = error; /* no refusal: asking again would be in vain */
    else if (rc < 0)
        tell_lack(worker);
    return rc;
}

static void shrink_slab(void *context, uint32_t group, uint32_t slab)
{
    struct worker *worker = context;
    struct error error = {.code = 0};
    if (rank_group_kv_shrink(worker->group, group, slab, &error) < 0)
        worker->lost = error;
}

static void progressed(void *context, struct seq *seq)
{
    struct worker *worker = context;
    completion_visit(worker->completions, seq, 0);
}

static void ended(void *context, struct seq *seq)
{
    struct worker *worker = context;
    if (seq->mask != NULL)
        mask_crew_drop(worker->masks, seq->mask);
    seq->mask = NULL;
    completion_visit(worker->completions, seq, COMPLETION_ENDED);
}

static void ask_mask(void *context, struct seq *seq, int32_t token)
{
    struct worker *worker = context;
    worker->stats.masks_total++;
    mask_crew_ask(worker->masks, seq->mask, token);
}

static void ask_chunk(void *context, uint32_t group, uint32_t chunk, bool make)
{
    struct worker *worker = context;
    chunk_thread_ask(worker->chunks, group, chunk, make);
}

bool worker_mask_waits(const struct worker *worker)
{
    return mask_crew_waits(worker->masks);
}

bool worker_mask(struct worker *worker)
{
    return mask_crew_run(worker->masks);
}

struct sched_calls worker_calls(struct worker *worker)
{
    return (struct sched_calls){.context = worker,
                                .kv_grow = grow_slab,
                                .kv_shrink = shrink_slab,
                                .progressed = progressed,
                                .ended = ended,
                                .chunk = ask_chunk,
                                .mask = ask_mask};
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
    completion_visit(worker->completions, seq, COMPLETION_ENDED);
}

static void take_cancel(struct worker *worker, struct seq *seq, time_us now_us)
{
    unsigned flags = atomic_load_explicit(&seq->out_flags, memory_order_relaxed);
    if (flags & COMPLETION_ENDED) {
        completion_visit(worker->completions, seq, COMPLETION_CANCEL_SEEN); /* it was waited for */
        return;
    }
    completion_cancel_seen(seq);
    sched_cancel(&worker->sched, seq, seq->cancel_reason, now_us);
}

static void take_mail(struct worker *worker, time_us now_us)
{
    /* Cancels are taken out first: each one's sequence was sent before it, so it is known then. */
    struct mailbox_link *cancels = mailbox_drain(&worker->cancels);
    struct mailbox_link *in = mailbox_drain(&worker->in);
    while (in != NULL) {
        struct seq *seq = container_of(in, struct seq, in_link);
        in = in->next;
        worker->taken++;
        worker->taken_tokens += seq->prompt_len - seq->had;
        take_sequence(worker, seq, now_us);
    }
    while (cancels != NULL) {
        struct seq *seq = container_of(cancels, struct seq, cancel_link);
        cancels = cancels->next;
        take_cancel(worker, seq, now_us);
    }
}

/* Something is under way on the device. */
static bool in_flight(const struct worker *worker)
{
    return sched_in_flight(&worker->sched) > 0 || sched_samplings_in_flight(&worker->sched) > 0 ||
           sched_copies_in_flight(&worker->sched) > 0;
}

/* A step that is under way from now on is late after that. */
static void arm(struct worker *worker, time_us now_us)
{
    bool busy = in_flight(worker);
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
    uint32_t ranks = rank_group_profile(worker->group, step, profiles);
    for (uint32_t rank = 0; rank < ranks; rank++)
        trace_take(trace, rank, &profiles[rank]);
    if (!trace_full(trace))
        return;
    trace_close(trace);
    completion_control(worker->completions, COMPLETION_TRACE);
}

static void take_step(struct worker *worker, time_us now_us)
{
    struct gpu_results results;
    worker->api->results(worker->engine, worker->sched.step_done + 1, &results);
    trace_step(worker, results.step);
    sched_complete(&worker->sched, &results, now_us);
}

static void take_sampling(struct worker *worker, time_us now_us)
{
    struct gpu_results results;
    worker->api->sampling_results(worker->engine, worker->sched.sampling_done + 1, &results);
    sched_sampling_complete(&worker->sched, &results, now_us);
}

static bool take_copies(struct worker *worker, time_us now_us)
{
    bool any = false;
    for (enum gpu_way way = 0; way < GPU_WAYS && worker->sched.tier.node_max > 0; way++) {
        uint64_t copied = rank_group_copied(worker->group, way);
        for (; worker->sched.copies_done[way] < copied; any = true)
            sched_copies_complete(&worker->sched, way, now_us);
    }
    return any;
}

/* In the order in which they were submitted: what one samples the next may have read. */
static void take_results(struct worker *worker, time_us now_us)
{
    uint64_t completed = rank_group_completed(worker->group);
    uint64_t sampled = rank_group_sampled(worker->group);
    bool any = take_copies(worker, now_us);
    for (;; any = true) {
        bool sampling = sched_sampling_is_next(&worker->sched);
        if (sampling && worker->sched.sampling_done < sampled)
            take_sampling(worker, now_us);
        else if (!sampling && worker->sched.step_done < completed &&
                 sched_in_flight(&worker->sched) > 0)
            take_step(worker, now_us);
        else
            break;
    }
    if (!any)
        return;
    arm(worker, now_us);
    atomic_store_explicit(&worker->busy_since_us, worker->late_us != 0 ? now_us : 0,
                          memory_order_relaxed);
}

/* What a step in flight takes itself begins where the last of the weights are there. */
static void see_weights(struct worker *worker, time_us now_us)
{
    if (!atomic_load_explicit(&worker->weights_come, memory_order_relaxed) ||
        worker_progress(worker) < 1000)
        return;
    if (atomic_load_explicit(&worker->busy_since_us, memory_order_relaxed))
        atomic_store_explicit(&worker->busy_since_us, now_us, memory_order_relaxed);
    atomic_store_explicit(&worker->weights_come, false, memory_order_release);
}

static void ask_if_late(struct worker *worker, time_us now_us)
{
    if (worker->late_us == 0 || now_us < worker->late_us)
        return;
    struct error error = {.code = 0};
    worker->stats.late_queries_total++;
    if (rank_group_query(worker->group, &error) == GPU_FAILED)
        fail(worker, &error, now_us);
    else
        arm(worker, now_us);
}

/* False when no further plan is to be made in this turn. */
static bool submit(struct worker *worker, const struct gpu_plan *plan, time_us now_us)
{
    struct error error = {.code = 0};
    bool first = !in_flight(worker);
    /* Before the call: a driver that never comes back is seen by the watchdog. */
    if (first)
        atomic_store_explicit(&worker->busy_since_us, now_us, memory_order_relaxed);
    int rc = rank_group_submit(worker->group, plan, &error);
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
    tell_lack(worker);
    return first; /* else: when the step in flight has given its scratch back */
}

/* Everything whose mask is there, ahead of the step that it is to stand in. False when the device
 * failed. */
static bool sample(struct worker *worker, time_us now_us)
{
    const struct gpu_sampling *sampling;
    struct error error = {.code = 0};
    while ((sampling = sched_sampling(&worker->sched, now_us)) != NULL) {
        bool first = !in_flight(worker);
        if (first)
            atomic_store_explicit(&worker->busy_since_us, now_us, memory_order_relaxed);
        if (rank_group_sample(worker->group, sampling, &error) < 0) {
            fail(worker, &error, now_us);
            return false;
        }
        sched_sampling_submitted(&worker->sched);
        if (first)
            arm(worker, now_us);
    }
    return true;
}

/* What leaves, and what comes back: a call each way in a turn. False when the device failed. */
static bool copy(struct worker *worker, time_us now_us)
{
    struct error error = {.code = 0};
    for (enum gpu_way way = 0; way < GPU_WAYS; way++) {
        const struct gpu_copies *copies = sched_copies(&worker->sched, way, now_us);
        bool first = !in_flight(worker);
        if (copies == NULL)
            continue;
        if (first)
            atomic_store_explicit(&worker->busy_since_us, now_us, memory_order_relaxed);
        int rc = rank_group_copy(worker->group, copies, &error);
        sched_copies_submitted(&worker->sched, way, now_us); /* or forgotten, with all others */
        if (rc < 0) {
            fail(worker, &error, now_us);
            return false;
        }
        if (first)
            arm(worker, now_us);
    }
    return true;
}

static void plan_steps(struct worker *worker, time_us now_us)
{
    bool made;
    if (chunk_thread_told(worker->chunks, &made))
        sched_chunk_told(&worker->sched, made, now_us);
    if (!copy(worker, now_us))
        return;
    while (sample(worker, now_us) &&
           sched_in_flight(&worker->sched) < worker->sched.limits.depth) {
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
    bool released = sched_housekeep(&worker->sched, now_us);
    if (worker->lost.code == 0 && released) {
        (void)rank_group_trim(worker->group, &worker->lost);
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
    stats->host_blocks = sched->tier.used_places;
    stats->kv_blocks_used = stats->kv_blocks_cached = stats->kv_blocks_free = stats->kv_blocks_max =
        stats->kv_slabs = 0;
    for (uint32_t g = 0; g < sched->kv.group_count; g++) {
        const struct kv_group *group = &sched->kv.group[g];
        stats->kv_blocks_used += group->used - group->alone;
        stats->kv_blocks_cached += group->alone;
        stats->kv_blocks_free += (uint64_t)group->slabs * group->slab_blocks - group->used;
        stats->kv_blocks_max += (uint64_t)group->slabs_max * group->slab_blocks;
        stats->kv_slabs += group->slabs;
    }
}

static void show_room(struct worker *worker, time_us now_us)
{
    struct replica_room room = sched_room(&worker->sched, now_us);
    struct worker_shown *shown = &worker->shown;
    atomic_store_explicit(&shown->sequences, room.sequences, memory_order_relaxed);
    atomic_store_explicit(&shown->empty, room.empty, memory_order_relaxed);
    atomic_store_explicit(&shown->starves, room.starves, memory_order_relaxed);
    atomic_store_explicit(&shown->waiting, room.waiting, memory_order_relaxed);
    atomic_store_explicit(&shown->gave_way, room.gave_way, memory_order_relaxed);
    atomic_store_explicit(&shown->kv_tokens, room.kv_tokens, memory_order_relaxed);
    atomic_store_explicit(&shown->prefill_tokens, room.prefill_tokens, memory_order_relaxed);
    atomic_store_explicit(&shown->wait_us, room.wait_us, memory_order_relaxed);
    atomic_store_explicit(&shown->token_ns, room.token_ns, memory_order_relaxed);
    atomic_store_explicit(&shown->copy_ns, room.copy_ns, memory_order_relaxed);
    /* Last: who sees them as taken sees the room without them. */
    atomic_store_explicit(&shown->taken, worker->taken, memory_order_release);
    atomic_store_explicit(&shown->taken_tokens, worker->taken_tokens, memory_order_release);
}

static void give_stats(struct worker *worker)
{
    fill_gauges(worker);
    worker->snapshot = worker->stats;
    atomic_store_explicit(&worker->snapshot_there, true, memory_order_release);
    completion_control(worker->completions, COMPLETION_STATS);
}

static void stop(struct worker *worker, time_us now_us)
{
    struct error error = {.code = 0};
    sched_end_all(&worker->sched, FINISH_CANCELLED, NULL, now_us);
    /* A device that fails now, too: who falls asleep would leave it memory that nobody knows of. */
    if (worker->opened && rank_group_stop(worker->group, &error) &&
        worker_state(worker) != WORKER_FAILED)
        tell_lost(worker, worker->lost.code ? &worker->lost : &error);
    worker->opened = false;
    atomic_store_explicit(&worker->busy_since_us, 0, memory_order_relaxed);
    fill_gauges(worker);
    worker->snapshot = worker->stats; /* the last there are */
    atomic_store_explicit(&worker->snapshot_there, true, memory_order_release);
    if (worker_state(worker) != WORKER_FAILED)
        set_state(worker, WORKER_STOPPED);
    completion_control(worker->completions, COMPLETION_STOPPED);
}

int worker_open(struct worker *worker)
{
    struct error error = {.code = 0};
    int rc = rank_group_start(worker->group, worker->wake_fd, worker->threaded, &error);
    if (rc < 0) {
        worker->failure = error;
        set_state(worker, WORKER_FAILED);
        completion_control(worker->completions, COMPLETION_FAILED);
    } else {
        worker->opened = true;
        atomic_store_explicit(&worker->weights_come, worker_progress(worker) < 1000,
                              memory_order_relaxed);
        show_room(worker, 0);
        set_state(worker, WORKER_READY);
        completion_control(worker->completions, COMPLETION_READY);
    }
    completion_flush(worker->completions);
    return rc;
}

bool worker_turn(struct worker *worker, time_us now_us)
{
    unsigned commands = atomic_exchange_explicit(&worker->commands, 0, memory_order_acquire);
    take_mail(worker, now_us);
    see_weights(worker, now_us);
    if (worker_state(worker) == WORKER_READY)
        take_results(worker, now_us);
    if (worker_state(worker) == WORKER_READY)
        ask_if_late(worker, now_us);
    if (worker_state(worker) == WORKER_READY && !(commands & COMMAND_STOP)) {
        /* Else it has memory by now, and goes on. */
        if (commands & COMMAND_HAND_BACK && sched_room(&worker->sched, now_us).starves)
            sched_hand_back(&worker->sched, now_us);
        plan_steps(worker, now_us);
        if (commands & COMMAND_TRIM)
            sched_trim(&worker->sched);
        if (commands & COMMAND_YIELD)
            sched_give_back(&worker->sched);
    }
    if (worker_state(worker) == WORKER_READY)
        tend(worker, now_us);
    if (commands & COMMAND_STATS)
        give_stats(worker);
    if (commands & COMMAND_STOP)
        stop(worker, now_us);
    show_room(worker, now_us);
    completion_flush(worker->completions);
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
