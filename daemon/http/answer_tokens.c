/* What answers say of tokens: their log-probabilities, and their numbers. */
#include "daemon/http/answer.h"

#include <stdio.h>
#include <string.h>

#include "daemon/request/server.h"
#include "daemon/request/text_stream.h"
#include "daemon/text/tokenizer.h"
#include "protocol/base/utf8.h"

#define TOKEN_TEXT_MAX 1024

/* ---- tokens ------------------------------------------------------------------------------------
 */

static const struct tokenizer *tokenizer_of(const struct exchange *exchange)
{
    return exchange->model->text->tokenizer;
}

static const char *bytes_of(const struct exchange *exchange, int32_t token, size_t *ret_length)
{
    const struct tokenizer *tokenizer = tokenizer_of(exchange);
    const char *bytes = tokenizer_token_is_special(tokenizer, token)
                            ? tokenizer_token_text(tokenizer, token, ret_length)
                            : tokenizer_token_bytes(tokenizer, token, ret_length);
    if (!bytes)
        *ret_length = 0;
    return bytes ? bytes : "";
}

static bool is_utf8(const char *bytes, size_t length)
{
    for (size_t at = 0, step; at < length; at += step)
        if ((step = utf8_length((const unsigned char *)bytes + at, length - at)) == 0)
            return false;
    return true;
}

/* As the API writes a token: its text, or its bytes where they are no whole characters. */
static size_t token_text(const struct exchange *exchange, int32_t token, char *text)
{
    size_t length;
    if (exchange->query.tokens_as_ids)
        return (size_t)snprintf(text, TOKEN_TEXT_MAX, "token_id:%d", token);
    const char *bytes = bytes_of(exchange, token, &length);
    if (is_utf8(bytes, length) && length < TOKEN_TEXT_MAX) {
        memcpy(text, bytes, length);
        return length;
    }
    size_t used = (size_t)snprintf(text, TOKEN_TEXT_MAX, "bytes:");
    for (size_t i = 0; i < length && used + 5 < TOKEN_TEXT_MAX; i++)
        used += (size_t)snprintf(text + used, TOKEN_TEXT_MAX - used, "\\x%02x",
                                 (unsigned char)bytes[i]);
    return used;
}

uint32_t answer_tokens(const struct exchange *exchange, const struct seq *seq)
{
    uint32_t count = seq_out_count(seq);
    const struct gpu_model *model = seq->text_stream->model;
    if (exchange->query.kind == QUERY_COMPLETION || count == 0 || seq->finish != FINISH_STOP ||
        seq->text_stream->end != TEXT_STREAM_NO_END)
        return count;
    int32_t last = seq->out_tokens[count - 1];
    for (uint32_t i = 0; i < model->eos_count; i++)
        if (model->eos[i] == last)
            return count - 1;
    for (uint32_t i = 0; i < seq->stop_id_count; i++)
        if (seq->stop_ids[i] == last)
            return count - 1;
    return count;
}

static uint32_t characters_of(const struct exchange *exchange, int32_t token)
{
    char text[TOKEN_TEXT_MAX];
    uint32_t characters = 0;
    size_t length = token_text(exchange, token, text);
    for (size_t at = 0; at < length; at++)
        characters += ((unsigned char)text[at] & 0xc0) != 0x80;
    return characters;
}

uint32_t answer_characters(const struct exchange *exchange, const struct seq *seq, uint32_t first,
                           uint32_t count)
{
    uint32_t characters = 0;
    for (uint32_t i = first; i < first + count; i++)
        characters += characters_of(exchange, seq->out_tokens[i]);
    return characters;
}

/* ---- log-probabilities -------------------------------------------------------------------------
 */

static const struct gpu_top *tops_of(const struct seq *seq, uint32_t index)
{
    return seq->out_tops + (size_t)index * (uint32_t)seq->sampling.logprobs;
}

static void put_top_object(struct json_writer *writer, const struct piece *piece, uint32_t index)
{
    char text[TOKEN_TEXT_MAX];
    const struct gpu_top *tops = tops_of(piece->seq, index);
    bool chosen = false;
    json_open(writer, NULL, '{');
    for (int32_t i = 0; i < piece->seq->sampling.logprobs; i++) {
        size_t length = token_text(piece->exchange, tops[i].token, text);
        text[length < TOKEN_TEXT_MAX ? length : TOKEN_TEXT_MAX - 1] = '\0';
        json_put_double(writer, text, (double)tops[i].logprob);
        chosen = chosen || tops[i].token == piece->seq->out_tokens[index];
    }
    if (!chosen) {
        text[token_text(piece->exchange, piece->seq->out_tokens[index], text)] = '\0';
        json_put_double(writer, text, (double)piece->seq->out_logprobs[index]);
    }
    json_close(writer, '}');
}

