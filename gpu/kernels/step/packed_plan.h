/* A plan as it lies on the device: one packed copy, read by the step's first kernel (step_begin).
 * Sections follow the head, each aligned to 8 bytes. Plain data, also read by .cu files.
 */
#pragma once

#include "gpu/kernels/common/batch.h"

struct pack_slab {
    uint32_t group, slab;
    void *base;
};

struct pack_open {
    uint32_t slot;
    uint32_t bias_first; /* in the section of biases; batch_slot.bias_count of them */
    uint32_t seen_first; /* in the section of ids; what state.before is to point to */
    uint32_t reserved;
    struct batch_slot state;
};

#define PACK_NONE UINT32_MAX

struct pack_row {
    struct batch_row row;
    uint32_t ids;    /* first id in the section of ids; PACK_NONE: the slot's last token */
    uint32_t sample; /* number of its sample in the results; PACK_NONE: none */
    uint32_t score_first, score_count; /* in the results */
    uint32_t embed_first, embed_count; /* 1, or q_len for every position */
    uint32_t score_from; /* as gpu_row.score_from */
    uint32_t reserved;
};

/* Offsets in bytes from the head on. */
struct pack_head {
    uint64_t step;
    uint32_t bytes; /* of the whole, head included */
    uint32_t slab_count, open_count, append_count, move_count;
    uint32_t slabs, opens, appends, moves, rows, ids, bias;
    struct batch_counts counts;
    void *result; /* device address of the step's results, see struct result_layout */
    uint32_t result_samples, result_tops; /* offsets there; result_tops 0: no likeliest wanted */
    const int32_t *tokens_in; /* [slots] last tokens, from elsewhere; NULL: the slots' own */
    int32_t *tokens_out;      /* [slots] where they are left; NULL: nowhere else */
    /* The j-th guess of a slot is guesses[j * guess_stride + slot], of rows with GPU_DRAFT. */
    const int32_t *guesses;
    uint32_t guess_stride, reserved;
};

/* Results of a step in one piece of memory, device and host alike: a head, then the arrays. */
struct result_head {
    uint64_t step, start_ns, end_ns, reserved;
};

struct result_layout {
    uint32_t sample_count, score_count, embed_count;
    uint32_t samples, tops, scores, score_tops, embeds; /* offsets; tops 0: none wanted */
    uint32_t draft_steps; /* of the draft model before it: each has a head and samples */
    bool reads;           /* one more step of it is behind, which has no samples */
    uint32_t draft_rows[GPU_DRAFTS_MAX + 1], drafts[GPU_DRAFTS_MAX + 1];
    uint32_t bytes;
};
