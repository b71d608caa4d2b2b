/* The whole of synthetic:null, in place of a model's layers and sampler; see null_rule.h.
 *
 * op_null computes the states of all rows, writes them into the cache and adds to pooled sums;
 * op_null_results, after it, gives samples, likeliest tokens, scores and embeddings, and stores
 * each sampled token in its slot. A KV block is block_tokens states of 8 bytes. Results as
 * op_sample, op_score and op_mean_pool_out give them. */
#pragma once

#include "gpu/kernels/common/batch.h"
#include "gpu/kernels/step/null_rule.h"

struct null_args {
    struct batch batch;
    struct gpu_sample *samples; /* [samples_max] */
    struct gpu_top *tops;       /* [samples_max][GPU_LOGPROBS_MAX], the first top_count written */
    struct gpu_score *scores;   /* [scores_max] */
    struct gpu_top *score_tops; /* NULL, or [scores_max][GPU_LOGPROBS_MAX], see op_score */
    float *embeds;              /* [embeds_max][NULL_HIDDEN] */
    uint64_t *states;           /* [tokens_max] of the step's tokens: scratch */
};

OP_C cudaError_t op_null(const struct null_args *args, cudaStream_t stream);
OP_C cudaError_t op_null_results(const struct null_args *args, cudaStream_t stream);
