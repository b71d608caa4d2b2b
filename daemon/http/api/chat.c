/* /v1/chat/completions: conversations, with calls of tools and what the model thought. */
#include <stdio.h>

#include "daemon/http/answer.h"
#include "daemon/http/api/api.h"
#include "daemon/request/server.h"

static void put_start(struct json_writer *writer, const struct exchange *exchange, bool chunk)
{
    char id[64];
    snprintf(id, sizeof(id), "chatcmpl-%s", exchange->answer_id);
    json_open(writer, NULL, '{');
    json_put_text(writer, "id", id);
    json_put_text(writer, "object", chunk ? "chat.completion.chunk" : "chat.completion");
    json_put_uint(writer, "created", exchange->created_s);
    json_put_text(writer, "model", lookup_called(exchange));
}

/* By the name that vLLM gives it, and where the option asks for it by its older one, too. */
static void put_reasoning(struct json_writer *writer, const struct exchange *exchange,
                          const char *text, size_t length)
{
    json_put_string(writer, "reasoning", text, length);
    if (exchange->http->server->options->reasoning_content)
        json_put_string(writer, "reasoning_content", text, length);
}

/* ---- streams -----------------------------------------------------------------------------------
 */

/* One event of a stream: of a piece, which may have several, the first has what belongs to its
 * tokens. */
struct chat_chunk {
    struct exchange *exchange;
    struct piece piece;
    const struct answer_event *event; /* NULL: nothing was said */
    bool first;
};

static void put_call_delta(struct json_writer *writer, const struct chat_chunk *chunk)
{
    const struct answer_event *event = chunk->event;
    bool begins = event->part == ANSWER_CALL;
    char id[ANSWER_CALL_ID_MAX];
    json_open(writer, "tool_calls", '[');
    json_open(writer, NULL, '{');
    json_put_uint(writer, "index", event->call);
    if (begins) {
        answer_call_id(chunk->exchange, chunk->piece.seq->number, event->call, "call_", id);
        json_put_text(writer, "id", id);
        json_put_text(writer, "type", "function");
    }
    json_open(writer, "function", '{');
    if (begins)
        json_put_string(writer, "name", event->text, event->length);
    json_put_string(writer, "arguments", begins ? "" : event->text, begins ? 0 : event->length);
    json_close(writer, '}');
    json_close(writer, '}');
    json_close(writer, ']');
}

static void put_delta(struct json_writer *writer, const struct chat_chunk *chunk)
{
    const struct answer_event *event = chunk->event;
    bool content = event && event->part == ANSWER_CONTENT;
    bool begin = chunk->first && chunk->piece.begin;
    json_open(writer, "delta", '{');
    if (begin)
        json_put_text(writer, "role", "assistant");
    if (begin || content)
        json_put_string(writer, "content", content ? event->text : "", content ? event->length : 0);
    if (event && event->part == ANSWER_REASONING)
        put_reasoning(writer, chunk->exchange, event->text, event->length);
    else if (event && !content)
        put_call_delta(writer, chunk);
    json_close(writer, '}');
}

static void put_chunk(struct json_writer *writer, const void *context)
{
    const struct chat_chunk *chunk = context;
    const struct exchange *exchange = chunk->exchange;
    put_start(writer, exchange, true);
    if (chunk->first && chunk->piece.begin)
        answer_put_prompt(writer, exchange, chunk->piece.seq);
    json_open(writer, "choices", '[');
    json_open(writer, NULL, '{');
    json_put_uint(writer, "index", chunk->piece.seq->number);
    put_delta(writer, chunk);
    if (chunk->first)
        answer_put_logprobs(writer, &chunk->piece);
    else
        json_put_null(writer, "logprobs");
    answer_put_finish(writer, &chunk->piece);
    if (chunk->first)
        answer_put_token_ids(writer, &chunk->piece);
    json_close(writer, '}');
    json_close(writer, ']');
    if (exchange->query.continuous_usage)
        answer_put_usage(writer, exchange);
    else if (exchange->query.include_usage)
        json_put_null(writer, "usage");
    json_close(writer, '}');
}

static void tell_event(void *context, const struct answer_event *event)
{
    struct chat_chunk *chunk = context;
    chunk->event = event;
    out_event(&chunk->exchange->out, put_chunk, chunk);
    chunk->first = false;
}

