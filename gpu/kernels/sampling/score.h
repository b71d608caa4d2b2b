/* Log-probabilities of targets: scores[first + i] = log_softmax(logits[i])[score_target[first +
 * i]], and the likeliest token with its own. Ties go to the lowest id. Works through a step's
 * scored positions in chunks: rows.count is &batch.counts->scores. */
#pragma once

#include "gpu/gpu.h"
#include "gpu/kernels/common/kernel.h"

struct score_args {
    struct row_range rows;
    const float *logits; /* [max][stride] */
    uint32_t stride, vocab;
    const int32_t *targets;   /* batch.score_target, each within the vocabulary */
    struct gpu_score *scores; /* of the whole step */
};

OP_C cudaError_t op_score(const struct score_args *args, cudaStream_t stream);
