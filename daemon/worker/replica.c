#include "daemon/worker/replica.h"

#include <stdlib.h>

#define CHUNK_EVERY 8u        /* steps: what a long prompt may be made to wait */
#define KV_STALL_US 30000000u /* others may hold the device's memory for so long */

static struct replica_worker *of(const struct replica *replica)
{
    return (struct replica_worker *)(uintptr_t)container_of(replica, struct replica_worker, base);
}

static struct replica_room room(const struct replica *replica)
{
    const struct worker *worker = of(replica)->worker;
    return worker ? worker_room(worker) : (struct replica_room){.ready = false};
}

static void send(struct replica *replica, struct seq *seq)
{
    worker_send(of(replica)->worker, seq);
}

static void cancel(struct replica *replica, struct seq *seq)
{
    worker_cancel(of(replica)->worker, seq);
}

static uint32_t cached(const struct replica *replica, const struct prefix_key *keys, uint32_t count,
                       bool expected, uint32_t *ret_host)
{
    const struct worker *worker = of(replica)->worker;
    *ret_host = 0;
    return worker ? worker_cached(worker, keys, count, expected, ret_host) : 0;
}

static void expect(struct replica *replica, const struct prefix_key *keys, uint32_t count)
{
    prefix_hint_expect(worker_hint(of(replica)->worker), keys, count);
}

static bool want(struct replica *replica, const struct prefix_key *keys, uint32_t count)
{
    struct worker *worker = of(replica)->worker;
    return worker && prefix_wants_add(worker_wants(worker), keys, count);
}

static void unwant(struct replica *replica, const struct prefix_key *keys, uint32_t count)
{
    struct worker *worker = of(replica)->worker;
    if (worker)
        prefix_wants_drop(worker_wants(worker), keys, count);
}

static void wake(struct replica *replica)
{
    if (of(replica)->worker)
        worker_wake(of(replica)->worker);
}

static const struct stats_worker *own_stats(struct replica_worker *self)
{
    const struct stats_worker *fresh =
        self->asked && self->worker ? worker_snapshot(self->worker) : NULL;
    if (fresh) {
        self->last = *fresh;
        if (self->slept)
            stats_worker_merge(&self->last, &self->before);
        self->asked = false;
    }
    return &self->last;
}

static const struct stats_worker *stats(struct replica *replica)
{
    struct replica_worker *self = of(replica);
    const struct stats_worker *own = own_stats(self);
    if (!self->elder)
        return own;
    self->told = *own;
    stats_worker_merge(&self->told, own_stats(self->elder));
    return &self->told;
}

/* The copy is the worker's until it is told, so one question is on the way at a time. */
static void ask_own_stats(struct replica_worker *self)
{
    (void)own_stats(self); /* an answer that nobody stayed for is no answer to this question */
    bool there = self->worker && worker_state(self->worker) != WORKER_LOADING;
    if (there && !self->asked)
        worker_ask_stats(self->worker);
    self->asked = there;
}

static void ask_stats(struct replica *replica)
{
    ask_own_stats(of(replica));
    if (of(replica)->elder)
        ask_own_stats(of(replica)->elder);
}

static bool stats_there(struct replica *replica)
{
    const struct replica_worker *self = of(replica);
    (void)stats(replica);
    return !self->asked && !(self->elder && self->elder->asked);
}

static bool lacks(struct replica *replica)
{
    return of(replica)->worker && worker_lacks(of(replica)->worker);
}

static void yield(struct replica *replica)
{
    if (of(replica)->worker)
        worker_yield(of(replica)->worker);
}

static void hand_back(struct replica *replica)
{
    if (of(replica)->worker)
        worker_hand_back(of(replica)->worker);
}

