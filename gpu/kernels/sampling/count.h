/* The tokens that a sequence has seen, for penalties: adds this step's tokens to batch.seen.
 *
 * A row's drafts are not counted: those that stand come with a later row, as `uncounted`, and are.
 * Only for slots with GPU_SLOT_PENALTIES. A slot's first row clears its counts first, and counts
 * the tokens before it, which were read by others. An entry has COUNT_PROMPT set when the token
 * stood at a position below prompt_len, and counts its occurrences from there on in the other bits,
 * up to COUNT_MAX. Runs before op_sample of the same step: every token before the sampled one was
 * then an input once. */
#pragma once

#include "gpu/kernels/common/batch.h"

#define COUNT_PROMPT 0x8000u
#define COUNT_MAX 0x7fffu

struct count_args {
    struct batch batch;
    uint32_t vocab;
};

OP_C cudaError_t op_count(const struct count_args *args, cudaStream_t stream);
