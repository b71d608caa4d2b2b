/* What a rank launches for a step: its ops of the model's list, fused as its device can (fuse.h),
 * and the walk over them. The same launches make an eager step and, inside a capture, a graph: the
 * order of launches, and every pointer, follows from the batch's bounds alone.
 *
 * Rows are ragged: decode rows and chunks of prompts alike. Logits exist only for positions that
 * sample or are scored, and of scored ones for a chunk of rows at a time. On one of several ranks
 * small sums are made by the norm behind them (p2p_group.h), large ones by the communicator
 * (comm.h), in a long step in two halves of its rows, so that one half travels while the other is
 * computed. Between two stages of a pipeline goes the residual.
 *
 * Thread: the rank's own. Owns its ops and the fused lists, which program_open makes: a step
 * allocates nothing.
 */
#pragma once

#include "gpu/comm/comm.h"
#include "gpu/comm/pipeline_link.h"
#include "gpu/graph/op_list.h"
#include "gpu/kernels/step/step_begin.h"
#include "gpu/program/draft.h"
#include "gpu/program/fuse.h"
#include "gpu/weights/adapter_weights.h"
#include "gpu/weights/arrival.h"
#include "gpu/weights/weights.h"

#define PROGRAM_SCALED_MAX 16

/* What a product whose weight is not plain may want scratch for. */
struct program_scaled {
    struct weight weight;
    uint32_t top; /* of experts: that a row goes through; 0: it is none of theirs */
    uint32_t own; /* how many of them are here */
    bool spread;
};

struct program {
    /* Set before program_open. */
    const struct op_list *list;
    struct op *ops; /* of this rank; owned */
    uint32_t op_count;
    const struct weights *weights;
    struct arrival *arrival; /* of the weights; NULL: they are all there */
    const struct adapter_weights *adapters; /* NULL: none */
    struct comm *comm;                      /* NULL: the rank is alone */
    enum dtype dtype;                       /* of activations */
    enum format kv;                         /* of keys and values: the same, or E4M3 */
    uint32_t eos_count;
    const int32_t *eos;
    uint32_t block_tokens, slots_max;
    uint64_t kv_first[GPU_GROUPS_MAX]; /* bytes of a block that are another program's */
    bool drafts; /* a model that guesses: what is counted of a slot's tokens is not its to count */
    const struct draft_memory *draft_memory; /* of a head that guesses, and of its model; NULL: no head */
    bool has_prev_stage, has_next_stage;
    struct step_control *control;
    struct gpu_sample *samples; /* where the sampler writes */
    struct gpu_top *tops;
    cudaStream_t stream;
    bool invariant; /* a row's bits depend on its own sequence alone (gpu.h) */
    bool plain;     /* only what has no plain ops is fused: for tests */
    /* Made by it. */
    struct program_scaled scaled[PROGRAM_SCALED_MAX]; /* one of each shape that is not plain */
    uint32_t scaled_count;
    bool used[LIST_VALUES_MAX];
    struct fused_list lists[FUSE_CLASSES];
};

/* Of what a head that guesses goes on: the features that its slots have kept, or those of the step
 * that has just ended, or what it made of its last row. */
enum launch_takes { TAKES_KEPT, TAKES_STEP, TAKES_OWN };

/* A step's bounds, and where its results go. */
struct launch {
    struct batch batch;           /* bounds of this step, or of a bucket */
    const struct pack_head *wire; /* device address of the plan */
    struct gpu_score *scores;     /* device addresses; unused where the bounds say 0 */
    struct gpu_top *score_tops;   /* NULL: no row asks */
    float *embeds;
    void *scratch; /* program_scratch_bytes */
    bool counts;   /* some slot keeps count of tokens */
    bool pools;    /* some row adds to its slot's sum */
    bool adapted;  /* some row has an adapter */
    enum adapt_spread spread;
    enum launch_takes takes;
    bool follows; /* another program's step goes on: the batch is there, and the blocks are moved */
};

int program_open(struct program *program, struct error *error);
/* Makes the fused lists anew, for tests that change ops or `plain`. */
int program_fuse(struct program *program, struct error *error);
void program_close(struct program *program);

/* Bytes of one block of a group of layers: K and V of all of the rank's, or their states. */
uint64_t program_block_bytes(const struct op_list *list, const struct op *ops, uint32_t op_count,
                             uint32_t group, uint32_t block_tokens, enum format kv);

uint64_t program_scratch_bytes(const struct program *program, const struct batch *batch);
struct stage_state program_state(const struct program *program, const struct batch *batch,
                                 void *scratch, uint32_t tokens);

/* Of the step's first kernel. */
struct step_begin_args program_begin(const struct program *program, const struct launch *launch);
int program_run(const struct program *program, const struct launch *launch, struct error *error);
