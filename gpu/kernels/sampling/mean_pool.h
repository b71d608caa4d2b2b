/* Embeddings out of final hidden states.
 *
 * op_mean_pool_add: for rows with GPU_POOL_ADD, pool[slot] += hidden[t], position by position; a
 * row that starts at position 0 starts the sum. op_mean_pool_out, after it: the embeddings of
 * batch.embeds, float32, divided by their length where wanted (a vector of zeros stays one). */
#pragma once

#include "gpu/kernels/common/batch.h"

struct mean_pool_args {
    struct batch batch;
    const void *hidden; /* [tokens_max][stride], after the final norm */
    uint32_t size, stride;
    enum dtype dtype;
    float *out; /* op_mean_pool_out: [embeds_max][size] */
};

OP_C cudaError_t op_mean_pool_add(const struct mean_pool_args *args, cudaStream_t stream);
OP_C cudaError_t op_mean_pool_out(const struct mean_pool_args *args, cudaStream_t stream);
