#include "gpu/kernels/step/null.h"

#include <math.h>

#include "gpu/emu/emu.h"

/* Rows, or results, that one index does: a few microseconds. */
#define PIECE 16

static uint64_t *state_at(const struct batch *batch, uint32_t slot, uint32_t position)
{
    const struct batch_group *group = &batch->groups[0];
    const uint32_t *table = dev(group->tables + (size_t)slot * group->blocks_max);
    void *const *slabs = dev(group->slabs);
    uint32_t block = table[position / batch->block_tokens];
    char *base = (char *)slabs[block / group->slab_blocks] +
                 (uint64_t)(block % group->slab_blocks) * group->block_bytes;
    return (uint64_t *)dev(base) + position % batch->block_tokens;
}

static void row_run(const struct null_args *args, const struct batch_row *row)
{
    const struct batch *batch = &args->batch;
    uint64_t *states = dev(args->states + row->token);
    const int32_t *ids = dev(batch->token_id + row->token);
    float *pool = dev(batch->pool + (size_t)row->slot * NULL_HIDDEN);
    uint64_t state = row->position ? *state_at(batch, row->slot, row->position - 1) : NULL_START;
    for (uint32_t i = 0; i < row->q_len; i++) {
        uint32_t position = row->position + i;
        state = null_state(state, ids[i]);
        *state_at(batch, row->slot, position) = state;
        states[i] = state;
        if (!(row->want & GPU_POOL_ADD))
            continue;
        for (uint32_t e = 0; e < NULL_HIDDEN; e++)
            pool[e] = (position ? pool[e] : 0) + null_hidden(state, e);
    }
}

static void null_rows(const void *data, uint32_t index)
{
    const struct null_args *args = data;
    const struct batch *batch = &args->batch;
    const struct batch_counts *counts = dev(batch->counts);
    const struct batch_row *rows = dev(batch->rows);
    for (uint32_t i = index * PIECE; i < (index + 1) * PIECE && i < counts->rows; i++)
        row_run(args, &rows[i]);
}

static uint64_t token_state(const struct null_args *args, uint32_t token)
{
    return ((const uint64_t *)dev(args->states))[token];
}

static bool is_stop(const struct batch_slot *slot, int32_t token)
{
    for (uint32_t i = 0; i < slot->stop_count; i++) {
        if (slot->stop_ids[i] == token)
            return true;
    }
    return false;
}

/* Of the row's sample, whose token is known. */
static void sample_put(const struct batch_slot *slot, uint64_t state, int32_t token, bool may_end,
                       uint32_t tops, struct gpu_sample *sample, struct gpu_top *top)
{
    *sample = (struct gpu_sample){
        .token = token,
        .finished = may_end && (token == NULL_END || is_stop(slot, token)),
        .logprob = null_logprob(state, token),
        .top_count = tops,
    };
    for (uint32_t i = 0; i < tops; i++) {
        int32_t id = null_top(state, i);
        top[i] = (struct gpu_top){.token = id, .logprob = null_logprob(state, id)};
    }
}

/* For the slot's next row. */
static void sample_leave(struct batch_slot *slot, const struct gpu_sample *sample)
{
    slot->last = sample->token;
    slot->finished = sample->finished;
}

static void sample_run(const struct null_args *args, uint32_t number)
{
    const struct batch *batch = &args->batch;
    const struct batch_row *row =
        (const struct batch_row *)dev(batch->rows) + ((uint32_t *)dev(batch->sample_row))[number];
    struct batch_slot *slot = (struct batch_slot *)dev(batch->slots) + row->slot;
    uint32_t token = ((uint32_t *)dev(batch->sample_token))[number];
    uint64_t state = token_state(args, token);
    bool may_end = row->position + (token - row->token) + 1 >= slot->eos_from;
    uint32_t tops = row->want & GPU_LOGPROBS ? slot->logprobs : 0;
    struct gpu_sample *sample = (struct gpu_sample *)dev(args->samples) + number;
    struct gpu_top *top = (struct gpu_top *)dev(args->tops) + (size_t)number * GPU_LOGPROBS_MAX;
    if (row->want & GPU_KEEP) {
        *(uint64_t *)dev(slot->kept) = state;
        *sample = (struct gpu_sample){.token = -1};
        return;
    }
    sample_put(slot, state, null_sample(state, may_end), may_end, tops, sample, top);
    if (!row->drafts)
        sample_leave(slot, sample);
}

