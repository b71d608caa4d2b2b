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

#define ANSWER_CALL_ID_MAX 64u

/* Whether its answers have parts: thought, content, calls. */
bool answer_reads(const struct exchange *exchange);
void answer_reader_make(struct exchange *exchange, struct choice *choice);
/* What a piece of a stream says; of an answer that has no parts it is content. */
void answer_events(struct exchange *exchange, const struct piece *piece, answer_sink sink,
                   void *context);
/* A whole answer's parts, into its choice's message. */
void answer_gather(struct exchange *exchange, const struct seq *seq);

/* How a sequence that has ended did, its text being read. */
enum answer_end answer_end(const struct exchange *exchange, const struct seq *seq);
/* Of a call; the same whenever it is asked for. Some templates take no prefix. */
void answer_call_id(const struct exchange *exchange, uint32_t choice, uint32_t call,
                    const char *prefix, char id[ANSWER_CALL_ID_MAX]);
void answer_put_buffer(struct json_writer *writer, const char *key, const struct buffer *text);
/* As OpenAI's APIs have them. */
void answer_put_usage(struct json_writer *writer, const struct exchange *exchange);
void answer_put_finish(struct json_writer *writer, const struct piece *piece);
void answer_end_openai(struct exchange *exchange);
/* All of a sequence's answer. */
struct piece answer_whole_piece(const struct exchange *exchange, const struct seq *seq);

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
