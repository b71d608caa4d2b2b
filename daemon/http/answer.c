#include "daemon/http/answer.h"

#include <stdio.h>
#include <stdlib.h>
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
    return exchange->http->server->model_text->tokenizer;
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

uint32_t answer_tokens(const struct seq *seq)
{
    uint32_t count = seq_out_count(seq);
    const struct gpu_model *model = seq->text_stream->model;
    if (count == 0 || seq->finish != FINISH_STOP || seq->text_stream->end != TEXT_STREAM_NO_END)
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
    const struct message_score *score = &lists->scores[index];
    int32_t token = lists->piece->seq->prompt[index];
    json_open(writer, NULL, '{');
    put_named(writer, lists->piece->exchange, score->top_token, score->top_logprob);
    if (score->top_token != token)
        put_named(writer, lists->piece->exchange, token, score->logprob);
    json_close(writer, '}');
}

static void put_tops(struct json_writer *writer, const struct lists *lists)
{
    const struct seq *seq = lists->piece->seq;
    if (!seq->out_tops) {
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
    const struct lists lists = {.piece = piece,
                                .scores = echo_scores(piece->exchange, piece->seq),
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

static void put_logprobs(struct json_writer *writer, const struct piece *piece)
{
    if (!piece->seq->out_logprobs)
        json_put_null(writer, "logprobs");
    else if (piece->exchange->query.kind == QUERY_CHAT)
        put_chat_logprobs(writer, piece);
    else
        put_completion_logprobs(writer, piece);
}

/* ---- what all have in common -------------------------------------------------------------------
 */

static void put_start(struct json_writer *writer, const struct exchange *exchange, bool chunk)
{
    bool chat = exchange->query.kind == QUERY_CHAT;
    char id[64];
    snprintf(id, sizeof(id), "%s%s", chat ? "chatcmpl-" : "cmpl-", exchange->answer_id);
    json_open(writer, NULL, '{');
    json_put_text(writer, "id", id);
    json_put_text(writer, "object",
                  !chat   ? "text_completion"
                  : chunk ? "chat.completion.chunk"
                          : "chat.completion");
    json_put_uint(writer, "created", exchange->created_s);
    json_put_text(writer, "model", exchange->http->server->model.id);
}

static void put_usage(struct json_writer *writer, const struct exchange *exchange)
{
    json_open(writer, "usage", '{');
    json_put_uint(writer, "prompt_tokens", exchange->prompt_tokens);
    if (exchange->query.kind != QUERY_EMBEDDING)
        json_put_uint(writer, "completion_tokens", exchange->completion_tokens);
    json_put_uint(writer, "total_tokens", exchange->prompt_tokens + exchange->completion_tokens);
    json_close(writer, '}');
}

static void put_finish(struct json_writer *writer, const struct piece *piece)
{
    if (piece->end)
        json_put_text(writer, "finish_reason", finish_name(piece->seq->finish));
    else
        json_put_null(writer, "finish_reason");
}

/* ---- streams -----------------------------------------------------------------------------------
 */

void answer_chunk(struct json_writer *writer, const void *context)
{
    const struct piece *piece = context;
    put_start(writer, piece->exchange, true);
    json_open(writer, "choices", '[');
    json_open(writer, NULL, '{');
    json_put_uint(writer, "index", piece->seq->number);
    if (piece->exchange->query.kind == QUERY_CHAT) {
        json_open(writer, "delta", '{');
        if (piece->begin)
            json_put_text(writer, "role", "assistant");
        if (piece->begin || piece->length > 0)
            json_put_string(writer, "content", piece->text, piece->length);
        json_close(writer, '}');
    } else {
        json_put_string(writer, "text", piece->text, piece->length);
    }
    put_logprobs(writer, piece);
    put_finish(writer, piece);
    json_close(writer, '}');
    json_close(writer, ']');
    if (piece->exchange->query.include_usage)
        json_put_null(writer, "usage");
    json_close(writer, '}');
}

void answer_usage(struct json_writer *writer, const void *context)
{
    const struct exchange *exchange = context;
    put_start(writer, exchange, true);
    json_open(writer, "choices", '[');
    json_close(writer, ']');
    put_usage(writer, exchange);
    json_close(writer, '}');
}

/* ---- whole answers -----------------------------------------------------------------------------
 */

static void put_message(struct json_writer *writer, const struct piece *piece)
{
    json_open(writer, "message", '{');
    json_put_text(writer, "role", "assistant");
    json_put_string(writer, "content", piece->text, piece->length);
    json_put_null(writer, "refusal");
    json_close(writer, '}');
}

void answer_whole(struct json_writer *writer, const void *context)
{
    const struct exchange *exchange = context;
    const struct request *request = exchange->request;
    put_start(writer, exchange, false);
    json_open(writer, "choices", '[');
    for (uint32_t i = 0; i < request->seq_count; i++) {
        const struct seq *seq = &request->seqs[i];
        const struct buffer *text = &seq->text_stream->text;
        const struct piece piece = {.exchange = exchange,
                                    .seq = seq,
                                    .text = text->length > 0 ? text->data : "",
                                    .length = text->length,
                                    .count = seq->out_logprobs ? answer_tokens(seq) : 0,
                                    .end = true};
        json_open(writer, NULL, '{');
        json_put_uint(writer, "index", seq->number);
        if (exchange->query.kind == QUERY_CHAT)
            put_message(writer, &piece);
        else
            json_put_string(writer, "text", piece.text, piece.length);
        put_logprobs(writer, &piece);
        put_finish(writer, &piece);
        json_close(writer, '}');
    }
    json_close(writer, ']');
    put_usage(writer, exchange);
    json_close(writer, '}');
}

/* ---- embeddings --------------------------------------------------------------------------------
 */

static void put_base64(struct json_writer *writer, const void *bytes, size_t length)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *in = bytes;
    char *text = malloc((length + 2) / 3 * 4), *to = text;
    if (!text) {
        json_put_null(writer, "embedding");
        return;
    }
    for (size_t i = 0; i < length; i += 3) {
        uint32_t bits = (uint32_t)in[i] << 16 | (i + 1 < length ? (uint32_t)in[i + 1] << 8 : 0) |
                        (i + 2 < length ? in[i + 2] : 0);
        *to++ = digits[bits >> 18];
        *to++ = digits[bits >> 12 & 63];
        *to++ = i + 1 < length ? digits[bits >> 6 & 63] : '=';
        *to++ = i + 2 < length ? digits[bits & 63] : '=';
    }
    json_put_string(writer, "embedding", text, (size_t)(to - text));
    free(text);
}

void answer_embeddings(struct json_writer *writer, const void *context)
{
    const struct exchange *exchange = context;
    const struct request *request = exchange->request;
    uint32_t width = exchange->http->server->model.hidden;
    json_open(writer, NULL, '{');
    json_put_text(writer, "object", "list");
    json_open(writer, "data", '[');
    for (uint32_t i = 0; i < request->seq_count; i++) {
        const float *row = request->seqs[i].out_rows;
        json_open(writer, NULL, '{');
        json_put_text(writer, "object", "embedding");
        json_put_uint(writer, "index", i);
        if (exchange->query.base64) {
            put_base64(writer, row, width * sizeof(*row));
        } else {
            json_open(writer, "embedding", '[');
            for (uint32_t at = 0; at < width; at++)
                json_put_double(writer, NULL, (double)row[at]);
            json_close(writer, ']');
        }
        json_close(writer, '}');
    }
    json_close(writer, ']');
    json_put_text(writer, "model", exchange->http->server->model.id);
    put_usage(writer, exchange);
    json_close(writer, '}');
}
