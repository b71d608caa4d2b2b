#include "tests/daemon/rig/timed_replica.h"

#include <check.h>
#include <string.h>

#include "tests/bench/latency/machine.h"

#define SAMPLES 1024u
#define IDLE_US 1000u /* between turns in which no step runs */

static struct timed_replica *of(const struct replica *replica)
{
    return (struct timed_replica *)(uintptr_t)replica;
}

/* ---- the scheduler's calls ---------------------------------------------------------------------
 */

static int grow(void *context, uint32_t group, uint32_t *ret_slab)
{
    struct timed_replica *self = context;
    (void)group;
    for (uint32_t i = 0; i < self->slabs_max; i++)
        if (!self->slab_there[i]) {
            self->slab_there[i] = true;
            *ret_slab = i;
            return 0;
        }
    return -ERR_DEVICE_MEMORY;
}

static void shrink(void *context, uint32_t group, uint32_t slab)
{
    struct timed_replica *self = context;
    (void)group;
    ck_assert(self->slab_there[slab]);
    self->slab_there[slab] = false;
}

static void told(struct timed_replica *self, const struct seq *seq)
{
    if (self->watch && self->watch->told)
        self->watch->told(seq);
}

static void progressed(void *context, struct seq *seq)
{
    struct timed_replica *self = context;
    told(self, seq);
    completion_visit(&self->world->completions, seq, 0);
}

static void ended(void *context, struct seq *seq)
{
    struct timed_replica *self = context;
    if (seq->finish == FINISH_LENGTH)
        told(self, seq);
    completion_visit(&self->world->completions, seq,
                     COMPLETION_ENDED | (seq->cancel_sent ? COMPLETION_CANCEL_SEEN : 0));
}

/* ---- the loop's --------------------------------------------------------------------------------
 */

static struct replica_room room(const struct replica *replica)
{
    struct replica_room room = sched_room(&of(replica)->sched, of(replica)->world->now_us);
    room.ready = true;
    return room;
}

static void send(struct replica *replica, struct seq *seq)
{
    struct timed_replica *self = of(replica);
    if (self->watch && self->watch->sent)
        self->watch->sent(seq);
    sched_add(&self->sched, seq, self->world->now_us);
}

static void cancel(struct replica *replica, struct seq *seq)
{
    struct timed_replica *self = of(replica);
    if (atomic_load(&seq->out_flags) & COMPLETION_ENDED)
        completion_visit(&self->world->completions, seq, COMPLETION_CANCEL_SEEN);
    else
        sched_cancel(&self->sched, seq, seq->cancel_reason, self->world->now_us);
}

static uint32_t cached(const struct replica *replica, const struct prefix_key *keys, uint32_t count,
                       bool expected, uint32_t *ret_host)
{
    *ret_host = 0;
    return prefix_hint_count(&of(replica)->sched.cache.hint, keys, count, expected);
}

static void expect(struct replica *replica, const struct prefix_key *keys, uint32_t count)
{
    prefix_hint_expect(&of(replica)->sched.cache.hint, keys, count);
}

static bool want(struct replica *replica, const struct prefix_key *keys, uint32_t count)
{
    return prefix_wants_add(&of(replica)->sched.wants[SCHED_WAITS_TO_COME], keys, count);
}

static void unwant(struct replica *replica, const struct prefix_key *keys, uint32_t count)
{
    prefix_wants_drop(&of(replica)->sched.wants[SCHED_WAITS_TO_COME], keys, count);
}

static void wake(struct replica *replica)
{
    (void)replica;
}

static void ask_stats(struct replica *replica)
{
    completion_control(&of(replica)->world->completions, COMPLETION_STATS);
}

static bool stats_there(struct replica *replica)
{
    (void)replica;
    return true;
}

static const struct stats_worker *stats(struct replica *replica)
{
    struct timed_replica *self = of(replica);
    const struct kv_group *group = &self->sched.kv.group[0];
    self->stats.running = self->sched.slot_count;
    self->stats.starting = self->sched.waiting_count;
    self->stats.steps_in_flight = sched_in_flight(&self->sched);
    self->stats.kv_blocks_used = group->used - group->alone;
    self->stats.kv_blocks_cached = group->alone;
    self->stats.kv_slabs = group->slabs;
    return &self->stats;
}

static void memory(const struct replica *replica, uint32_t rank, struct gpu_memory *ret_memory)
{
    (void)replica, (void)rank;
    *ret_memory = (struct gpu_memory){.weights = 1};
}