/* What has no parts is told with its end; else the end is an event of its own, as OpenAI's is. */
static void tell(struct exchange *exchange, const struct piece *piece)
{
    struct chat_chunk chunk = {.exchange = exchange, .piece = *piece, .first = true};
    const struct answer_event text = {
        .part = ANSWER_CONTENT, .text = piece->text, .length = piece->length};
    if (!answer_reads(exchange)) {
        chunk.event = piece->length > 0 ? &text : NULL;
        out_event(&exchange->out, put_chunk, &chunk);
        return;
    }
    chunk.piece.end = false;
    answer_events(exchange, piece, tell_event, &chunk);
    chunk.event = NULL;
    chunk.piece.end = piece->end;
    bool tokens = piece->count > 0 && (piece->seq->out_logprobs || exchange->query.token_ids ||
                                       exchange->query.continuous_usage);
    if (piece->end || (chunk.first && (piece->begin || tokens)))
        out_event(&exchange->out, put_chunk, &chunk);
}

static void put_usage(struct json_writer *writer, const void *context)
{
    const struct exchange *exchange = context;
    put_start(writer, exchange, true);
    json_open(writer, "choices", '[');
    json_close(writer, ']');
    answer_put_usage(writer, exchange);
    json_close(writer, '}');
}

static void end(struct exchange *exchange)
{
    if (exchange->query.include_usage)
        out_event(&exchange->out, put_usage, exchange);
    answer_end_openai(exchange);
}

/* ---- whole answers -----------------------------------------------------------------------------
 */

static void put_calls(struct json_writer *writer, const struct exchange *exchange, uint32_t choice)
{
    const struct answer_message *message = &exchange->choices[choice].message;
    char id[ANSWER_CALL_ID_MAX];
    json_open(writer, "tool_calls", '[');
    for (uint32_t i = 0; i < message->call_count; i++) {
        answer_call_id(exchange, choice, i, "call_", id);
        json_open(writer, NULL, '{');
        json_put_text(writer, "id", id);
        json_put_text(writer, "type", "function");
        json_open(writer, "function", '{');
        json_put_text(writer, "name", message->calls[i].name);
        answer_put_buffer(writer, "arguments", &message->calls[i].arguments);
        json_close(writer, '}');
        json_close(writer, '}');
    }
    json_close(writer, ']');
}

static void put_message(struct json_writer *writer, const struct piece *piece)
{
    const struct exchange *exchange = piece->exchange;
    bool parts = answer_reads(exchange);
    const struct answer_message *message =
        parts ? &exchange->choices[piece->seq->number].message : NULL;
    json_open(writer, "message", '{');
    json_put_text(writer, "role", "assistant");
    if (!parts)
        json_put_string(writer, "content", piece->text, piece->length);
    else if (message->content.length == 0 && message->call_count > 0)
        json_put_null(writer, "content");
    else
        answer_put_buffer(writer, "content", &message->content);
    json_put_null(writer, "refusal");
    if (parts && message->reasoning.length > 0)
        put_reasoning(writer, exchange, message->reasoning.data, message->reasoning.length);
    if (parts && message->call_count > 0)
        put_calls(writer, exchange, piece->seq->number);
    json_close(writer, '}');
}

static void put_whole(struct json_writer *writer, const void *context)
{
    const struct exchange *exchange = context;
    const struct request *request = exchange->request;
    put_start(writer, exchange, false);
    json_open(writer, "choices", '[');
    for (uint32_t i = 0; i < request->seq_count; i++) {
        const struct piece piece = answer_whole_piece(exchange, &request->seqs[i]);
        json_open(writer, NULL, '{');
        json_put_uint(writer, "index", i);
        put_message(writer, &piece);
        answer_put_logprobs(writer, &piece);
        answer_put_finish(writer, &piece);
        answer_put_token_ids(writer, &piece);
        json_close(writer, '}');
    }
    json_close(writer, ']');
    answer_put_usage(writer, exchange);
    answer_put_prompt(writer, exchange, &request->seqs[0]);
    json_close(writer, '}');
}

const struct api api_chat = {.whole = put_whole, .piece = tell, .end = end};
