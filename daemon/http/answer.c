#include "daemon/http/answer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/request/server.h"
#include "daemon/request/text_stream.h"

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
    if (exchange->cached_tokens > 0) {
        json_open(writer, "prompt_tokens_details", '{');
        json_put_uint(writer, "cached_tokens", exchange->cached_tokens);
        json_close(writer, '}');
    }
    json_close(writer, '}');
}

static void put_finish(struct json_writer *writer, const struct piece *piece)
{
    if (!piece->end) /* until then `finish` is the worker's */
        json_put_null(writer, "finish_reason");
    else if (piece->exchange->query.prompt_only)
        json_put_text(writer, "finish_reason", finish_name(FINISH_LENGTH));
    else
        json_put_text(writer, "finish_reason", finish_name(piece->seq->finish));
}

/* ---- streams -----------------------------------------------------------------------------------
 */

void answer_chunk(struct json_writer *writer, const void *context)
{
    const struct piece *piece = context;
    bool chat = piece->exchange->query.kind == QUERY_CHAT;
    put_start(writer, piece->exchange, true);
    if (chat && piece->begin)
        answer_put_prompt(writer, piece->exchange, piece->seq);
    json_open(writer, "choices", '[');
    json_open(writer, NULL, '{');
    json_put_uint(writer, "index", piece->seq->number);
    if (chat) {
        json_open(writer, "delta", '{');
        if (piece->begin)
            json_put_text(writer, "role", "assistant");
        if (piece->begin || piece->length > 0)
            json_put_string(writer, "content", piece->text, piece->length);
        json_close(writer, '}');
    } else {
        json_put_string(writer, "text", piece->text, piece->length);
    }
    answer_put_logprobs(writer, piece);
    put_finish(writer, piece);
    if (!chat && piece->begin)
        answer_put_prompt(writer, piece->exchange, piece->seq);
    answer_put_token_ids(writer, piece);
    json_close(writer, '}');
    json_close(writer, ']');
    if (piece->exchange->query.continuous_usage)
        put_usage(writer, piece->exchange);
    else if (piece->exchange->query.include_usage)
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

static void put_choice(struct json_writer *writer, const struct exchange *exchange,
                       const struct seq *seq)
{
    const struct buffer *text = &seq->text_stream->text;
    bool told = !exchange->query.prompt_only;
    const struct piece piece = {.exchange = exchange,
                                .seq = seq,
                                .text = text->length > 0 ? text->data : "",
                                .length = text->length,
                                .count =
                                    told && seq->out_logprobs ? answer_tokens(exchange, seq) : 0,
                                .ids = told ? seq_out_count(seq) : 0,
                                .end = true};
    json_open(writer, NULL, '{');
    json_put_uint(writer, "index", seq->number);
    if (exchange->query.kind == QUERY_CHAT)
        put_message(writer, &piece);
    else
        json_put_string(writer, "text", piece.text, piece.length);
    answer_put_logprobs(writer, &piece);
    put_finish(writer, &piece);
    if (exchange->query.kind != QUERY_CHAT)
        answer_put_prompt(writer, exchange, seq);
    answer_put_token_ids(writer, &piece);
    json_close(writer, '}');
}

void answer_whole(struct json_writer *writer, const void *context)
{
    const struct exchange *exchange = context;
    const struct request *request = exchange->request;
    put_start(writer, exchange, false);
    json_open(writer, "choices", '[');
    for (uint32_t i = 0; i < request->seq_count; i++)
        put_choice(writer, exchange, &request->seqs[i]);
    json_close(writer, ']');
    put_usage(writer, exchange);
    if (exchange->query.kind == QUERY_CHAT)
        answer_put_prompt(writer, exchange, &request->seqs[0]);
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