static void own_memory(const struct replica_worker *self, uint32_t rank,
                       struct gpu_memory *ret_memory)
{
    *ret_memory = (struct gpu_memory){0};
    if (self->worker)
        self->gpu->memory(self->engine, rank, ret_memory);
    if (self->kept && rank == 0)
        self->gpu->kept_memory(self->kept, &ret_memory->kept_pinned, &ret_memory->kept_mapped);
}

static void memory(const struct replica *replica, uint32_t rank, struct gpu_memory *ret_memory)
{
    const struct replica_worker *self = of(replica);
    const struct replica_worker *other = self->elder ? self->elder : self->beside;
    own_memory(self, rank, ret_memory);
    if (!other)
        return;
    struct gpu_memory more;
    own_memory(other, rank, &more);
    replica_add_memory(ret_memory, &more);
}

static void add_counters(struct gpu_counters *sum, const struct gpu_counters *more)
{
    sum->steps += more->steps;
    sum->graph_steps += more->graph_steps;
    sum->captures += more->captures;
    sum->allocations += more->allocations;
    sum->synchronizes += more->synchronizes;
    sum->pageable_copies += more->pageable_copies;
    sum->samplings += more->samplings;
    sum->blocks_out += more->blocks_out;
    sum->blocks_in += more->blocks_in;
    sum->steps_ahead += more->steps_ahead;
}

/* Of the engine that it has. */
static struct gpu_counters engine_counters(const struct replica_worker *self)
{
    struct gpu_counters sum = {0};
    for (uint32_t rank = 0; rank < self->base.rank_count; rank++) {
        struct gpu_counters one = {0};
        self->gpu->counters(self->engine, rank, &one);
        if (rank == 0)
            sum = one; /* steps are those of the group */
        else {
            sum.allocations += one.allocations;
            sum.synchronizes += one.synchronizes;
            sum.pageable_copies += one.pageable_copies;
        }
    }
    return sum;
}

static struct gpu_counters own_counters(const struct replica_worker *self)
{
    struct gpu_counters sum = self->worker ? engine_counters(self) : (struct gpu_counters){0};
    add_counters(&sum, &self->counters);
    return sum;
}

static void counters(const struct replica *replica, struct gpu_counters *ret_counters)
{
    const struct replica_worker *self = of(replica);
    *ret_counters = own_counters(self);
    if (self->elder) {
        const struct gpu_counters more = own_counters(self->elder);
        add_counters(ret_counters, &more);
    }
}

static int adapter_load(struct replica *replica, uint32_t number, const struct gpu_adapter *adapter,
                        struct error *error)
{
    return of(replica)->gpu->adapter_load(of(replica)->engine, number, adapter, error);
}

static uint32_t progress(const struct replica *replica)
{
    return of(replica)->worker ? worker_progress(of(replica)->worker) : 1000;
}

static bool healthy(const struct replica *replica, time_us now_us)
{
    const struct replica_worker *self = of(replica);
    if (!self->worker || (self->waking && worker_state(self->worker) == WORKER_FAILED &&
                          worker_failure(self->worker)->code != ERR_DEVICE))
        return true;
    return worker_healthy(self->worker, now_us);
}

static const struct replica_api replica_api = {.room = room,
                                               .send = send,
                                               .cancel = cancel,
                                               .cached = cached,
                                               .expect = expect,
                                               .want = want,
                                               .unwant = unwant,
                                               .wake = wake,
                                               .ask_stats = ask_stats,
                                               .stats_there = stats_there,
                                               .stats = stats,
                                               .lacks = lacks,
                                               .yield = yield,
                                               .hand_back = hand_back,
                                               .memory = memory,
                                               .counters = counters,
                                               .adapter_load = adapter_load,
                                               .progress = progress,
                                               .healthy = healthy};

