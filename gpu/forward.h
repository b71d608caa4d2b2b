/* A real model's step: the order of its ops over the rows of a batch.
 *
 * Rows are ragged: decode rows and chunks of prompts alike. Activations lie in scratch that is
 * sized to the step (room.h). Logits exist only for positions that sample or are scored, and of
 * scored ones for a chunk of rows at a time.
 *
 * On one of several ranks the o and down products give a part of each sum. Small sums are made by
 * the norm behind them (post.h), large ones by the communicator (comm.h): in a long step in two
 * halves of its rows, so that one half travels while the other is computed. Logits: each rank
 * computes those of its rows of the head into its columns, and is handed the others by post, or by
 * adding up over zeros; so all ranks sample the same.
 *
 * A stage of a pipeline runs its own layers. Between two stages go the residual and what the last
 * layer's MLP gave, which the next layer's norm adds to it, or the residual with that added where
 * sums go by post: so they are the same, bit for bit, as without stages.
 *
 * The order of launches, and every pointer, follows from the batch's bounds alone: that makes a
 * step fit to be captured. Thread: the rank's own. Owns nothing.
 */
#pragma once

#include "gpu/comm.h"
#include "gpu/kernels/expand.h"
#include "gpu/weights.h"

struct forward {
    const struct model_config *config; /* of this rank's share */
    struct comm *comm;                 /* NULL: the rank is alone */
    const struct weights *weights;
    enum dtype dtype; /* of activations, keys and values */
    uint32_t eos_count;
    const int32_t *eos;
    uint32_t block_tokens;
    bool takes_over; /* a stage before this one has the embedding and the first layers */
    bool hands_on;   /* a stage after it has the last layers and the head */
};

/* Where one step's results go, and which of them there are beyond what the batch's bounds say. */
struct forward_step {
    struct batch batch;
    struct gpu_sample *samples;
    struct gpu_top *tops;
    struct gpu_score *scores;
    float *embeds;
    bool counts;   /* some slot keeps count of tokens */
    bool pools;    /* some row adds to its slot's sum */
    void *scratch; /* forward_scratch_bytes */
    bool begun;    /* expand has done what forward_first asked for */
    /* The sampler ends the step (sample.h); NULL: it does not. */
    const struct step_control *control;
    uint32_t slots_max;
    cudaStream_t stream;
};

/* What one stage hands to the next, in the scratch of a step. */
struct forward_state {
    void *residual, *delta;
    uint64_t residual_bytes, delta_bytes; /* of the step's tokens, not of its bounds */
};
struct forward_state forward_state_of(const struct forward *forward, const struct batch *batch,
                                      void *scratch, uint32_t tokens);

/* Bytes of one block of a layer group: K and V of all its layers. */
uint64_t forward_block_bytes(const struct model_config *config, uint32_t group,
                             uint32_t block_tokens, enum dtype dtype);

/* Of the products that are added to the residual. */
enum dtype forward_delta_dtype(const struct forward *forward);

uint64_t forward_scratch_bytes(const struct forward *forward, const struct batch *batch);

/* What expand may begin with, in the scratch that the step runs with. */
struct expand_first forward_first(const struct forward *forward, const struct batch *batch,
                                  void *scratch);

/* Enqueues the layers and what follows; the batch is expanded before. */
int forward_run(const struct forward *forward, const struct forward_step *step,
                struct error *error);
