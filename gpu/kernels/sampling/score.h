/* Log-probabilities of targets: scores[first + i] = log_softmax(logits[i])[score_target[first +
 * i]], and the likeliest token with its own; and as many of the likeliest as the position's slot
 * asks, where its row wants them. Ties go to the lowest id. Works through a step's
 * scored positions in chunks: rows.count is &batch.counts->scores. */
#pragma once

#include "gpu/gpu.h"
#include "gpu/kernels/common/batch.h"

struct score_args {
    struct row_range rows;
    const float *logits; /* [max][stride] */
    uint32_t stride, vocab;
    const int32_t *targets;   /* batch.score_target, each within the vocabulary */
    struct gpu_score *scores; /* of the whole step */
    /* NULL, or [scores of the step][GPU_LOGPROBS_MAX]: the likeliest first, ties to the lowest
     * id; behind the last of a small vocabulary token -1. Positions that want none are left. */
    struct gpu_top *tops;
    /* With tops: whose position it is, as in struct batch. */
    const uint32_t *tokens, *token_row;
    const struct batch_row *batch_rows;
    const struct batch_slot *slots;
};

OP_C cudaError_t op_score(const struct score_args *args, cudaStream_t stream);