/* What a list of log-probabilities has for each token: of the prompt, where it is echoed, and of
 * the answer. */
struct lists {
    const struct piece *piece;
    const struct message_score *scores; /* NULL: the prompt is not told */
    uint32_t end;
};

static void put_tokens(struct json_writer *writer, const struct lists *lists)
{
    const struct piece *piece = lists->piece;
    const struct seq *seq = piece->seq;
    char text[TOKEN_TEXT_MAX];
    json_open(writer, "tokens", '[');
    for (uint32_t i = 0; lists->scores && i < seq->prompt_len; i++)
        json_put_string(writer, NULL, text, token_text(piece->exchange, seq->prompt[i], text));
    for (uint32_t i = piece->first; i < lists->end; i++)
        json_put_string(writer, NULL, text, token_text(piece->exchange, seq->out_tokens[i], text));
    json_close(writer, ']');
}

/* Nothing comes before a prompt's first token, so it has none. */
static void put_token_logprobs(struct json_writer *writer, const struct lists *lists)
{
    const struct seq *seq = lists->piece->seq;
    json_open(writer, "token_logprobs", '[');
    for (uint32_t i = 0; lists->scores && i < seq->prompt_len; i++) {
        if (i == 0)
            json_put_null(writer, NULL);
        else
            json_put_double(writer, NULL, (double)lists->scores[i].logprob);
    }
    for (uint32_t i = lists->piece->first; i < lists->end; i++)
        json_put_double(writer, NULL, (double)seq->out_logprobs[i]);
    json_close(writer, ']');
}

static void put_named(struct json_writer *writer, const struct exchange *exchange, int32_t token,
                      float logprob)
{
    char text[TOKEN_TEXT_MAX];
    size_t length = token_text(exchange, token, text);
    text[length < TOKEN_TEXT_MAX ? length : TOKEN_TEXT_MAX - 1] = '\0';
    json_put_double(writer, text, (double)logprob);
}

static void put_score_object(struct json_writer *writer, const struct lists *lists, uint32_t index)
{
    const struct exchange *exchange = lists->piece->exchange;
    const struct seq *seq = lists->piece->seq;
    struct gpu_top tops[GPU_LOGPROBS_MAX];
    uint32_t max = (uint32_t)exchange->query.common.sampling.logprobs;
    uint32_t count = echo_tops(exchange, seq, index, max, tops);
    int32_t token = seq->prompt[index];
    bool there = false;
    json_open(writer, NULL, '{');
    for (uint32_t i = 0; i < count; i++) {
        put_named(writer, exchange, tops[i].token, tops[i].logprob);
        there = there || tops[i].token == token;
    }
    if (!there)
        put_named(writer, exchange, token, lists->scores[index].logprob);
    json_close(writer, '}');
}

static void put_tops(struct json_writer *writer, const struct lists *lists)
{
    const struct seq *seq = lists->piece->seq;
    if (lists->piece->exchange->query.common.sampling.logprobs <= 0) {
        json_put_null(writer, "top_logprobs");
        return;
    }
    json_open(writer, "top_logprobs", '[');
    for (uint32_t i = 0; lists->scores && i < seq->prompt_len; i++) {
        if (i == 0)
            json_put_null(writer, NULL);
        else
            put_score_object(writer, lists, i);
    }
    for (uint32_t i = lists->piece->first; i < lists->end; i++)
        put_top_object(writer, lists->piece, i);
    json_close(writer, ']');
}

static void put_offsets(struct json_writer *writer, const struct lists *lists)
{
    const struct piece *piece = lists->piece;
    uint32_t offset = piece->text_offset;
    json_open(writer, "text_offset", '[');
    for (uint32_t i = 0; lists->scores && i < piece->seq->prompt_len; i++) {
        json_put_uint(writer, NULL, offset);
        offset += characters_of(piece->exchange, piece->seq->prompt[i]);
    }
    for (uint32_t i = piece->first; i < lists->end; i++) {
        json_put_uint(writer, NULL, offset);
        offset += characters_of(piece->exchange, piece->seq->out_tokens[i]);
    }
    json_close(writer, ']');
}

static void put_completion_logprobs(struct json_writer *writer, const struct piece *piece)
{
    const struct lists lists = {
        .piece = piece,
        .scores = piece->exchange->query.echo ? echo_scores(piece->exchange, piece->seq) : NULL,
        .end = piece->first + piece->count};
    json_open(writer, "logprobs", '{');
    put_tokens(writer, &lists);
    put_token_logprobs(writer, &lists);
    put_tops(writer, &lists);
    put_offsets(writer, &lists);
    json_close(writer, '}');
}

