/* A plan as it goes to the device: one packed copy, read by the step's first kernel (expand).
 *
 * The host resolves what it knows: which token of the step a row begins at, where its results go,
 * at which address a new slab lies. Sections follow the head, each aligned to 8 bytes. Also read by
 * .cu files. Plain data; any thread.
 */
#pragma once

#include <stdbool.h>

#include "gpu/gpu.h"
#include "gpu/kernels/step/packed_plan.h"

/* The most that a plan or its results within the limits take, in bytes. */
size_t pack_bytes_max(const struct gpu_limits *limits);
size_t result_bytes_max(const struct gpu_limits *limits, uint32_t hidden);

/* What a row's flags do not say of a step's results: for which some row asks for the likeliest
 * tokens, too, and whether the draft model reads rows in a step of its own. */
struct result_more {
    bool sample_tops, score_tops, reads;
};

#define PACK_READING UINT32_MAX /* in place of a small step's number: the one that reads */

static inline bool plan_row_is_read(const struct gpu_row *row)
{
    return row->want & GPU_DRAFT && !row->drafts;
}

/* Counts what the plan's rows give, and where each array lies. */
void result_layout_set(struct result_layout *layout, const struct gpu_plan *plan, uint32_t hidden,
                       struct result_more more);

/* Where the heads lie in what is written: the model's step, and before that the draft model's, the
 * one that reads as the last. */
struct pack_place {
    uint32_t model, drafts[GPU_DRAFTS_MAX + 1];
};

/* Writes the plan to `to`, which has room for pack_bytes_max; returns the bytes written.
 * `draft_plan` gives the j-th small step of the draft model (or PACK_READING), `slab_base` a slab's
 * device address, `slot_adapter` the adapter of an open slot; NULL: the model has none. */
struct pack_source {
    const struct gpu_plan *plan;
    const struct result_layout *layout;
    void *result;
    const int32_t *tokens_in; /* device, as in the head */
    int32_t *tokens_out;
    char *kept; /* device; where slots keep logits, kept_slot bytes each */
    uint64_t kept_slot;
    int32_t *guesses; /* device, as in the head */
    uint32_t guess_stride;
    void (*draft_plan)(const void *context, const struct gpu_plan *plan, uint32_t j,
                       struct gpu_plan *ret);
    void *(*slab_base)(const void *context, uint32_t group, uint32_t slab);
    uint32_t (*slot_adapter)(const void *context, uint32_t slot);
    const void *context;
};
size_t pack_write(void *to, const struct pack_source *source, struct pack_place *ret_place);
