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
    return worker_room(of(replica)->worker);
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
    return worker_cached(of(replica)->worker, keys, count, expected, ret_host);
}

static void expect(struct replica *replica, const struct prefix_key *keys, uint32_t count)
{
    prefix_hint_expect(worker_hint(of(replica)->worker), keys, count);
}

static void wake(struct replica *replica)
{
    worker_wake(of(replica)->worker);
}

static const struct stats_worker *stats(struct replica *replica)
{
    struct replica_worker *self = of(replica);
    const struct stats_worker *fresh = self->asked ? worker_snapshot(self->worker) : NULL;
    if (fresh) {
        self->last = *fresh;
        self->asked = false;
    }
    return &self->last;
}

/* The copy is the worker's until it is told, so one question is on the way at a time. */
static void ask_stats(struct replica *replica)
{
    (void)stats(replica); /* an answer that nobody stayed for is no answer to this question */
    if (!of(replica)->asked)
        worker_ask_stats(of(replica)->worker);
    of(replica)->asked = true;
}

static bool stats_there(struct replica *replica)
{
    (void)stats(replica);
    return !of(replica)->asked;
}

static bool lacks(struct replica *replica)
{
    return worker_lacks(of(replica)->worker);
}

static void yield(struct replica *replica)
{
    worker_yield(of(replica)->worker);
}

static void memory(const struct replica *replica, uint32_t rank, struct gpu_memory *ret_memory)
{
    of(replica)->gpu->memory(of(replica)->engine, rank, ret_memory);
}

static void counters(const struct replica *replica, struct gpu_counters *ret_counters)
{
    const struct replica_worker *self = of(replica);
    struct gpu_counters sum = {0};
    for (uint32_t rank = 0; rank < replica->rank_count; rank++) {
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
    *ret_counters = sum;
}

static int adapter_load(struct replica *replica, uint32_t number, const struct gpu_adapter *adapter,
                        struct error *error)
{
    return of(replica)->gpu->adapter_load(of(replica)->engine, number, adapter, error);
}

static uint32_t progress(const struct replica *replica)
{
    return worker_progress(of(replica)->worker);
}

static bool healthy(const struct replica *replica, time_us now_us)
{
    return worker_healthy(of(replica)->worker, now_us);
}

static const struct replica_api replica_api = {.room = room,
                                               .send = send,
                                               .cancel = cancel,
                                               .cached = cached,
                                               .expect = expect,
                                               .wake = wake,
                                               .ask_stats = ask_stats,
                                               .stats_there = stats_there,
                                               .stats = stats,
                                               .lacks = lacks,
                                               .yield = yield,
                                               .memory = memory,
                                               .counters = counters,
                                               .adapter_load = adapter_load,
                                               .progress = progress,
                                               .healthy = healthy};

int replica_make(const struct gpu_api *gpu, struct gpu_engine *engine,
                 const struct gpu_model *model, const struct gpu_limits *limits,
                 const struct options *options, struct completion_queue *completions,
                 struct replica_worker **ret_replica, struct error *error)
{
    struct worker_options worker_options = {
        .sched = {.ttft_target_us = options->ttft_target,
                  .itl_target_us = options->itl_target,
                  .chunk_every = CHUNK_EVERY,
                  /* Giving back takes its time, too: it is done within the time that was asked. */
                  .kv_idle_release_us = options->kv_idle_release - options->kv_idle_release / 10,
                  .prefix_cache = options->prefix_cache,
                  .cache_idle_release_us = options->cache_idle_release,
                  .drafts_max = options->speculate == SPECULATE_LOOKUP
                                    ? (uint32_t)options->speculate_tokens
                                    : 0,
                  .stall_us = KV_STALL_US},
        .step_timeout_us = options->step_timeout,
        .ranks = model->ranks,
    };
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
    worker_options.trace = replica->trace;
    if (!rc)
        rc = worker_create(gpu, engine, model, limits, &worker_options, completions,
                           &replica->worker, error);
    if (rc) {
        trace_free(replica->trace);
        free(replica);
        return rc;
    }
    *ret_replica = replica;
    return 0;
}

void replica_free(struct replica_worker *replica)
{
    if (!replica)
        return;
    worker_destroy(replica->worker);
    trace_free(replica->trace);
    free(replica);
}
