/* Logits to tokens: a result for every row with GPU_SAMPLE, and for each of its drafts. A row with
 * GPU_KEEP leaves its logits in slot.kept, and its result has token -1. With `masks` it is a
 * sampling of such rows (gpu.h):
 * the batch is one of its own, a row's logits are its slot's, and before 2 tokens whose bit is not
 * set become -infinity; 1 is as ever.
 *
 * 1. The log-probability of every token is that of the raw logits; the slot's n likeliest are
 * listed.
 * 2. Penalties, from batch.seen: repetition divides a positive logit of a token seen anywhere, and
 *    multiplies a negative one; then minus presence where it was output before, minus frequency
 *    times how often. Drafts before the sampled position count as if they had been output. Then the
 *    slot's bias is added. Then end tokens (the model's and the slot's) become -infinity where the
 *    sampled position is below eos_from.
 * 3. temperature 0: the greatest logit. Else logits are divided by temperature, and kept are: the
 *    top_k likeliest; of these the likeliest whose mass is at least top_p of theirs; of these those
 *    with at least min_p times the probability of the likeliest. One of the kept is drawn.
 *
 * Ties go to the lowest id everywhere. Masses are 64-bit integers (2^40 is the likeliest token's),
 * so their sums know no order. The draw is the greatest of logit / temperature - log(-log(u)),
 * where u comes from Philox-4x32-10 with the seed as key and (id / 4, position) as counter, word id
 * % 4: it depends on (seed, position, logits) alone. NaN counts as -infinity. */
#pragma once

#include "gpu/kernels/step/step_begin.h"

struct sample_args {
    struct batch batch;
    float *logits; /* [samples_max][stride]; what is left in it is unspecified. With masks:
                      [slots][stride] */
    uint32_t stride, vocab;
    uint32_t ahead; /* what rows without drafts sample is so much further on than they say: of a
                     * head that guesses, where a token's row has the position before it */
    uint32_t eos_count;
    int32_t eos[GPU_EOS_MAX];
    struct gpu_sample *samples; /* [samples_max] */
    struct gpu_top *tops;       /* [samples_max][GPU_LOGPROBS_MAX], the first top_count written */
    /* NULL, or this op ends the step in op_step_end's place: samples, and tops where the plan wants
     * them, go to where the control says. */
    const struct step_control *control;
    uint32_t slots_max; /* of batch.slots, where there is a control */
    void *scratch;      /* sample_scratch_bytes(), aligned; NULL when that is 0 */
    size_t scratch_bytes;
    const uint32_t *masks; /* NULL, or [samples_max][mask_words] */
    uint32_t mask_words;
};

/* What a sampling's masks come with, in one copy: the batch that it is, `rows` of them. Sections
 * follow one another. */
struct sampling_head {
    struct batch_counts counts;
    struct step_control control;
    struct batch_row rows[GPU_SAMPLING_ROWS_MAX];
    uint32_t sample_row[GPU_SAMPLING_ROWS_MAX];
};

OP_C size_t sample_scratch_bytes(uint32_t samples_max, uint32_t vocab);
OP_C cudaError_t op_sample(const struct sample_args *args, cudaStream_t stream);
