/* Prompts that stand before their completions: as text, and with the log-probabilities of their
 * tokens, which a request of its own has scored before. */
#include <stdlib.h>
#include <string.h>

#include "daemon/http/exchange.h"
#include "daemon/request/server.h"
#include "daemon/request/text_stream.h"
#include "daemon/text/tokenizer.h"

void echo_text(struct exchange *exchange, const struct seq *seq, struct buffer *text)
{
    const struct query *query = &exchange->query;
    const struct query_prompt *prompt = &query->prompts[seq->number / query->common.sampling.n];
    const struct tokenizer *tokenizer = exchange->model->text->tokenizer;
    struct error error;
    size_t length;
    if (prompt->text) {
        exchange->out.failed |= !buffer_append(text, prompt->text, prompt->length, SIZE_MAX);
        return;
    }
    for (size_t room = 64 + (size_t)seq->prompt_len * 16;; room *= 4) {
        if (!buffer_reserve(text, room, SIZE_MAX)) {
            exchange->out.failed = true;
            return;
        }
        int rc =
            tokenizer_decode(tokenizer, seq->prompt, seq->prompt_len, true,
                             text->data + text->length, text->room - text->length, &length, &error);
        if (rc == 0) {
            text->length += length;
            return;
        }
        if (error.code != ERR_TOO_LARGE)
            return;
    }
}

void echo_before(struct exchange *exchange, struct seq *seq)
{
    struct buffer *own = &seq->text_stream->text, all = {0};
    echo_text(exchange, seq, &all);
    exchange->out.failed |=
        !buffer_append(&all, own->length > 0 ? own->data : "", own->length, SIZE_MAX);
    buffer_free(own);
    *own = all;
}

int echo_keep_scores(struct exchange *exchange, struct error *error)
{
    const struct request *request = exchange->request;
    size_t count = 0, tops = (size_t)query_score_tops(&exchange->query);
    for (uint32_t i = 0; i < request->seq_count; i++)
        count += request->seqs[i].prompt_len;
    struct message_score *scores = calloc(count, sizeof(*scores));
    size_t *starts = calloc(request->seq_count, sizeof(*starts));
    exchange->scores = scores;
    exchange->score_starts = starts;
    if (tops > 1)
        exchange->score_tops = calloc(count, tops * sizeof(*exchange->score_tops));
    if (!scores || !starts || (tops > 1 && !exchange->score_tops))
        return error_set(error, ERR_NO_MEMORY, "no memory for the scores of the prompts");
    exchange_keep(exchange, count * (sizeof(*scores) +
                                     (tops > 1 ? tops * sizeof(*exchange->score_tops) : 0)));
    size_t at = 0;
    for (uint32_t i = 0; i < request->seq_count; i++) {
        const struct seq *seq = &request->seqs[i];
        uint32_t own = seq_out_count(seq);
        starts[i] = at;
        if (own > 0)
            memcpy(scores + at + 1, seq->out_scores, own * sizeof(*scores));
        if (own > 0 && tops > 1)
            memcpy(exchange->score_tops + (at + 1) * tops, seq->out_tops,
                   own * tops * sizeof(*exchange->score_tops));
        at += seq->prompt_len;
    }
    return 0;
}

const struct message_score *echo_scores(const struct exchange *exchange, const struct seq *seq)
{
    if (!exchange->scores)
        return NULL;
    return exchange->scores +
           exchange->score_starts[seq->number / exchange->query.common.sampling.n];
}

uint32_t echo_tops(const struct exchange *exchange, const struct seq *seq, uint32_t position,
                   uint32_t max, struct gpu_top *tops)
{
    const struct message_score *score = &echo_scores(exchange, seq)[position];
    uint32_t kept = (uint32_t)query_score_tops(&exchange->query), count = 0;
    if (!exchange->score_tops) {
        if (max > 0)
            tops[0] = (struct gpu_top){score->top_token, score->top_logprob};
        return max > 0;
    }
    const struct gpu_top *from = exchange->score_tops + (size_t)(score - exchange->scores) * kept;
    for (; count < max && count < kept && from[count].token >= 0; count++)
        tops[count] = from[count];
    return count;
}

void echo_free(struct exchange *exchange)
{
    free(exchange->score_tops);
    free(exchange->scores);
    free(exchange->score_starts);
}
