/* What the bodies of attention share: where a row's keys are, and which of them are seen. */
#pragma once

#include "gpu/kernels/attention/attention.h"
#include "gpu/kernels/common/device.cuh"

#define ATTENTION_DECODE 1u  /* rows of up to ATTENTION_DECODE_MAX tokens */
#define ATTENTION_PREFILL 2u /* the others */

#define ATTENTION_LOG2E 1.4426950408889634f

/* A row's keys: positions first .. last. */
struct attention_row {
    const uint32_t *table;
    uint32_t position, q_len, token;
    uint32_t first, last;
    uint32_t split_first, splits; /* split_first is a number of absolute splits */
};

/* Of the first words of a struct batch_row: slot, position, q_len, token. */
__device__ __forceinline__ attention_row attention_row_of(const uint4 &row,
                                                          const struct batch_group &group)
{
    attention_row out;
    out.table = group.tables + (size_t)row.x * group.blocks_max;
    out.position = row.y;
    out.q_len = row.z;
    out.token = row.w;
    out.first = group.window && row.y >= group.window ? row.y - group.window + 1 : 0;
    out.last = row.y + row.z - 1;
    out.split_first = out.first / ATTENTION_SPLIT;
    out.splits = out.last / ATTENTION_SPLIT - out.split_first + 1;
    return out;
}

__device__ __forceinline__ attention_row attention_row_at(const struct batch &batch,
                                                          const struct batch_group &group,
                                                          uint32_t index)
{
    return attention_row_of(*reinterpret_cast<const uint4 *>(&batch.rows[index]), group);
}

/* A head's sink joins the sum of a query, whose scores' maximum is `most`, in powers of two: what
 * the query's outputs are multiplied by before they are divided by the sum. Without sinks 1. */
__device__ __forceinline__ float attention_sink(const struct attention_args &a, uint32_t head,
                                                float most, float *sum)
{
    if (!a.sinks)
        return 1.0f;
    float sink = __fmul_rn(__ldg(a.sinks + head), ATTENTION_LOG2E), above = fmaxf(most, sink);
    float kept = exp2f(most - above);
    *sum = __fmaf_rn(*sum, kept, exp2f(sink - above));
    return kept;
}

/* Where the key (part: kv.k) or value (kv.v) of a position is, of one KV head, in block `block`. */
__device__ __forceinline__ const char *attention_place_in(const struct batch_group &group,
                                                          uint32_t block, uint32_t block_shift,
                                                          uint32_t position, uint32_t head,
                                                          uint64_t part, uint32_t row_bytes)
{
    uint32_t slab = block / group.slab_blocks;
    const char *base = reinterpret_cast<const char *>(__ldg(
                           reinterpret_cast<const unsigned long long *>(group.slabs) + slab)) +
                       (size_t)(block - slab * group.slab_blocks) * group.block_bytes + part;
    uint32_t inside = position & ((1u << block_shift) - 1);
    return base + (((size_t)head << block_shift) + inside) * row_bytes;
}

__device__ __forceinline__ const char *attention_place(const struct batch_group &group,
                                                       const uint32_t *table, uint32_t block_shift,
                                                       uint32_t position, uint32_t head,
                                                       uint64_t part, uint32_t row_bytes)
{
    return attention_place_in(group, __ldg(table + (position >> block_shift)), block_shift,
                              position, head, part, row_bytes);
}

/* Bodies; each takes the rows of `which` and leaves the others alone. The tuned ones know one
 * dtype, and take away from `left` what they have taken. */
cudaError_t attention_any(const struct attention_args *args, uint32_t which, cudaStream_t stream);
namespace bf16
{
cudaError_t attention_tuned(const struct attention_args *args, uint32_t *left, cudaStream_t stream);
}
namespace f16
{
cudaError_t attention_tuned(const struct attention_args *args, uint32_t *left, cudaStream_t stream);
}
