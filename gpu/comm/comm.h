/* What the ranks of a tensor-parallel group do together: sums over all of them. Small ones, and
 * logits, go peer to peer (p2p_group.h); this is how large ones go.
 *
 * A sum runs on a communication stream of the greatest priority, joined to the compute stream by
 * events both ways: it begins after what compute holds, and compute goes on beside it until
 * comm_join. Every rank enqueues the same sums in the same order, on its own thread; a captured
 * step holds them like any other work. Sums are added in the order of ranks on the CPU device, and
 * in one that only the count decides on CUDA: the same plans give the same bits.
 *
 * Two bodies: comm_cuda.c is NCCL, loaded when there are several ranks; comm_cpu.c meets by tallies
 * and adds up from each other's memory.
 *
 * A rank that fails never arrives: comm_abort lets the others go, whose sums are then worthless.
 */
#pragma once

#include <cuda_runtime_api.h>
#include <stdint.h>

#include "gpu/comm/p2p_group.h"
#include "gpu/kernels/common/kernel.h"
#include "gpu/memory/pools.h"
#include "protocol/base/error.h"

struct comm_body; /* of all ranks; opaque */

struct comm_group {
    uint32_t ranks;
    int devices[GPU_DEVICES_MAX];
    struct p2p_group office;
    struct comm_body *body;
};

struct comm {
    struct comm_group *group; /* NULL: not open */
    uint32_t rank;
    cudaStream_t stream;
    cudaEvent_t there, summed; /* what is to be summed; and the sums are */
    uint32_t turn;             /* the body's own */
    bool begun;                /* a sum of this step is enqueued */
    struct p2p p2p;
};

/* Any thread. */
int comm_group_make(uint32_t ranks, const int *devices, struct comm_group **ret_group,
                    struct error *error);
void comm_group_free(struct comm_group *group); /* after every comm_close; NULL is allowed */
/* Any thread, once: the engine has failed. */
void comm_abort(struct comm_group *group);

/* The rank's own thread, its device current, in rank_start; the group is complete once all ranks
 * have started. On failure, comm_close. */
int comm_open(struct comm *comm, struct comm_group *group, uint32_t rank, struct p2p_model model,
              struct mem *mem, struct error *error);
void comm_close(struct comm *comm);

/* A step begins. */
void comm_begin(struct comm *comm);
/* x[count] becomes the sum of all ranks' x, in place. */
int comm_sum(struct comm *comm, void *x, uint64_t count, enum dtype dtype, cudaStream_t compute,
             struct error *error);
/* Compute waits for the sums so far. */
int comm_join(struct comm *comm, cudaStream_t compute, struct error *error);

/* ---- the two bodies; for comm.c -------------------------------------------------------------- */

int comm_body_make(struct comm_group *group, struct error *error);
void comm_body_free(struct comm_group *group);
void comm_body_abort(struct comm_group *group);
int comm_body_open(struct comm *comm, struct mem *mem, struct error *error);
int comm_body_begin(struct comm *comm, struct error *error); /* before a step's first sum */
int comm_body_sum(struct comm *comm, void *x, uint64_t count, enum dtype dtype,
                  struct error *error);
