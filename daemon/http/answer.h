/* Answers: results as the JSON of the API. Nothing here changes a sequence. loop thread
 */
#pragma once

#include "daemon/http/exchange.h"

/* A piece of one choice: its text, and its tokens [first, first + count) for the log-probabilities.
 */
struct piece {
    const struct exchange *exchange;
    const struct seq *seq;
    const char *text;
    size_t length;
    uint32_t first, count;
    uint32_t ids;         /* of token_ids: [first, first + ids), the end token too */
    uint32_t text_offset; /* of the first token, characters */
    bool begin, end;      /* of the choice */
};

/* out_writer functions. Contexts: struct piece, struct exchange (whole answers, usage). */
void answer_chunk(struct json_writer *writer, const void *piece);
void answer_usage(struct json_writer *writer, const void *exchange);
/* All sequences have ended, all their text is there. */
void answer_whole(struct json_writer *writer, const void *exchange);
void answer_embeddings(struct json_writer *writer, const void *exchange);

/* Tokens whose log-probabilities are told: of a chat those that have text, which an end token has
 * not; of a completion all, by which clients that score prompts count (lm-eval leaves the last one
 * out). */
uint32_t answer_tokens(const struct exchange *exchange, const struct seq *seq);
/* Characters of the tokens' texts, each by itself. */
uint32_t answer_characters(const struct exchange *exchange, const struct seq *seq, uint32_t first,
                           uint32_t count);

/* daemon/http/answer_tokens.c: members of a choice, "logprobs" always. */
void answer_put_logprobs(struct json_writer *writer, const struct piece *piece);
void answer_put_token_ids(struct json_writer *writer, const struct piece *piece);
/* What is told of a prompt, in its choices; of a conversation's one in the answer itself. */
void answer_put_prompt(struct json_writer *writer, const struct exchange *exchange,
                       const struct seq *seq);
