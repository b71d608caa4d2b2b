#include "tests/client/stub_seq.h"

#include <stdlib.h>
#include <string.h>

#include "gpu/kernels/step/null_rule.h"
#include "tests/client/stub.h"

#define FRAME_SIZE (64u << 10)

/* Of texts and conversations, the bytes. */
static int32_t token_of(const struct message_prompt *prompt, uint32_t i)
{
    if (prompt->tokens)
        return prompt->tokens[i];
    return (unsigned char)(prompt->chat ? prompt->chat[i] : prompt->text[i]);
}

static uint32_t count_of(const struct message_prompt *prompt)
{
    if (prompt->tokens)
        return prompt->token_count;
    return prompt->chat ? prompt->chat_length : (uint32_t)prompt->text_length;
}

static bool hangs(const struct message_prompt *prompt)
{
    size_t length = strlen(STUB_HANG_CHAT);
    return prompt->chat && prompt->chat_length > length &&
           memcmp(prompt->chat + prompt->chat_length - length, STUB_HANG_CHAT, length) == 0;
}

struct stub_seq *stub_seq_make(const struct message_submit *submit,
                               const struct message_prompt *prompt)
{
    uint32_t count = count_of(prompt);
    struct stub_seq *seq = calloc(1, sizeof(*seq) + count * sizeof(int32_t));
    if (!seq)
        abort();
    seq->job = submit->params.job;
    seq->pooling = submit->params.pooling;
    seq->text = submit->params.want_text;
    seq->sampling = prompt->sampling;
    seq->first_token = hangs(prompt) ? STUB_HANG_TOKEN : token_of(prompt, 0);
    seq->prompt_count = count;
    seq->state = NULL_START;
    for (uint32_t i = 0; i < count; i++) {
        seq->prompt[i] = token_of(prompt, i);
        seq->state = null_state(seq->state, seq->prompt[i]);
    }
    return seq;
}

static size_t write_token(struct stub_seq *seq, unsigned char *frame)
{
    int32_t token = null_sample(seq->state, !seq->sampling.ignore_eos);
    uint32_t top_count = seq->sampling.logprobs > 0 ? (uint32_t)seq->sampling.logprobs : 0;
    float logprob = null_logprob(seq->state, token);
    struct message_top top[MESSAGE_LOGPROBS_MAX];
    char letter = (char)('a' + token % 26);
    for (uint32_t i = 0; i < top_count; i++) {
        top[i].token = null_top(seq->state, i);
        top[i].logprob = null_logprob(seq->state, top[i].token);
    }
    struct message_tokens record = {
        .sequence = seq->number,
        .count = 1,
        .flags = (uint16_t)((seq->sampling.logprobs >= 0 ? TOKENS_LOGPROBS : 0) |
                            (top_count ? TOKENS_TOP : 0) | (seq->text ? TOKENS_TEXT : 0)),
        .tokens = &token,
        .logprobs = &logprob,
        .top_count = top_count,
        .top = top,
        .text = &letter,
        .text_length = 1,
    };
    size_t size = message_put_tokens(frame + FRAME_HEADER_SIZE, FRAME_SIZE, &record);
    frame_encode_header(frame, FRAME_TOKENS, 0, seq->id, 0, (uint32_t)size);
    seq->state = null_state(seq->state, token);
    seq->made++;
    seq->finish = token == NULL_END ? FINISH_STOP : FINISH_LENGTH;
    seq->finished = token == NULL_END || seq->made == seq->sampling.max_tokens;
    return FRAME_HEADER_SIZE + size;
}

static size_t write_scores(struct stub_seq *seq, unsigned char *frame)
{
    struct message_score scores[1024] = {{0}};
    uint64_t state = NULL_START;
    uint32_t count = 0;
    for (uint32_t i = 0; i + 1 < seq->prompt_count && i < 1024; i++, count++) {
        state = null_state(state, seq->prompt[i]);
        scores[i].logprob = null_logprob(state, seq->prompt[i + 1]);
        scores[i].top_token = null_top(state, 0);
        scores[i].top_logprob = null_logprob(state, scores[i].top_token);
    }
    struct message_result result = {.sequence = seq->number,
                                    .kind = RESULT_SCORE,
                                    .first = 1,
                                    .count = count,
                                    .scores = scores};
    return count ? message_encode_result(frame, FRAME_SIZE, seq->id, &result) : 0;
}

static size_t write_rows(struct stub_seq *seq, unsigned char *frame)
{
    float rows[1024 * NULL_HIDDEN];
    uint64_t state = NULL_START;
    uint32_t count = 0;
    for (uint32_t i = 0; i < seq->prompt_count && i < 1024; i++) {
        state = null_state(state, seq->prompt[i]);
        if (seq->pooling == POOLING_LAST)
            count = 0;
        for (uint32_t k = 0; k < NULL_HIDDEN; k++)
            rows[count * NULL_HIDDEN + k] = null_hidden(state, k);
        count++;
    }
    struct message_result result = {.sequence = seq->number,
                                    .kind = RESULT_EMBED,
                                    .count = count,
                                    .width = NULL_HIDDEN,
                                    .rows = rows};
    return message_encode_result(frame, FRAME_SIZE, seq->id, &result);
}

unsigned char *stub_seq_step(struct stub_seq *seq, size_t *ret_size)
{
    unsigned char *frame = malloc(FRAME_HEADER_SIZE + FRAME_SIZE);
    if (!frame)
        abort();
    if (seq->job == JOB_GENERATE) {
        *ret_size = write_token(seq, frame);
        return frame;
    }
    *ret_size = seq->job == JOB_SCORE ? write_scores(seq, frame) : write_rows(seq, frame);
    seq->finished = true;
    seq->finish = FINISH_STOP;
    return frame;
}