static void score_run(const struct null_args *args, uint32_t number)
{
    const struct batch *batch = &args->batch;
    uint32_t token = ((uint32_t *)dev(batch->score_token))[number];
    uint64_t state = token_state(args, token);
    int32_t target = ((int32_t *)dev(batch->score_target))[number];
    int32_t top = null_top(state, 0);
    ((struct gpu_score *)dev(args->scores))[number] = (struct gpu_score){
        .logprob = null_logprob(state, target),
        .top_token = top,
        .top_logprob = null_logprob(state, top),
    };
    const struct batch_row *row =
        (const struct batch_row *)dev(batch->rows) + ((uint32_t *)dev(batch->token_row))[token];
    if (!args->score_tops || !(row->want & GPU_LOGPROBS))
        return;
    uint32_t tops = ((const struct batch_slot *)dev(batch->slots))[row->slot].logprobs;
    struct gpu_top *to =
        (struct gpu_top *)dev(args->score_tops) + (size_t)number * GPU_LOGPROBS_MAX;
    for (uint32_t i = 0; i < tops; i++)
        to[i] = (struct gpu_top){null_top(state, i), null_logprob(state, null_top(state, i))};
}

static void embed_run(const struct null_args *args, uint32_t number)
{
    const struct batch *batch = &args->batch;
    const struct batch_embed *embed = (const struct batch_embed *)dev(batch->embeds) + number;
    const struct batch_row *row = (const struct batch_row *)dev(batch->rows) + embed->row;
    const float *pool = dev(batch->pool + (size_t)row->slot * NULL_HIDDEN);
    float *out = (float *)dev(args->embeds) + (size_t)number * NULL_HIDDEN;
    uint64_t state = embed->mean ? 0 : token_state(args, embed->token);
    float squares = 0;
    for (uint32_t i = 0; i < NULL_HIDDEN; i++) {
        out[i] =
            embed->mean ? pool[i] / (float)(row->position + row->q_len) : null_hidden(state, i);
        squares += out[i] * out[i];
    }
    for (uint32_t i = 0; i < NULL_HIDDEN && embed->normalize && squares > 0; i++)
        out[i] /= sqrtf(squares);
}

static void null_results(const void *data, uint32_t index)
{
    const struct null_args *args = data;
    const struct batch_counts *counts = dev(args->batch.counts);
    for (uint32_t i = index * PIECE; i < (index + 1) * PIECE; i++) {
        if (i < counts->samples)
            sample_run(args, i);
        if (i < counts->scores)
            score_run(args, i);
        if (i < counts->embeds)
            embed_run(args, i);
    }
}

static uint32_t pieces(uint32_t count)
{
    return (count + PIECE - 1) / PIECE;
}

cudaError_t op_null(const struct null_args *args, cudaStream_t stream)
{
    if (!args->batch.rows_max)
        return cudaSuccess;
    return emu_launch(stream, "null", null_rows, args, sizeof *args, pieces(args->batch.rows_max));
}

static uint32_t greatest(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

cudaError_t op_null_results(const struct null_args *args, cudaStream_t stream)
{
    const struct batch *batch = &args->batch;
    uint32_t count = greatest(batch->samples_max, greatest(batch->scores_max, batch->embeds_max));
    if (!count)
        return cudaSuccess;
    return emu_launch(stream, "null results", null_results, args, sizeof *args, pieces(count));
}

static void masked_run(const struct null_masked_args *args, uint32_t number)
{
    const struct batch *batch = &args->batch;
    const struct batch_row *row =
        (const struct batch_row *)dev(batch->rows) + ((uint32_t *)dev(batch->sample_row))[number];
    struct batch_slot *slot = (struct batch_slot *)dev(batch->slots) + row->slot;
    const struct step_control *control = dev(args->control);
    char *result = dev(control->result);
    struct gpu_sample *samples = (struct gpu_sample *)(result + control->result_samples);
    struct gpu_top *tops = (struct gpu_top *)(result + control->result_tops);
    const uint32_t *mask = (const uint32_t *)dev(args->masks) + (size_t)number * args->mask_words;
    uint64_t state = *(const uint64_t *)dev(slot->kept);
    bool may_end = row->position + row->q_len >= slot->eos_from;
    sample_put(slot, state, null_sample_masked(state, may_end, mask), may_end, slot->logprobs,
               &samples[number], tops + (size_t)number * GPU_LOGPROBS_MAX);
    sample_leave(slot, &samples[number]);
}

static void null_masked(const void *data, uint32_t index)
{
    const struct null_masked_args *args = data;
    (void)index;
    for (uint32_t i = 0; i < args->batch.samples_max; i++)
        masked_run(args, i);
    const struct step_control *control = dev(args->control);
    *(struct result_head *)dev(control->result) = (struct result_head){.step = control->step};
}

cudaError_t op_null_masked(const struct null_masked_args *args, cudaStream_t stream)
{
    return emu_launch(stream, "null masked", null_masked, args, sizeof *args, 1);
}
