/* How the stages of a pipeline hand a step on: one relay per rank, chained to its neighbours.
 *
 *   compute of s    ... layers, to the outbox --> made
 *   relay of s                            wait made, wait taken of s + 1, peer copy --> arrived
 *   compute of s + 1          wait arrived, from the inbox --> taken, layers ...
 *
 * Outbox and inbox are the two buffers of a way: the outbox is filled again once what was in it has
 * arrived, the inbox once what was in it is taken. So the copy of one step runs beside the layers
 * of the next. The last stage sends the tokens of all slots back to the first after each step, in a
 * ring with a place for each step in flight; a step there waits for the tokens of the step that it
 * reads from, and for no later one.
 *
 * An event counts from its record on, and ranks have threads of their own: pipeline_link_recv waits
 * on the host until the stage before has recorded this step. All other waits are for steps before,
 * which every rank had enqueued before any was given this one.
 *
 * Threads: the rank's own, but pipeline_link_chain (any, before the ranks start),
 * pipeline_link_abort (any) and pipeline_link_drop (any, after all have stopped). Owns its stream,
 * events and lock; memory is mem's.
 */
#pragma once

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdbool.h>

#include "gpu/base/profile.h"
#include "gpu/memory/pools.h"

#define PIPELINE_LINK_PLACES (GPU_DEPTH_MAX + 1)

/* What one stage hands to the next, in the scratch of a step. */
struct stage_state {
    void *residual;
    uint64_t bytes; /* of the step's tokens, not of its bounds */
};

struct pipeline_link {
    struct pipeline_link *before, *after; /* NULL: none */
    struct pipeline_link *first, *last;   /* of the chain; NULL: the rank is in none */
    int device;
    struct profile *profile; /* of the rank's lane; NULL: none */
    cudaStream_t stream;
    void *outbox, *inbox;             /* NULL where nobody is after, or before */
    cudaEvent_t made, arrived, taken; /* arrived: of what this rank sent; taken: of its inbox */
    uint32_t slots, places;
    int32_t *tokens;                            /* [places][slots], of the first and of the last */
    cudaEvent_t returned[PIPELINE_LINK_PLACES]; /* by the last, into the first's place */
    /* What the thread of the stage after waits for. */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t handed; /* number of the last step whose `arrived` is recorded */
    bool cut;        /* the engine failed: nothing more comes */
};

/* What a chain is sized for. */
struct pipeline_link_limits {
    uint64_t state_bytes; /* the most that a step hands on */
    uint32_t slots, places;
    struct profile *profile;
};

/* Makes a relay the one after `before`, which is NULL for the first stage's. */
void pipeline_link_chain(struct pipeline_link *link, struct pipeline_link *before, int device);
/* Then, of each. */
void pipeline_link_ends(struct pipeline_link *link, struct pipeline_link *first,
                        struct pipeline_link *last);
void pipeline_link_drop(struct pipeline_link *link);
void pipeline_link_abort(struct pipeline_link *link); /* wakes who waits for this rank */

/* In rank_start, the device current. On failure, pipeline_link_close and later pipeline_link_drop.
 */
int pipeline_link_open(struct pipeline_link *link, struct mem *mem,
                       const struct pipeline_link_limits *limits, struct error *error);
/* First stage: until no other rank writes here any more. No step is given to any rank then. */
int pipeline_link_drain(struct pipeline_link *link, struct error *error);
void pipeline_link_close(struct pipeline_link *link); /* events stay until pipeline_link_drop:
                                                         neighbours may name them */

/* A step's way, in this order. The first stage: compute waits for the tokens of step `of`. */
int pipeline_link_await_tokens(struct pipeline_link *link, uint64_t of, cudaStream_t compute,
                               struct error *error);
/* A later one: what was handed on goes to `state`. ERR_DEVICE when the engine has failed. */
int pipeline_link_recv(struct pipeline_link *link, uint64_t step, const struct stage_state *state,
                       cudaStream_t compute, struct error *error);
/* All but the last, after the layers. */
int pipeline_link_send(struct pipeline_link *link, uint64_t step, const struct stage_state *state,
                       cudaStream_t compute, struct error *error);
/* The last, on a stream that follows compute. */
int pipeline_link_return(struct pipeline_link *link, uint64_t step, cudaStream_t stream,
                         struct error *error);

/* The place of a step's tokens: where the last puts them, and where the first finds them. */
static inline int32_t *pipeline_link_tokens(const struct pipeline_link *link, uint64_t step)
{
    return link->tokens + (size_t)(step % link->places) * link->slots;
}
