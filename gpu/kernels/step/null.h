/* The whole of synthetic:null, in place of a model's layers and sampler; see null_rule.h.
 *
 * op_null computes the states of all rows, writes them into the cache and adds to pooled sums;
 * op_null_results, after it, gives samples, likeliest tokens, scores and embeddings, and stores
 * each sampled token in its slot. A KV block is block_tokens states of 8 bytes. Results as
 * op_sample, op_score and op_mean_pool_out give them. */
#pragma once

#include "gpu/kernels/common/batch.h"
#include "gpu/kernels/step/null_rule.h"
#include "gpu/kernels/step/step_begin.h"

struct null_args {
    struct batch batch;
    struct gpu_sample *samples; /* [samples_max] */
    struct gpu_top *tops;       /* [samples_max][GPU_LOGPROBS_MAX], the first top_count written */
    struct gpu_score *scores;   /* [scores_max] */
    struct gpu_top *score_tops; /* NULL, or [scores_max][GPU_LOGPROBS_MAX], see op_score */
    float *embeds;              /* [embeds_max][NULL_HIDDEN] */
    uint64_t *states;           /* [tokens_max] of the step's tokens: scratch */
};

/* A sampling (sample.h): a row's kept state is its slot's; sampled is the first token from
 * null_sample on, modulo the vocabulary, whose bit is set. Ends as op_sample does. */
struct null_masked_args {
    struct batch batch;
    const struct step_control *control;
    const uint32_t *masks; /* [samples_max][mask_words] */
    uint32_t mask_words;
};

OP_C cudaError_t op_null_masked(const struct null_masked_args *args, cudaStream_t stream);
OP_C cudaError_t op_null(const struct null_args *args, cudaStream_t stream);
OP_C cudaError_t op_null_results(const struct null_args *args, cudaStream_t stream);
