/* A thread per row and per result: a row's states are a chain, and nothing here is worth more. */
#include "gpu/kernels/common/device.cuh"
#include "gpu/kernels/step/null.h"

#define NULL_THREADS 64

__device__ static uint64_t *state_at(const struct batch &batch, uint32_t slot, uint32_t position)
{
    const struct batch_group &group = batch.groups[0];
    uint32_t block = group.tables[(size_t)slot * group.blocks_max + position / batch.block_tokens];
    char *base = static_cast<char *>(group.slabs[block / group.slab_blocks]) +
                 (block % group.slab_blocks) * group.block_bytes;
    return reinterpret_cast<uint64_t *>(base) + position % batch.block_tokens;
}

__global__ void null_rows_kernel(struct null_args a)
{
    grid_trigger();
    grid_wait();
    const struct batch &batch = a.batch;
    uint32_t number = blockIdx.x * blockDim.x + threadIdx.x;
    if (number >= batch.counts->rows)
        return;
    struct batch_row row = batch.rows[number];
    float *pool = batch.pool + (size_t)row.slot * NULL_HIDDEN;
    uint64_t state = row.position ? *state_at(batch, row.slot, row.position - 1) : NULL_START;
    for (uint32_t i = 0; i < row.q_len; i++) {
        uint32_t position = row.position + i;
        state = null_state(state, batch.token_id[row.token + i]);
        *state_at(batch, row.slot, position) = state;
        a.states[row.token + i] = state;
        if (!(row.want & GPU_POOL_ADD))
            continue;
        for (uint32_t e = 0; e < NULL_HIDDEN; e++)
            pool[e] = (position ? pool[e] : 0) + null_hidden(state, e);
    }
}

/* Of the row's sample, whose token is known. */
__device__ static void sample_put(struct batch_slot *slot, bool leave, uint64_t state,
                                  int32_t token, bool may_end, uint32_t tops,
                                  struct gpu_sample *sample, struct gpu_top *top)
{
    bool stop = token == NULL_END;
    for (uint32_t i = 0; i < slot->stop_count; i++)
        stop = stop || slot->stop_ids[i] == token;
    *sample = {token, may_end && stop, null_logprob(state, token), tops};
    for (uint32_t i = 0; i < tops; i++)
        top[i] = {null_top(state, i), null_logprob(state, null_top(state, i))};
    if (!leave) /* the slot's next row brings its token */
        return;
    slot->last = token;
    slot->finished = may_end && stop;
}

__device__ static void sample_run(const struct null_args &a, uint32_t number)
{
    const struct batch &batch = a.batch;
    struct batch_row row = batch.rows[batch.sample_row[number]];
    struct batch_slot *slot = &batch.slots[row.slot];
    uint32_t token = batch.sample_token[number];
    uint64_t state = a.states[token];
    bool may_end = row.position + (token - row.token) + 1 >= slot->eos_from;
    if (row.want & GPU_KEEP) {
        *static_cast<uint64_t *>(slot->kept) = state;
        a.samples[number] = {-1, 0, 0, 0};
        return;
    }
    sample_put(slot, !row.drafts, state, null_sample(state, may_end), may_end,
               row.want & GPU_LOGPROBS ? slot->logprobs : 0, &a.samples[number],
               &a.tops[(size_t)number * GPU_LOGPROBS_MAX]);
}

__device__ static void score_run(const struct null_args &a, uint32_t number)
{
    const struct batch &batch = a.batch;
    uint32_t token = batch.score_token[number];
    uint64_t state = a.states[token];
    int32_t top = null_top(state, 0);
    struct gpu_score score = {null_logprob(state, batch.score_target[number]), top,
                              null_logprob(state, top), 0};
    a.scores[number] = score;
    const struct batch_row &row = batch.rows[batch.token_row[token]];
    if (!a.score_tops || !(row.want & GPU_LOGPROBS))
        return;
    for (uint32_t i = 0; i < batch.slots[row.slot].logprobs; i++) {
        struct gpu_top of = {null_top(state, i), null_logprob(state, null_top(state, i))};
        a.score_tops[(size_t)number * GPU_LOGPROBS_MAX + i] = of;
    }
}

__device__ static void embed_run(const struct null_args &a, uint32_t number)
{
    struct batch_embed embed = a.batch.embeds[number];
    struct batch_row row = a.batch.rows[embed.row];
    const float *pool = a.batch.pool + (size_t)row.slot * NULL_HIDDEN;
    float *out = a.embeds + (size_t)number * NULL_HIDDEN, squares = 0;
    for (uint32_t i = 0; i < NULL_HIDDEN; i++) {
        out[i] = embed.mean ? pool[i] / (float)(row.position + row.q_len)
                            : null_hidden(a.states[embed.token], i);
        squares += out[i] * out[i];
    }
    for (uint32_t i = 0; i < NULL_HIDDEN && embed.normalize && squares > 0; i++)
        out[i] /= sqrtf(squares);
}

__global__ void null_results_kernel(struct null_args a)
{
    grid_trigger();
    grid_wait();
    const struct batch &batch = a.batch;
    uint32_t number = blockIdx.x * blockDim.x + threadIdx.x;
    if (number < batch.counts->samples)
        sample_run(a, number);
    if (number < batch.counts->scores)
        score_run(a, number);
    if (number < batch.counts->embeds)
        embed_run(a, number);
}

cudaError_t op_null(const struct null_args *args, cudaStream_t stream)
{
    return launch(null_rows_kernel, dim3(ceil_div(args->batch.rows_max, NULL_THREADS)),
                  NULL_THREADS, 0, stream, *args);
}

cudaError_t op_null_results(const struct null_args *args, cudaStream_t stream)
{
    const struct batch &batch = args->batch;
    uint32_t count = batch.samples_max > batch.scores_max ? batch.samples_max : batch.scores_max;
    count = count > batch.embeds_max ? count : batch.embeds_max;
    return launch(null_results_kernel, dim3(ceil_div(count, NULL_THREADS)), NULL_THREADS, 0, stream,
                  *args);
}

/* One block of GPU_SAMPLING_ROWS_MAX threads. */
__global__ void null_masked_kernel(struct null_masked_args a)
{
    grid_trigger();
    grid_wait();
    const struct batch &batch = a.batch;
    const struct step_control control = *a.control;
    char *result = static_cast<char *>(control.result);
    uint32_t number = threadIdx.x;
    if (number < batch.samples_max) {
        struct batch_row row = batch.rows[batch.sample_row[number]];
        struct batch_slot *slot = &batch.slots[row.slot];
        uint64_t state = *static_cast<const uint64_t *>(slot->kept);
        bool may_end = row.position + row.q_len >= slot->eos_from;
        const uint32_t *mask = a.masks + (size_t)number * a.mask_words;
        sample_put(slot, true, state, null_sample_masked(state, may_end, mask), may_end,
                   slot->logprobs,
                   reinterpret_cast<struct gpu_sample *>(result + control.result_samples) + number,
                   reinterpret_cast<struct gpu_top *>(result + control.result_tops) +
                       (size_t)number * GPU_LOGPROBS_MAX);
    }
    if (number == 0)
        *reinterpret_cast<struct result_head *>(result) = {control.step, 0, 0, 0};
}

cudaError_t op_null_masked(const struct null_masked_args *args, cudaStream_t stream)
{
    return launch(null_masked_kernel, dim3(1), GPU_SAMPLING_ROWS_MAX, 0, stream, *args);
}
