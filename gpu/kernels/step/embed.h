/* Token ids to hidden states: out[t] = table[token_id[t]] * scale. */
#pragma once

#include "gpu/kernels/common/batch.h"

struct embed_args {
    struct batch batch;
    struct weight table; /* n = vocabulary, k = hidden */
    void *out;           /* [tokens_max][stride] */
    uint32_t stride;
    enum dtype out_dtype;
    float scale; /* 0 stands for 1 */
};

OP_C cudaError_t op_embed(const struct embed_args *args, cudaStream_t stream);