static void counters(const struct replica *replica, struct gpu_counters *ret_counters)
{
    (void)replica;
    *ret_counters = (struct gpu_counters){.steps = 1};
}

static bool healthy(const struct replica *replica, time_us now_us)
{
    (void)replica, (void)now_us;
    return true;
}

static const struct replica_api api = {.room = room,
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
                                       .memory = memory,
                                       .counters = counters,
                                       .healthy = healthy};

/* ---- its device --------------------------------------------------------------------------------
 */

void timed_replica_submit(struct timed_replica *self)
{
    const struct gpu_plan *plan;
    const time_us now_us = self->world->now_us;
    while (sched_in_flight(&self->sched) < self->sched.limits.depth &&
           (plan = sched_plan(&self->sched, now_us))) {
        time_us us = (time_us)machine_step_us(plan, &self->random);
        time_us start_us = now_us > self->device_us ? now_us : self->device_us;
        self->device_us = start_us + us;
        self->flight[plan->step % (GPU_DEPTH_MAX + 1)].start_us = start_us;
        self->flight[plan->step % (GPU_DEPTH_MAX + 1)].end_us = self->device_us;
        sched_submitted(&self->sched, now_us);
        if (self->watch && self->watch->planned)
            self->watch->planned(plan, us);
    }
}

static time_us end_us(const struct timed_replica *self)
{
    return self->flight[(self->sched.step_done + 1) % (GPU_DEPTH_MAX + 1)].end_us;
}

static time_us next_us(const struct timed_replica *self)
{
    time_us now_us = self->world->now_us, due = sched_due_us(&self->sched);
    time_us next = sched_in_flight(&self->sched) > 0 ? end_us(self) : now_us + IDLE_US;
    return due < next && due > now_us ? due : next;
}

static void complete(struct timed_replica *self)
{
    static struct gpu_sample samples[SAMPLES];
    static struct gpu_top tops[SAMPLES * GPU_LOGPROBS_MAX];
    uint64_t step = self->sched.step_done + 1;
    struct gpu_results results = {.step = step,
                                  .samples = samples,
                                  .tops = tops,
                                  .start_ns =
                                      self->flight[step % (GPU_DEPTH_MAX + 1)].start_us * 1000,
                                  .end_ns = end_us(self) * 1000};
    sched_complete(&self->sched, &results, self->world->now_us);
}

void timed_replicas_advance(struct timed_replica *replicas, uint32_t count)
{
    struct world *world = replicas[0].world;
    time_us next = next_us(&replicas[0]);
    for (uint32_t i = 1; i < count; i++)
        next = next_us(&replicas[i]) < next ? next_us(&replicas[i]) : next;
    world->now_us = next > world->now_us ? next : world->now_us;
    for (uint32_t i = 0; i < count; i++) {
        if (sched_in_flight(&replicas[i].sched) > 0 && world->now_us >= end_us(&replicas[i]))
            complete(&replicas[i]);
        sched_housekeep(&replicas[i].sched, world->now_us);
    }
}

/* ---- its life ----------------------------------------------------------------------------------
 */

void timed_replica_init(struct timed_replica *self, struct world *world,
                        const struct gpu_model *model, bool prefix_cache, uint32_t slabs_max,
                        const struct timed_watch *watch)
{
    struct error error;
    const struct sched_options options = {.ttft_target_us = 100000,
                                          .itl_target_us = 50000,
                                          .chunk_every = 4,
                                          .kv_idle_release_us = 5000000,
                                          .prefix_cache = prefix_cache,
                                          .cache_idle_release_us = 300000000,
                                          .stall_us = UINT64_MAX};
    const struct sched_calls calls = {.context = self,
                                      .kv_grow = grow,
                                      .kv_shrink = shrink,
                                      .progressed = progressed,
                                      .ended = ended};
    ck_assert_uint_le(slabs_max, TIMED_SLABS_MAX);
    memset(self, 0, sizeof(*self));
    self->base = (struct replica){.api = &api, .rank_count = 1};
    self->world = world;
    self->watch = watch;
    self->slabs_max = slabs_max;
    ck_assert_int_eq(
        sched_init(&self->sched, model, &machine_limits, &options, &calls, &self->stats, &error),
        0);
}

void timed_replica_destroy(struct timed_replica *self)
{
    sched_destroy(&self->sched);
}