static void put_token(struct json_writer *writer, const struct exchange *exchange, int32_t token,
                      float logprob)
{
    char text[TOKEN_TEXT_MAX];
    size_t length;
    const char *bytes = bytes_of(exchange, token, &length);
    json_put_string(writer, "token", text, token_text(exchange, token, text));
    json_put_double(writer, "logprob", (double)logprob);
    json_open(writer, "bytes", '[');
    for (size_t i = 0; i < length; i++)
        json_put_uint(writer, NULL, (unsigned char)bytes[i]);
    json_close(writer, ']');
}

static void put_chat_logprobs(struct json_writer *writer, const struct piece *piece)
{
    const struct seq *seq = piece->seq;
    json_open(writer, "logprobs", '{');
    json_open(writer, "content", '[');
    for (uint32_t i = piece->first; i < piece->first + piece->count; i++) {
        json_open(writer, NULL, '{');
        put_token(writer, piece->exchange, seq->out_tokens[i], seq->out_logprobs[i]);
        json_open(writer, "top_logprobs", '[');
        for (int32_t j = 0; seq->out_tops && j < seq->sampling.logprobs; j++) {
            json_open(writer, NULL, '{');
            put_token(writer, piece->exchange, tops_of(seq, i)[j].token,
                      tops_of(seq, i)[j].logprob);
            json_close(writer, '}');
        }
        json_close(writer, ']');
        json_close(writer, '}');
    }
    json_close(writer, ']');
    json_put_null(writer, "refusal");
    json_close(writer, '}');
}

void answer_put_logprobs(struct json_writer *writer, const struct piece *piece)
{
    if (piece->exchange->query.common.sampling.logprobs < 0)
        json_put_null(writer, "logprobs");
    else if (piece->exchange->query.kind == QUERY_CHAT)
        put_chat_logprobs(writer, piece);
    else
        put_completion_logprobs(writer, piece);
}

/* ---- prompts -----------------------------------------------------------------------------------
 */

static void put_ranked(struct json_writer *writer, const struct exchange *exchange, int32_t token,
                       float logprob, uint32_t rank)
{
    char text[TOKEN_TEXT_MAX], key[16];
    snprintf(key, sizeof(key), "%d", token);
    json_open(writer, key, '{');
    json_put_double(writer, "logprob", (double)logprob);
    if (rank > 0)
        json_put_uint(writer, "rank", rank);
    else
        json_put_null(writer, "rank");
    json_put_string(writer, "decoded_token", text, token_text(exchange, token, text));
    json_close(writer, '}');
}

/* As vLLM writes them: an object by token for each position, null for the first. */
static void put_prompt_logprobs(struct json_writer *writer, const struct exchange *exchange,
                                const struct seq *seq)
{
    struct gpu_top tops[GPU_LOGPROBS_MAX];
    const struct message_score *scores = echo_scores(exchange, seq);
    if (exchange->query.prompt_logprobs < 0)
        return;
    json_open(writer, "prompt_logprobs", '[');
    json_put_null(writer, NULL);
    for (uint32_t at = 1; at < seq->prompt_len; at++) {
        uint32_t max = (uint32_t)exchange->query.prompt_logprobs;
        uint32_t count = echo_tops(exchange, seq, at, max, tops);
        bool there = false;
        json_open(writer, NULL, '{');
        for (uint32_t i = 0; i < count; i++) {
            put_ranked(writer, exchange, tops[i].token, tops[i].logprob, i + 1);
            there = there || tops[i].token == seq->prompt[at];
        }
        if (!there)
            put_ranked(writer, exchange, seq->prompt[at], scores[at].logprob, 0);
        json_close(writer, '}');
    }
    json_close(writer, ']');
}

static void put_ids(struct json_writer *writer, const char *key, const int32_t *tokens,
                    uint32_t count)
{
    json_open(writer, key, '[');
    for (uint32_t i = 0; i < count; i++)
        json_put_int(writer, NULL, tokens[i]);
    json_close(writer, ']');
}

/* What is told of a prompt: in its choices, or of a conversation's one in the answer itself. */
void answer_put_prompt(struct json_writer *writer, const struct exchange *exchange,
                       const struct seq *seq)
{
    if (exchange->query.token_ids)
        put_ids(writer, "prompt_token_ids", seq->prompt, seq->prompt_len);
    put_prompt_logprobs(writer, exchange, seq);
}

void answer_put_token_ids(struct json_writer *writer, const struct piece *piece)
{
    if (piece->exchange->query.token_ids)
        put_ids(writer, "token_ids", piece->seq->out_tokens + piece->first, piece->ids);
}
