#include "tests/client/tally.h"

#include <string.h>

#include "gpu/kernels/step/null_rule.h"

static void on_tokens(void *context, uint32_t sequence, const sluice_piece *piece)
{
    struct tally_seq *seq = &((struct tally *)context)->seqs[sequence % TALLY_SEQUENCES];
    for (size_t i = 0; i < piece->count && seq->token_count < TALLY_TOKENS; i++)
        seq->tokens[seq->token_count++] = piece->tokens[i];
    for (size_t i = 0; piece->logprobs && i < piece->count; i++)
        seq->logprobs[seq->logprob_count++ % TALLY_TOKENS] = piece->logprobs[i];
    for (size_t i = 0; piece->tops && i < piece->count * piece->top_count; i++)
        seq->tops[seq->top_count++ % TALLY_TOKENS] = piece->tops[i];
    for (size_t i = 0; piece->text && i < piece->text_length; i++)
        seq->text[seq->text_length++ % TALLY_TOKENS] = piece->text[i];
}

static void on_scores(void *context, uint32_t sequence, size_t first, const sluice_score *scores,
                      size_t count)
{
    struct tally_seq *seq = &((struct tally *)context)->seqs[sequence % TALLY_SEQUENCES];
    for (size_t i = 0; i < count && first == seq->score_count - i + 1; i++)
        seq->scores[seq->score_count++ % TALLY_TOKENS] = scores[i];
}

static void on_embedding(void *context, uint32_t sequence, size_t row, const float *values,
                         size_t width)
{
    struct tally_seq *seq = &((struct tally *)context)->seqs[sequence % TALLY_SEQUENCES];
    if (row != seq->row_count || (row + 1) * width > TALLY_TOKENS)
        return;
    memcpy(seq->rows + row * width, values, width * sizeof(float));
    seq->width = width;
    seq->row_count++;
}

static void on_end(void *context, uint32_t sequence, const sluice_end *end)
{
    struct tally *tally = context;
    struct tally_seq *seq = &tally->seqs[sequence % TALLY_SEQUENCES];
    tally->ends++;
    seq->ends++;
    seq->end = *end;
}

const sluice_callbacks tally_callbacks = {on_tokens, on_scores, on_embedding, on_end};

void tally_batch(struct tally *tally, sluice_batch *ret_batch, sluice_prompt *prompt,
                 sluice_params *params)
{
    memset(tally, 0, sizeof(*tally));
    sluice_batch_init(ret_batch);
    ret_batch->prompts = prompt;
    ret_batch->prompt_count = 1;
    ret_batch->params = params;
    ret_batch->callbacks = tally_callbacks;
    ret_batch->context = tally;
}

bool tally_follows_rule(const struct tally_seq *seq, const int32_t *prompt, size_t count,
                        bool ignore_eos)
{
    uint64_t state = NULL_START;
    for (size_t i = 0; i < count; i++)
        state = null_state(state, prompt[i]);
    for (size_t i = 0; i < seq->token_count; i++) {
        if (seq->tokens[i] != null_sample(state, !ignore_eos))
            return false;
        state = null_state(state, seq->tokens[i]);
    }
    return seq->token_count > 0;
}
