/* Causal attention of a step's tokens over the blocks of their slots; grouped queries, optional
 * window, optional cap of scores, optional sinks.
 *
 * out[t][h] = sum over positions p of softmax(scale * q[t][h] . k[p]) * v[p], p from the window's
 * start to the token's own position. K and V of the step's own tokens are in the cache already
 * (op_rope). With a cap a score s, scale included, is softcap * tanh(s / softcap) instead, and no
 * number where s was infinite. With sinks a head has one score more, as it is, and no value: sums
 * of exponentials have exp(sinks[h]), and so weights add up to less than 1.
 *
 * A sequence is split at multiples of ATTENTION_SPLIT positions. Each split gives its maximum m,
 * its sum l of exp(s - m) and its unscaled output o; splits are combined from the first to the
 * last: M = max(m, m'), l = l * exp(m - M) + l' * exp(m' - M), o likewise; behind the last a sink, of l' = 1 and
 * o' = 0; at the end o / l. So bits depend neither on the batch nor on how the prompt was cut into
 * rows (CUDA: within the decode path of up to 16 rows, of more rows, and within the prefill path;
 * there steps of few queries behind long contexts have others, by how many they are and by what is
 * before them; with `invariant` all rows go one path). Query head h reads KV head h /
 * (heads / kv_heads). */
#pragma once

#include "gpu/kernels/common/batch.h"

#define ATTENTION_SPLIT 256
#define ATTENTION_DECODE_MAX 8 /* q_len up to this takes the decode path on CUDA */
#define ATTENTION_HEAD_DIM_MAX 256

struct attention_args {
    struct batch batch;
    struct kv_layer kv;
    const void *q; /* [tokens_max][q_stride]: heads * head_dim, the q part of qkv */
    void *out;     /* [tokens_max][out_stride] */
    uint32_t q_stride, out_stride;
    enum dtype dtype;                   /* of q and out */
    uint32_t heads, kv_heads, head_dim; /* of this rank; heads is a multiple of kv_heads */
    float scale;
    float softcap;      /* 0: none */
    const float *sinks; /* [heads]; NULL: none */
    void
        *scratch; /* attention_scratch_bytes() of the scratch class, aligned; NULL when that is 0 */
    size_t scratch_bytes;
    bool invariant; /* bits do not depend on how a row was cut either: one path on CUDA, too */
};

/* The batch's bounds that depend on how long its rows are: of no row, and with one more. */
static inline void attention_bounds_clear(struct batch *batch)
{
    batch->q_len_max = batch->decode_len_max = batch->context_max = 0;
    batch->prefill_rows_max = batch->prefill_tokens_max = batch->prefill_context_max = 0;
    batch->prefill_keys_max = batch->prefill_pairs_max = 0;
}

static inline void attention_bounds_add(struct batch *batch, uint32_t position, uint32_t q_len)
{
    uint32_t context = position + q_len;
    if (q_len > ATTENTION_DECODE_MAX) {
        batch->prefill_rows_max++;
        batch->prefill_tokens_max += q_len;
        batch->prefill_keys_max += context;
        batch->prefill_pairs_max += (uint64_t)context * q_len;
        if (context > batch->prefill_context_max)
            batch->prefill_context_max = context;
    } else if (q_len > batch->decode_len_max) {
        batch->decode_len_max = q_len;
    }
    if (q_len > batch->q_len_max)
        batch->q_len_max = q_len;
    if (context > batch->context_max)
        batch->context_max = context;
}

/* Room for the splits' partial results, for these bounds. 0 on the CPU device. */
OP_C size_t attention_scratch_bytes(const struct batch *bounds, uint32_t heads, uint32_t head_dim);

OP_C cudaError_t op_attention(const struct attention_args *args, cudaStream_t stream);
