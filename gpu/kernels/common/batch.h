/* A step as kernels see it: what every row and token is, and the state of the slots.
 *
 * All of it is in device memory at addresses that never change, so that captured launches stay
 * valid; the first kernel of a step (expand) writes it from the plan. Kernels get struct batch by
 * value. The `max` members are the host's bounds for this launch (a bucket's size, or the exact
 * count of an eager step); true counts are in *counts.
 *
 * Lists that kernels index by token run in the order of rows; a row's tokens are consecutive.
 */
#pragma once

#include "gpu/gpu.h"
#include "gpu/kernels/common/kernel.h"

struct batch_counts {
    uint32_t rows, tokens, samples, scores, embeds, moves;
    uint32_t reserved[2];
};

struct batch_row {
    uint32_t slot;
    uint32_t position; /* of the row's first token */
    uint32_t q_len;    /* at least 1 */
    uint32_t token;    /* number of its first token in the step */
    uint32_t want;     /* GPU_SAMPLE ... */
    uint32_t drafts;   /* its last tokens that are guesses, fewer than q_len */
    uint32_t uncounted; /* so many tokens, at slot.before, that op_count adds first */
    uint32_t adapter;  /* 0: none */
};

/* One embedding of the results. */
struct batch_embed {
    uint32_t row;
    uint32_t token; /* whose final hidden state it is; unused for the mean */
    uint32_t mean; /* 1: the slot's sum over positions 0 .. position + q_len - 1, by their number */
    uint32_t normalize;
};

/* A sequence, from open to close. Written by expand, except where said. */
struct batch_slot {
    int32_t last;      /* token sampled last; written by op_sample, read by expand; of a row with
                          drafts neither: who knows which stand gives ids */
    uint32_t finished; /* `last` is an end token; written by op_sample */
    uint32_t flags;    /* GPU_SLOT_PENALTIES, GPU_SLOT_POOL, GPU_SLOT_MASKED */
    uint32_t logprobs; /* the n likeliest are wanted too, at most GPU_LOGPROBS_MAX */
    uint64_t seed;
    const int32_t *before; /* [first] ids, there while the step lasts that opens the slot; of a row
                              with `uncounted` so many, while its step lasts */
    void *kept;            /* GPU_SLOT_MASKED: where rows with GPU_KEEP leave their logits */
    struct sampler sampler;
    uint32_t prompt_len; /* tokens at positions from here on count as output */
    uint32_t
        eos_from; /* end tokens are masked for sampled positions below this; UINT32_MAX: always */
    uint32_t bias_count;
    uint32_t stop_count;
    uint32_t first; /* position of its first row */
    int32_t stop_ids[GPU_STOP_IDS_MAX];
};

/* KV of a layer group. Block b starts at
 *     (char *)slabs[b / slab_blocks] + (b % slab_blocks) * block_bytes
 * and holds, for each layer of the group, K and then V of block_tokens positions:
 *     [layer][K, V][kv_heads][block_tokens][head_dim]
 * so that one head's keys of one block are one contiguous piece (for head_dim 128 in 16 bits and 32
 * positions: 8 KiB). In e4m3 the positions of a head lie in pieces of KV_PIECE, each with a scale
 * for every position behind its elements, so that whoever has a block, or a piece of one, has its
 * scales:
 *     [layer][K, V][kv_heads][block_tokens / KV_PIECE]{ e4m3 [KV_PIECE][head_dim],
 *                                                       float32 [KV_PIECE] }
 * block_bytes is a multiple of 256. A slot's table entry j is the block of
 * positions j * block_tokens and on; entries below a window's reach may be stale and are not read.
 */
struct batch_group {
    const uint32_t *tables; /* [slots_max][blocks_max] block numbers */
    void *const *slabs; /* [slabs_max] base addresses, 256-aligned; stale where there is no slab */
    uint64_t block_bytes;
    uint32_t blocks_max;  /* table entries per slot */
    uint32_t slab_blocks; /* blocks per slab */
    uint32_t window;      /* a token sees itself and the window - 1 tokens before it; 0: all */
    uint32_t reserved;
};

struct batch {
    const struct batch_counts *counts;
    const struct batch_row *rows;     /* [rows] */
    const int32_t *token_id;          /* [tokens], every one within the vocabulary */
    const uint32_t *token_row;        /* [tokens] */
    const uint32_t *token_position;   /* [tokens] */
    const uint32_t *sample_row;       /* [samples] rows with GPU_SAMPLE, each 1 + drafts times */
    const uint32_t *sample_token;     /* [samples] the last tokens of each, 1 + drafts */
    const uint32_t *score_token;      /* [scores] the token whose successor is scored */
    const int32_t *score_target;      /* [scores] */
    const struct batch_embed *embeds; /* [embeds] */
    const struct gpu_move *moves;     /* [moves] */
    struct batch_slot *slots;         /* [slots_max] */
    const struct gpu_bias *bias;      /* [slots_max][GPU_BIAS_MAX] */
    uint16_t *seen; /* [slots_max][vocab], see count.h; only of slots with penalties */
    float *pool;    /* [slots_max][hidden] sums; only of slots with GPU_SLOT_POOL */
    uint32_t
        *next_item; /* a word, 0 between kernels: op_attention and op_sample count by it; CUDA */
    struct batch_group groups[GPU_GROUPS_MAX];
    uint32_t block_tokens; /* a power of two, 16 to 256 */
    uint32_t rows_max, tokens_max, samples_max, scores_max, embeds_max, moves_max;
    uint32_t q_len_max;      /* of any row; up to ATTENTION_DECODE_MAX takes the decode path */
    uint32_t context_max;    /* of position + q_len of any row */
    uint32_t decode_len_max; /* of the q_len of rows that take the decode path; 0: there are none */
    uint32_t prefill_rows_max, prefill_tokens_max; /* of the others */
    uint32_t prefill_context_max;
    uint64_t prefill_keys_max;  /* sum of their position + q_len */
    uint64_t prefill_pairs_max; /* sum of their (position + q_len) * q_len */
};

/* Where a layer's K and V are inside a block of its group, in bytes; and what they are kept in.
 *
 * A plain format: as numbers of its dtype. E4M3: a token's head of K (or V) is x, and what is kept
 * is e4m3(x / s), where e4m3() keeps to +-448, and s. s is what the checkpoint says for the layer,
 * else the greatest of |x| / 448 (no less than 2^-126; 1 where all are zeros); of a head that has an
 * element which is no finite number of what is computed in, s is NaN. What is read is e4m3 * s: readers know of no other
 * scale than the one in the block. */
struct kv_layer {
    uint64_t k, v;
    uint32_t group;
    enum format format;
};

#define KV_PIECE 16
#define KV_SCALE_MIN 0x1p-126f

/* The least float32 bits, without their sign, that are no finite number of a dtype. */
#define KV_MAGNITUDE_END(dtype) ((dtype) == DTYPE_F16 ? 0x477ff000u : 0x7f800000u)

/* K, or V, of one layer in a block, in bytes. */
static inline uint64_t kv_bytes(enum format format, uint32_t kv_heads, uint32_t block_tokens,
                                uint32_t head_dim)
{
    uint64_t positions = (uint64_t)kv_heads * block_tokens;
    uint64_t scales = format == FORMAT_E4M3 ? positions * sizeof(float) : 0;
    return format_bytes(format, positions, head_dim) + scales;
}
