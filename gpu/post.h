/* The ranks of a group reach into each other's memory: small sums, and logits, without a library.
 *
 * Every rank has fixed memory that the others write: a pair of inboxes for sums and a pair for
 * slices of logits, each pair taking turns (kernels/inbox.h). What is enqueued here runs on the
 * compute stream like any kernel, and goes into graphs. A step makes an even number of sums, so the
 * turn at its begin is always the first.
 *
 * Where the devices cannot reach each other, or are more than an inbox has parts, nothing goes by
 * post: post_sums() and post_logits() say so, to all ranks alike.
 *
 * Threads: the office any, as told; a post its rank's own. The rank owns its inboxes' memory.
 */
#pragma once

#include <cuda_runtime_api.h>
#include <pthread.h>

#include "gpu/kernels/inbox.h"
#include "gpu/kernels/norm.h"
#include "gpu/mem.h"

struct post_office {
    uint32_t ranks;
    int devices[GPU_DEVICES_MAX];
    bool open;            /* all reach all */
    int apart[2];         /* else: two devices that do not, of any stage; none: too many ranks */
    pthread_mutex_t lock; /* of let_go */
    struct {
        char *memory;       /* set by its rank, in post_open */
        uint32_t *let_go;   /* pinned; NULL once the rank has closed */
        cudaStream_t tally; /* CPU device alone */
    } desk[INBOX_RANKS_MAX];
};

struct post {
    struct post_office *office; /* NULL: not open */
    uint32_t rank;
    uint64_t sum_bytes;    /* of the largest sum that goes by post; 0: none does */
    uint64_t turn_bytes;   /* from one inbox for sums to the other */
    uint64_t slice_bytes;  /* from one inbox for logits to the other */
    uint32_t sums, slices; /* of this step so far */
};

/* Any thread. Fails for want of memory; devices that do not reach each other are no failure. */
int post_office_open(struct post_office *office, uint32_t ranks, const int *devices,
                     struct error *error);
void post_office_close(struct post_office *office); /* after every post_close */
/* Any thread: kernels that wait for a failed rank's numbers stop waiting. */
void post_let_go(struct post_office *office);

/* The rank's thread, its device current, in rank_start. `vocab`: of the logits. The memory is
 * there once cudaStreamPerThread was waited for. On failure, post_close. */
int post_open(struct post *post, struct post_office *office, uint32_t rank, uint32_t vocab,
              struct mem *mem, struct error *error);
void post_close(struct post *post);

/* A step begins. */
void post_begin(struct post *post);

/* Whether sums over rows of `size` values go by post. */
bool post_sums(const struct post *post, uint32_t rows, uint32_t size, enum dtype dtype);
/* op_norm, its delta being the sum of all ranks'. */
int post_norm(struct post *post, const struct norm_args *norm, cudaStream_t stream,
              struct error *error);

/* Whether logits are made whole by post. */
bool post_logits(const struct post *post);
/* Of x[rows.max][vocab] this rank has the columns that weights.h gives it; then all have all. */
int post_collect(struct post *post, struct span rows, float *x, uint32_t vocab, cudaStream_t stream,
                 struct error *error);

/* ---- of the two bodies of comm.h: how streams meet on the CPU device; NULL on CUDA ----------- */

bool post_tally_make(cudaStream_t *ret_tally); /* false: no memory */
void post_tally_free(cudaStream_t tally);
