/* Replicas of the real scheduler on a model of a GPU's steps (tests/bench/latency/machine.h), in
 * the virtual time of a world: what somebody outside would measure, on one thread. */
#pragma once

#include "daemon/sched/sched.h"
#include "tests/daemon/rig/world.h"

#define TIMED_SLABS_MAX 2048u

/* What a test looks at, each call once something has happened; none may call back. */
struct timed_watch {
    void (*sent)(const struct seq *seq);
    void (*told)(const struct seq *seq); /* it has a token more */
    void (*planned)(const struct gpu_plan *plan, time_us us);
};

struct timed_replica {
    struct replica base;
    struct world *world;
    struct sched sched;
    struct stats_worker stats;
    const struct timed_watch *watch;
    uint32_t slabs_max;
    bool slab_there[TIMED_SLABS_MAX];
    uint64_t random;
    struct {
        time_us start_us, end_us;
    } flight[GPU_DEPTH_MAX + 1];
    time_us device_us; /* end of its last step */
};

/* The model's, with so many of its slabs at most. `watch` is borrowed. */
void timed_replica_init(struct timed_replica *replica, struct world *world,
                        const struct gpu_model *model, bool prefix_cache, uint32_t slabs_max,
                        const struct timed_watch *watch);
void timed_replica_destroy(struct timed_replica *replica);

/* All that can be enqueued is. */
void timed_replica_submit(struct timed_replica *replica);
/* Time goes to the next that happens on one of them, and that happens. */
void timed_replicas_advance(struct timed_replica *replicas, uint32_t count);
