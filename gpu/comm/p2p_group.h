/* The ranks of a group reach into each other's memory: small sums, and logits, without a library.
 *
 * Every rank has fixed memory that the others write: a pair of inboxes for sums and a pair for
 * slices of logits, each pair taking turns (kernels/collective/inbox.h). What is enqueued here runs on the
 * compute stream like any kernel, and goes into graphs. A step makes an even number of sums, so the
 * turn at its begin is always the first. A model with norms over the width of all ranks has one
 * inbox more, for their sums of squares (allreduce_wide_norm.h).
 *
 * Where the devices cannot reach each other, or are more than an inbox has parts, nothing goes by
 * post: p2p_can_allreduce() and p2p_can_gather() say so, to all ranks alike.
 *
 * Threads: the office any, as told; a post its rank's own. The rank owns its inboxes' memory.
 */
#pragma once

#include <cuda_runtime_api.h>
#include <pthread.h>

#include "gpu/kernels/collective/inbox.h"
#include "gpu/kernels/norm/norm.h"
#include "gpu/kernels/norm/wide_norm.h"
#include "gpu/memory/pools.h"

struct p2p_group {
    uint32_t ranks;
    int devices[GPU_DEVICES_MAX];
    bool open;            /* all reach all */
    int apart[2];         /* else: two devices that do not, of any stage; none: too many ranks */
    pthread_mutex_t lock; /* of let_go */
    struct {
        char *memory;       /* set by its rank, in p2p_open */
        uint32_t *let_go;   /* pinned; NULL once the rank has closed */
        cudaStream_t tally; /* CPU device alone */
    } desk[INBOX_RANKS_MAX];
};

struct p2p {
    struct p2p_group *office; /* NULL: not open */
    uint32_t rank;
    uint64_t sum_bytes;    /* of the largest sum that goes peer to peer; 0: none does */
    uint64_t turn_bytes;   /* from one inbox for sums to the other */
    uint64_t slice_bytes;  /* from one inbox for logits to the other */
    uint64_t wide_bytes;   /* of the inbox for sums of squares; 0: there is none */
    uint32_t sums, slices; /* of this step so far */
};

/* Any thread. Fails for want of memory; devices that do not reach each other are no failure. */
int p2p_group_open(struct p2p_group *office, uint32_t ranks, const int *devices,
                   struct error *error);
void p2p_group_close(struct p2p_group *office); /* after every p2p_close */
/* Any thread: kernels that wait for a failed rank's numbers stop waiting. */
void p2p_group_abort(struct p2p_group *office);

/* What a model's ranks hand each other. */
struct p2p_model {
    uint32_t vocab; /* of the logits */
    bool wide;      /* p2p_allreduce_wide_norm is called */
};

/* The rank's thread, its device current, in rank_start. The memory is there once
 * cudaStreamPerThread was waited for. On failure, p2p_close. */
int p2p_open(struct p2p *p2p, struct p2p_group *office, uint32_t rank, struct p2p_model model,
             struct mem *mem, struct error *error);
void p2p_close(struct p2p *p2p);

/* A step begins. */
void p2p_begin(struct p2p *p2p);

/* Whether sums over rows of `size` values go peer to peer. */
bool p2p_can_allreduce(const struct p2p *p2p, uint32_t rows, uint32_t size, enum dtype dtype);
/* op_norm, its delta being the sum of all ranks'. */
int p2p_allreduce_norm(struct p2p *p2p, const struct norm_args *norm, cudaStream_t stream,
                       struct error *error);

/* op_wide_norm over the ranks' columns together; where sums of as many rows go peer to peer. */
int p2p_allreduce_wide_norm(struct p2p *p2p, const struct wide_norm_args *norm, cudaStream_t stream,
                            struct error *error);

/* Whether logits are made whole peer to peer. */
bool p2p_can_gather(const struct p2p *p2p);
/* Of x[rows.max][vocab] this rank has the columns that weights.h gives it; then all have all. */
int p2p_all_gather(struct p2p *p2p, struct row_range rows, float *x, uint32_t vocab,
                   cudaStream_t stream, struct error *error);

/* ---- of the two bodies of comm.h: how streams meet on the CPU device; NULL on CUDA ----------- */

bool p2p_tally_make(cudaStream_t *ret_tally); /* false: no memory */
void p2p_tally_free(cudaStream_t tally);
