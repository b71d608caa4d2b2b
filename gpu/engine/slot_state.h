/* What a rank's device holds from step to step, and the batch of the step that runs: one piece of
 * fixed memory, cut into the arrays that struct batch points at.
 *
 * Addresses never change, so captured steps stay valid. Only kernels write here: expand from the
 * plan, the sampler each slot's last token. The counts of seen tokens (vocabulary x slots) are an
 * exception: they exist from the first slot with penalties on until the engine is idle without one;
 * likewise logits that are kept for masks.
 *
 * Thread: the rank's own. Memory is mem's.
 */
#pragma once

#include "gpu/kernels/step/step_begin.h"
#include "gpu/memory/pools.h"

struct state {
    struct batch batch; /* its bounds are the limits; a step takes a copy with its own */
    struct step_control *control;
    struct gpu_sample *samples; /* [rows_max], where the sampler writes */
    struct gpu_top *tops;       /* [rows_max][GPU_LOGPROBS_MAX] */
    void *memory;
    uint64_t memory_bytes;
    uint64_t seen_bytes;
    /* Of slots with GPU_SLOT_MASKED: the logits of their last rows, and behind them what a sampling
     * needs; NULL: no slot has had any since the engine was idle. */
    char *kept;
    uint64_t kept_slot, kept_bytes; /* of one slot, and of all of it */
};

/* Device memory, not yet zeroed: the caller does that, as part of set-up. `groups`: the model's, as
 * this rank holds them. */
int state_open(struct state *state, struct mem *mem, const struct gpu_model *model,
               const struct gpu_group *groups, const struct gpu_limits *limits,
               struct error *error);

/* Makes batch.seen when there is none; ERR_DEVICE_MEMORY when it cannot be had. */
int state_seen_take(struct state *state, struct mem *mem, struct error *error);
/* The same for `kept`. */
int state_kept_take(struct state *state, struct mem *mem, struct error *error);
int state_kept_give(struct state *state, struct mem *mem, struct error *error);
int state_seen_give(struct state *state, struct mem *mem, struct error *error);
