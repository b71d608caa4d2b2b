#include "gpu/kernels/sampling/sample.h"

#include <math.h>

#include "gpu/kernels/cpu/body.h"
#include "gpu/kernels/cpu/choose.h"
#include "gpu/kernels/sampling/count.h"
#include "gpu/kernels/sampling/tops_cpu.h"
#include "gpu/kernels/step/step_end.h"

/* A row's raw distribution, and the copy that penalties and the like change. */
struct sample_row {
    const struct sample_args *args;
    const float *logits;
    float *scores;
    struct batch_slot *slot;
    uint32_t slot_index;
    uint32_t position; /* of the sampled token */
    const int32_t *drafts; /* the guesses before it */
    uint32_t draft_count;
    bool last;            /* its slot's next row may read the token from there */
    const uint32_t *mask; /* NULL: none */
    float greatest, log_sum;
};

static float sample_logprob(const struct sample_row *row, uint32_t token)
{
    return row->logits[token] - row->greatest - row->log_sum;
}

static bool sample_is_end(const struct sample_row *row, int32_t token)
{
    for (uint32_t i = 0; i < row->args->eos_count; i++)
        if (row->args->eos[i] == token)
            return true;
    for (uint32_t i = 0; i < row->slot->stop_count; i++)
        if (row->slot->stop_ids[i] == token)
            return true;
    return false;
}

/* With the guesses before the sampled token. */
static uint32_t sample_seen(const struct sample_row *row, uint16_t seen, uint32_t token)
{
    uint32_t count = seen & COUNT_MAX;
    for (uint32_t i = 0; i < row->draft_count && count < COUNT_MAX; i++)
        count += (uint32_t)row->drafts[i] == token;
    return (seen & COUNT_PROMPT) | count;
}

static void sample_penalties(const struct sample_row *row)
{
    const struct batch_slot *slot = row->slot;
    uint32_t vocab = row->args->vocab;
    const uint16_t *seen =
        (const uint16_t *)dev(row->args->batch.seen) + (size_t)row->slot_index * vocab;
    for (uint32_t i = 0; i < vocab; i++) {
        uint32_t entry = row->draft_count ? sample_seen(row, seen[i], i) : seen[i];
        if (!entry)
            continue;
        float score = row->scores[i], count = (float)(entry & COUNT_MAX);
        score = score > 0 ? score / slot->sampler.repetition_penalty
                          : score * slot->sampler.repetition_penalty;
        if (count > 0)
            score =
                score - slot->sampler.presence_penalty - slot->sampler.frequency_penalty * count;
        row->scores[i] = score;
    }
}

static void sample_mask(const struct sample_row *row, int32_t token)
{
    if ((uint32_t)token < row->args->vocab)
        row->scores[token] = -INFINITY;
}

static void sample_allow(const struct sample_row *row)
{
    for (uint32_t i = 0; i < row->args->vocab; i++)
        if (!(row->mask[i / 32] >> i % 32 & 1))
            row->scores[i] = -INFINITY;
}

static void sample_adjust(const struct sample_row *row)
{
    const struct batch_slot *slot = row->slot;
    memcpy(row->scores, row->logits, row->args->vocab * sizeof *row->scores);
    if (row->mask)
        sample_allow(row);
    if (slot->flags & GPU_SLOT_PENALTIES)
        sample_penalties(row);
    const struct gpu_bias *bias = (const struct gpu_bias *)dev(row->args->batch.bias) +
                                  (size_t)row->slot_index * GPU_BIAS_MAX;
    for (uint32_t i = 0; i < slot->bias_count; i++)
        if ((uint32_t)bias[i].token < row->args->vocab)
            row->scores[bias[i].token] += bias[i].value;
    if (row->position < slot->eos_from) {
        for (uint32_t i = 0; i < row->args->eos_count; i++)
            sample_mask(row, row->args->eos[i]);
        for (uint32_t i = 0; i < slot->stop_count; i++)
            sample_mask(row, slot->stop_ids[i]);
    }
}

static uint32_t sample_choose(const struct sample_row *row)
{
    const struct batch_slot *slot = row->slot;
    uint32_t vocab = row->args->vocab;
    sample_adjust(row);
    if (!(slot->sampler.temperature > 0))
        return choose_greatest(row->scores, vocab);
    for (uint32_t i = 0; i < vocab; i++) {
        float score = row->scores[i] / slot->sampler.temperature;
        row->scores[i] = score == score ? score : -INFINITY;
    }
    struct choose choose = {
        .scores = row->scores,
        .vocab = vocab,
        .sampler = &slot->sampler,
        .seed = slot->seed,
        .position = row->position,
    };
    return choose_draw(&choose);
}