int replica_worker_make(const struct replica_worker *replica, struct gpu_engine *engine,
                        const struct gpu_model *model, const struct gpu_limits *limits,
                        const struct options *options, struct completion_queue *completions,
                        struct worker **ret_worker, struct error *error)
{
    const struct worker_options worker_options = {
        .sched = {.ttft_target_us = options->ttft_target,
                  .itl_target_us = options->itl_target,
                  .chunk_every = CHUNK_EVERY,
                  /* Giving back takes its time, too: it is done within the time that was asked. */
                  .kv_idle_release_us = options->kv_idle_release - options->kv_idle_release / 10,
                  .prefix_cache = options->prefix_cache,
                  .cache_idle_release_us = options->cache_idle_release,
                  .drafts_max =
                      options->speculate != SPECULATE_NO ? (uint32_t)options->speculate_tokens : 0,
                  .draft_model = options->speculate == SPECULATE_DRAFT,
                  .stall_us = KV_STALL_US},
        .step_timeout_us = options->step_timeout,
        .ranks = model->ranks,
        .trace = replica->trace,
    };
    return worker_create(replica->gpu, engine, model, limits, &worker_options, completions,
                         ret_worker, error);
}

int replica_make(const struct gpu_api *gpu, struct gpu_engine *engine,
                 const struct gpu_model *model, const struct gpu_limits *limits,
                 const struct options *options, struct completion_queue *completions,
                 struct replica_worker **ret_replica, struct error *error)
{
    struct replica_worker *replica = calloc(1, sizeof(*replica));
    if (!replica)
        return error_set(error, ERR_NO_MEMORY, "no memory for a replica");
    replica->base.api = &replica_api;
    replica->gpu = gpu;
    replica->engine = engine;
    replica->base.rank_count = model->ranks;
    int rc = 0;
    if (options->profile_steps > 0)
        rc = trace_make((uint32_t)options->profile_steps, model->ranks, &replica->trace, error);
    if (!rc)
        rc = replica_worker_make(replica, engine, model, limits, options, completions,
                                 &replica->worker, error);
    if (rc) {
        trace_free(replica->trace);
        free(replica);
        return rc;
    }
    *ret_replica = replica;
    return 0;
}

/* Gauges are of now, and now there is nothing. */
static void keep_figures(struct replica_worker *replica)
{
    replica->before = replica->last;
    for (size_t i = 0; i < stats_table_count; i++)
        if (stats_table[i].owner == STATS_WORKER && stats_table[i].kind == STATS_GAUGE)
            *(uint64_t *)(void *)((char *)&replica->before + stats_table[i].offset) = 0;
    replica->last = replica->before;
    replica->slept = true;
}

void replica_inherit(struct replica_worker *replica)
{
    struct replica_worker *elder = replica->elder;
    const struct gpu_counters sum = own_counters(elder);
    add_counters(&replica->counters, &sum);
    elder->asked = true; /* its last word */
    (void)own_stats(elder);
    keep_figures(elder);
    stats_worker_merge(&replica->before, &elder->before);
    stats_worker_merge(&replica->last, &elder->before);
    replica->slept = true;
    replica->elder = NULL;
}

struct worker *replica_detach(struct replica_worker *replica)
{
    struct worker *worker = replica->worker;
    if (!worker)
        return NULL;
    const struct gpu_counters sum = engine_counters(replica);
    add_counters(&replica->counters, &sum);
    replica->asked = true; /* its last word */
    (void)own_stats(replica);
    keep_figures(replica);
    replica->worker = NULL;
    replica->engine = NULL;
    replica->asked = replica->waking = false;
    return worker;
}

void replica_attach(struct replica_worker *replica, struct gpu_engine *engine,
                    struct worker *worker)
{
    replica->engine = engine;
    replica->worker = worker;
    replica->waking = true;
}

enum worker_state replica_state(const struct replica_worker *replica)
{
    return replica->worker ? worker_state(replica->worker) : WORKER_STOPPED;
}

void replica_free(struct replica_worker *replica)
{
    if (!replica)
        return;
    worker_destroy(replica->worker);
    if (replica->kept)
        replica->gpu->kept_free(replica->kept);
    trace_free(replica->trace);
    free(replica);
}
