/* The engine behind gpu/gpu.h: what one replica's ranks hold.
 *
 * A rank is one GPU with everything that its worker thread owns: lane, memory, slabs, the device's
 * state, the rings. Fields are the rank thread's own, but those marked atomic, which any thread
 * reads. The order of making is the order of the members, taking down is the reverse.
 */
#pragma once

#include "gpu/comm/comm.h"
#include "gpu/base/device.h"
#include "gpu/engine/drafter.h"
#include "gpu/engine/engine_config.h"
#include "gpu/program/program.h"
#include "gpu/gpu.h"
#include "gpu/engine/cuda_graph.h"
#include "gpu/base/streams.h"
#include "gpu/memory/pools.h"
#include "gpu/comm/pipeline_link.h"
#include "gpu/engine/rings.h"
#include "gpu/memory/host_chunks.h"
#include "gpu/memory/kept_weights.h"
#include "gpu/memory/slabs.h"
#include "gpu/engine/sampling.h"
#include "gpu/engine/slot_state.h"

/* What the host remembers of a slot; the device has the rest. */
struct rank_slot {
    uint64_t row_step; /* the last step that had a row of it */
    uint32_t logprobs;
    uint32_t adapter;
    bool open, penalties, masked;
    bool kept; /* its last row has left logits that no sampling has taken */
    bool drafted;     /* its last row had drafts: no token is left for its next */
    uint32_t sampled; /* position of the token after that row */
};

/* Scratch of a step that was reserved ahead. */
struct rank_reserved {
    uint64_t step; /* 0: nothing */
    void *scratch; /* NULL: the step needs none */
    uint64_t bytes;
};

struct rank_counters {
    _Atomic uint64_t steps, graph_steps, captures, steps_ahead, pageable_copies, samplings;
    _Atomic uint64_t copied[GPU_WAYS]; /* blocks */
};

struct rank {
    struct gpu_engine *engine;
    uint32_t number, stage, shard; /* number = stage * tp + shard */
    int device;
    bool started;
    bool dead; /* a call failed in a way that the device does not come back from */
    struct streams lane;
    struct comm comm; /* open where there are several ranks and something to compute */
    struct mem mem;
    struct pipeline_link link;                      /* of a pipeline; else in no chain */
    struct gpu_group groups[GPU_GROUPS_MAX]; /* the model's, with the layers of this stage */
    struct ring ring;
    struct state state;
    struct weights weights;
    struct arrival arrival; /* of those, where steps may begin before they are there */
    struct adapter_weights adapters;
    struct program program;
    struct slabs slabs[GPU_GROUPS_MAX];
    struct cuda_graphs graphs;
    struct drafter drafter;
    struct rank_slot *slots; /* [slots_max] */
    uint32_t penalty_slots;  /* open ones with penalties */
    struct sampling_ring samplings;
    uint64_t submitted;      /* number of the last step */
    struct rank_reserved reserved;
    struct rank_counters counters;
};

struct gpu_engine {
    struct engine_config facts;
    struct mem_limits memory_limits;
    uint64_t host_limit; /* of host_pages_reserve() */
    uint64_t seed; /* of synthetic weights */
    uint32_t profile_steps;
    char *cache_dir; /* NULL: nothing is timed or kept */
    uint32_t rank_count;
    struct host_chunks chunks;                /* for blocks of all ranks */
    struct gpu_kept *kept;                    /* borrowed; NULL: weights come from files alone */
    struct comm_group *comms[GPU_STAGES_MAX]; /* NULL: one rank per stage, or nothing to compute */
    struct rank rank;         /* rank 0, the leader */
    struct rank *more;        /* the others, from rank 1 on */
    pthread_mutex_t loading;  /* held while an adapter is read, and a chunk of weights copied */
    bool stopping;            /* under that: neither is done any more */
    atomic_bool failed;       /* some rank is dead: nobody waits for its device any more */
    _Atomic uint32_t progress; /* thousandths of the loading, of weights that come beside steps too */
    void (*log)(enum gpu_log_level level, const char *line);
};

static inline struct rank *engine_rank(const struct gpu_engine *engine, uint32_t number)
{
    const struct rank *rank = number ? &engine->more[number - 1] : &engine->rank;
    return (struct rank *)rank;
}

/* The one whose samples are the step's results. */
static inline struct rank *engine_sampler(const struct gpu_engine *engine)
{
    return engine_rank(engine, engine->rank_count - engine->facts.tp);
}

/* A counter has one writer, so a plain load and store do. */
static inline void rank_count(_Atomic uint64_t *counter, bool one)
{
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + one,
                          memory_order_relaxed);
}

/* module.c: a line for the daemon's log. */
void engine_log(const struct gpu_engine *engine, enum gpu_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* rank.c: as in gpu/gpu.h. */
int rank_start(struct rank *rank, int wake_fd, struct error *error);
int rank_stop(struct rank *rank, struct error *error);
enum gpu_progress rank_query(struct rank *rank, struct error *error);
int rank_trim(struct rank *rank, struct error *error);
int rank_adapter_load(struct rank *rank, const struct adapter *adapter, uint32_t number,
                      struct error *error);

/* Says that the rank, and with it the engine, is of no use any more. */
void rank_die(struct rank *rank);
/* The same, and ERR_DEVICE, whatever the call said that failed. */
int rank_lost(struct rank *rank, struct error *error);

/* keep.c: as in gpu/gpu.h. */
int engine_keep(struct gpu_engine *engine, struct error *error);
/* Where a draft model's weights are kept; a rank's are in the part of its number. */
uint32_t keep_draft_part(const struct gpu_engine *engine);
/* Enqueues the copy of what is kept of these weights of the rank's. *ret_there: that is all of
 * them, and compute waits for them here or, by rank->arrival, where a step takes them; else they
 * are to be loaded. */
int rank_weights_return(struct rank *rank, uint32_t part, const struct weights *weights,
                        bool *ret_there, struct error *error);

/* step.c */
int step_reserve(struct rank *rank, const struct gpu_plan *plan, struct error *error);
void step_release(struct rank *rank);
int step_submit(struct rank *rank, const struct gpu_plan *plan, struct error *error);
/* A batch with the bounds of the plan. */
void step_bound(const struct gpu_plan *plan, struct batch *batch);

/* copies.c */
int copies_submit(struct rank *rank, const struct gpu_copies *copies, struct error *error);

/* plan_check.c: asserts what the plan must be, and notes what it opens and closes. */
void plan_check(const struct rank *rank, const struct gpu_plan *plan);
void plan_note(struct rank *rank, const struct gpu_plan *plan);
