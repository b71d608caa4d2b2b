#include "gpu/kernels/sampling/count.h"

#include "gpu/kernels/cpu/body.h"

static void count_token(uint16_t *entry, bool prompt)
{
    if (prompt)
        *entry |= COUNT_PROMPT;
    else if ((*entry & COUNT_MAX) < COUNT_MAX)
        ++*entry;
}

static void count_row(const void *params, uint32_t index)
{
    const struct count_args *args = params;
    const struct batch *batch = &args->batch;
    if (index >= ((const struct batch_counts *)dev(batch->counts))->rows)
        return;
    const struct batch_row *row = (const struct batch_row *)dev(batch->rows) + index;
    const struct batch_slot *slot = (const struct batch_slot *)dev(batch->slots) + row->slot;
    if (!(slot->flags & GPU_SLOT_PENALTIES))
        return;
    uint16_t *seen = (uint16_t *)dev(batch->seen) + (size_t)row->slot * args->vocab;
    const int32_t *ids = (const int32_t *)dev(batch->token_id) + row->token;
    if (row->position == slot->first) {
        memset(seen, 0, args->vocab * sizeof *seen);
        for (uint32_t i = 0; i < slot->first; i++)
            count_token(seen + ((const int32_t *)dev(slot->before))[i], i < slot->prompt_len);
    }
    const int32_t *before = row->uncounted ? dev(slot->before) : NULL;
    for (uint32_t i = 0; i < row->uncounted; i++)
        count_token(seen + before[i], row->position - row->uncounted + i < slot->prompt_len);
    for (uint32_t i = 0; i < row->q_len - row->drafts; i++)
        count_token(seen + ids[i], row->position + i < slot->prompt_len);
}

cudaError_t op_count(const struct count_args *args, cudaStream_t stream)
{
    return body_launch(stream, "count", count_row, args, sizeof *args, args->batch.rows_max);
}
