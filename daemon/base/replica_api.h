/* What the dispatcher knows of a replica: a table of calls, behind which a worker stands, or a
 * test. loop thread, all calls.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "daemon/base/priority.h"
#include "gpu/gpu.h"
#include "protocol/base/clock.h"

struct prefix_key;
struct replica;
struct seq;
struct stats_worker;

/* What a replica can take now, less what was sent to it and not yet seen there. */
struct replica_room {
    bool ready;              /* loaded, not failed */
    uint32_t sequences;      /* more of them that would start at once */
    uint64_t kv_tokens;      /* positions that free blocks, and such as may be had, would hold */
    uint64_t prefill_tokens; /* that may be added before prompts would queue up there */
    uint32_t waiting;        /* there that wait for a place, but for those that gave way */
    uint32_t gave_way;       /* there, to higher priorities: they do so once */
    uint64_t wait_us;        /* predicted time until a sequence sent now begins */
    uint64_t token_ns;       /* what a prompt's token takes, about; 0 = not known */
    uint64_t copy_ns;        /* and one that comes from host memory */
    bool empty;              /* nothing at all is there: takes whatever can fit at all */
    bool starves;            /* no sequence there gets memory, and none has any to give up */
};

/* How the server reaches a replica. daemon/worker/replica.c puts a worker behind it, a test its
 * own. Ownership of the sequence goes with send, and comes back through the completion queue. */
struct replica {
    const struct replica_api *api;
    uint32_t rank_count; /* devices that share the model */
    int devices[GPU_DEVICES_MAX];
    bool mailed;                    /* in this turn: is woken at its end */
    uint32_t below[WAITING_LEVELS]; /* sequences there that higher priorities may take a place of */
};
/* Whether a device is both's. */
static inline bool replica_shares_device(const struct replica *a, const struct replica *b)
{
    for (uint32_t i = 0; i < a->rank_count; i++)
        for (uint32_t j = 0; j < b->rank_count; j++)
            if (a->devices[i] == b->devices[j])
                return true;
    return false;
}

/* What is held; of the device itself nothing. */
static inline void replica_add_memory(struct gpu_memory *sum, const struct gpu_memory *one)
{
    sum->weights += one->weights;
    sum->kv_used += one->kv_used;
    sum->kv_held += one->kv_held;
    sum->scratch_used += one->scratch_used;
    sum->scratch_held += one->scratch_held;
    sum->graphs += one->graphs;
    sum->pinned += one->pinned;
    sum->host_blocks += one->host_blocks;
    sum->kept_pinned += one->kept_pinned;
    sum->kept_mapped += one->kept_mapped;
}

struct replica_api {
    /* What can be sent now. */
    struct replica_room (*room)(const struct replica *replica);
    void (*send)(struct replica *replica, struct seq *seq);
    /* seq->cancel_reason is set; once per sequence. */
    void (*cancel)(struct replica *replica, struct seq *seq);
    /* Of the names of a prompt's blocks, how many from the first on it has cached, about;
     * `expected`: or will, of what was said to be on its way there. *ret_host: so many of them, the
     * last, are in host memory, from where they come back sooner than they are computed. */
    uint32_t (*cached)(const struct replica *replica, const struct prefix_key *keys, uint32_t count,
                       bool expected, uint32_t *ret_host);
    void (*expect)(struct replica *replica, const struct prefix_key *keys, uint32_t count);
    /* A prompt waits to be sent there, and what it has of these blocks is given up after others.
     * False: it has no room for that. And one of which that was true does not wait any more. */
    bool (*want)(struct replica *replica, const struct prefix_key *keys, uint32_t count);
    void (*unwant)(struct replica *replica, const struct prefix_key *keys, uint32_t count);
    void (*wake)(struct replica *replica); /* once a turn, after any number of these two */
    /* Asks for fresh figures: COMPLETION_STATS follows. */
    void (*ask_stats)(struct replica *replica);
    bool (*stats_there)(struct replica *replica);                 /* whether they have come since */
    const struct stats_worker *(*stats)(struct replica *replica); /* the last there are */
    /* Figures of one rank's device, and of all of them together; what another version of it has
     * there, while there is one, is in them. */
    void (*memory)(const struct replica *replica, uint32_t rank, struct gpu_memory *ret_memory);
    void (*counters)(const struct replica *replica, struct gpu_counters *ret_counters);
    /* Whether its device refused it memory since this was asked last: COMPLETION_MEMORY told of it.
     * And to another model's, which gives back what it can do without. */
    bool (*lacks)(struct replica *replica);
    void (*yield)(struct replica *replica);
    /* Its model makes way: where it starves, what is there comes back and is not ended. */
    void (*hand_back)(struct replica *replica);
    /* Any thread, blocks: as gpu_api.adapter_load. */
    int (*adapter_load)(struct replica *replica, uint32_t number, const struct gpu_adapter *adapter,
                        struct error *error);
    /* Thousandths of the loading that are done. */
    uint32_t (*progress)(const struct replica *replica);
    /* False when its device failed or is stuck. */
    bool (*healthy)(const struct replica *replica, time_us now_us);
};