static uint32_t sample_top(const struct sample_row *row, uint32_t wanted, struct gpu_top *tops)
{
    uint32_t count = tops_find(row->logits, row->args->vocab, wanted, tops);
    for (uint32_t i = 0; i < count; i++)
        tops[i].logprob = sample_logprob(row, (uint32_t)tops[i].token);
    return count;
}

/* To where the step's control says, if there is one. */
static void sample_result(const struct sample_args *args, struct gpu_sample **ret_samples,
                          struct gpu_top **ret_tops)
{
    if (!args->control)
        return;
    const struct step_control *control = dev(args->control);
    char *result = dev(control->result);
    *ret_samples = (struct gpu_sample *)(result + control->result_samples);
    if (control->result_tops)
        *ret_tops = (struct gpu_top *)(result + control->result_tops);
}

/* No token yet: who knows its mask samples it. */
static void sample_keep(const struct sample_row *row, struct gpu_sample *sample)
{
    memcpy(dev(row->slot->kept), row->logits, row->args->vocab * sizeof *row->logits);
    *sample = (struct gpu_sample){.token = -1};
}

static void sample_token(const struct sample_row *row, struct gpu_sample *sample,
                         struct gpu_top *tops)
{
    uint32_t token = sample_choose(row);
    sample->token = (int32_t)token;
    sample->finished = sample_is_end(row, (int32_t)token);
    sample->logprob = sample_logprob(row, token);
    sample->top_count = sample_top(row, row->slot->logprobs, tops);
    if (!row->last)
        return;
    row->slot->last = sample->token;
    row->slot->finished = sample->finished;
}

static void sample_index(const void *params, uint32_t index)
{
    const struct sample_args *args = params;
    const struct batch *batch = &args->batch;
    if (index >= ((const struct batch_counts *)dev(batch->counts))->samples)
        return;
    uint32_t from = ((const uint32_t *)dev(batch->sample_row))[index];
    const struct batch_row *of = (const struct batch_row *)dev(batch->rows) + from;
    struct sample_row row = {
        .args = args,
        .logits = body_at(args->logits, DTYPE_F32, args->masks ? of->slot : index, args->stride),
        .scores = body_at(args->scratch, DTYPE_F32, index, args->vocab),
        .slot = (struct batch_slot *)dev(batch->slots) + of->slot,
        .slot_index = of->slot,
        .position = of->position + of->q_len + args->ahead,
        .last = !of->drafts,
        .mask = args->masks ? (const uint32_t *)dev(args->masks) + (size_t)index * args->mask_words
                            : NULL,
    };
    if (of->drafts) {
        uint32_t token = ((const uint32_t *)dev(batch->sample_token))[index] - of->token;
        uint32_t certain = of->q_len - of->drafts;
        row.position = of->position + token + 1;
        row.drafts = (const int32_t *)dev(batch->token_id) + of->token + certain;
        row.draft_count = token + 1 - certain;
    }
    struct gpu_sample *sample = dev(args->samples);
    struct gpu_top *tops = dev(args->tops);
    sample_result(args, &sample, &tops);
    sample += index;
    tops += (size_t)index * GPU_LOGPROBS_MAX;
    if (of->want & GPU_KEEP) {
        sample_keep(&row, sample);
        return;
    }
    float lanes[SIMD_LANES] = {0};
    row.greatest = row.logits[choose_greatest(row.logits, args->vocab)];
    simd_best()->exps(lanes, NULL, row.logits, row.greatest, args->vocab);
    row.log_sum = logf(simd_add_lanes(lanes));
    sample_token(&row, sample, tops);
}

size_t sample_scratch_bytes(uint32_t samples_max, uint32_t vocab)
{
    return (size_t)samples_max * vocab * sizeof(float);
}

cudaError_t op_sample(const struct sample_args *args, cudaStream_t stream)
{
    if (args->scratch_bytes < sample_scratch_bytes(args->batch.samples_max, args->vocab))
        return cudaErrorInvalidValue;
    cudaError_t result =
        body_launch(stream, "sample", sample_index, args, sizeof *args, args->batch.samples_max);
    struct step_end_args publish = {.control = args->control,
                                    .counts = args->batch.counts,
                                    .slots = args->batch.slots,
                                    .slots_max = args->slots_max};
    return result == cudaSuccess && args->control ? op_step_end(&publish, stream) : result;
}
