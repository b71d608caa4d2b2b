/* The scratch of one step of a real model, cut into what its ops read and write.
 *
 * `x` is a layer's normed input. The residual is float32 on every device: it is what roundings add
 * up in, layer after layer. So is `delta`, what is added to it, which has no bound that F16 would
 * hold; but sums over ranks travel in the compute dtype, half as many bytes, and cuBLASLt has no
 * bias of that dtype for float32 results: there delta is x, which norm reads and writes in place
 * (forward_delta_dtype).
 *
 * Attention, the MLP and the head never need their parts at once, so these lie over one another.
 * What is not needed is NULL. Addresses follow from the batch's bounds alone. Any thread; owns
 * nothing.
 */
#pragma once

#include "gpu/forward.h"

struct room {
    void *residual, *x, *delta;
    float *angles;
    float *squares; /* of the residual: what products of few rows hand on (product.h) */
    void *workspace;
    void *qkv, *attended, *attend_scratch;
    void *gate_up, *activated;
    void *picked; /* hidden states whose logits are wanted */
    float *logits;
    void *sample_scratch;
    size_t attend_bytes, sample_bytes;
    uint32_t logit_rows; /* of one chunk of scored positions */
    uint64_t bytes;
};

/* Without a base: sizes alone, every piece NULL. */
void room_cut(struct room *room, char *base, const struct forward *forward,
              const struct batch *batch);

/* Values of a token's q, k and v, which stand side by side. */
static inline uint32_t room_qkv_width(const struct model_config *config)
{
    return (config->heads + 2 * config->kv_heads) * config->head_dim;
}
