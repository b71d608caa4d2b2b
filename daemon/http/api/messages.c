/* Anthropic's /v1/messages: answers as lists of blocks, errors in its own form; and count_tokens.
 */
#include <stdio.h>
#include <string.h>

#include "daemon/http/answer.h"
#include "daemon/http/api/api.h"
#include "daemon/request/server.h"

#define ARGUMENTS_DEPTH_MAX 64u
#define ARGUMENTS_VALUES_MAX (1u << 20)

/* ---- errors ------------------------------------------------------------------------------------
 */

static const char *error_type(unsigned status)
{
    static const struct {
        unsigned status;
        const char *type;
    } types[] = {{401, "authentication_error"}, {403, "permission_error"},
                 {404, "not_found_error"},      {413, "request_too_large"},
                 {429, "rate_limit_error"},     {503, "overloaded_error"},
                 {504, "timeout_error"}};
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        if (types[i].status == status)
            return types[i].type;
    return status >= 500 ? "api_error" : "invalid_request_error";
}

static void put_refusal(struct json_writer *writer, const void *context)
{
    const struct refusal *refusal = context;
    json_open(writer, NULL, '{');
    json_put_text(writer, "type", "error");
    json_open(writer, "error", '{');
    json_put_text(writer, "type", error_type(refusal->status));
    json_put_text(writer, "message", refusal->error->text);
    json_close(writer, '}');
    json_close(writer, '}');
}

static void broken(struct exchange *exchange, const struct refusal *refusal)
{
    out_text(&exchange->out, "event: error\n");
    out_event(&exchange->out, put_refusal, refusal);
}

/* ---- messages ----------------------------------------------------------------------------------
 */

static void put_usage(struct json_writer *writer, const struct exchange *exchange)
{
    json_open(writer, "usage", '{');
    json_put_uint(writer, "input_tokens", exchange->prompt_tokens - exchange->cached_tokens);
    json_put_uint(writer, "cache_read_input_tokens", exchange->cached_tokens);
    json_put_uint(writer, "output_tokens", exchange->completion_tokens);
    json_close(writer, '}');
}

static void put_stop(struct json_writer *writer, const struct exchange *exchange)
{
    const struct choice *choice = &exchange->choices[0];
    const struct message_prompt *common = &exchange->query.common;
    bool stopped = choice->stop >= 0 && choice->end == ANSWER_END_STOP;
    json_put_text(writer, "stop_reason",
                  choice->end == ANSWER_END_CALLS  ? "tool_use"
                  : choice->end != ANSWER_END_STOP ? "max_tokens"
                  : stopped                        ? "stop_sequence"
                                                   : "end_turn");
    if (stopped)
        json_put_string(writer, "stop_sequence", common->stop[choice->stop],
                        common->stop_length[choice->stop]);
    else
        json_put_null(writer, "stop_sequence");
}

/* The object that the arguments are; arguments that were cut are no JSON, and stay a text. */
static void put_input(struct json_writer *writer, const struct buffer *arguments)
{
    const struct json_bounds bounds = {.bytes_max = arguments->length,
                                       .depth_max = ARGUMENTS_DEPTH_MAX,
                                       .values_max = ARGUMENTS_VALUES_MAX};
    json *input;
    if (arguments->length == 0 ||
        json_parse(arguments->data, arguments->length, bounds, &input, NULL)) {
        answer_put_buffer(writer, "input", arguments);
        return;
    }
    json_put_value(writer, "input", input);
    json_free(input);
}

/* `begun`: as it stands at the start of a stream. */
static void put_block(struct json_writer *writer, const char *key, const struct exchange *exchange,
                      const struct answer_item *item, bool begun)
{
    static const struct buffer nothing = {0};
    const struct buffer *text = begun ? &nothing : &item->text;
    char id[ANSWER_CALL_ID_MAX];
    json_open(writer, key, '{');
    if (item->part == ANSWER_CALL) {
        answer_call_id(exchange, 0, item->call, "toolu_", id);
        json_put_text(writer, "type", "tool_use");
        json_put_text(writer, "id", id);
        json_put_text(writer, "name", item->name);
        if (begun) {
            json_open(writer, "input", '{');
            json_close(writer, '}');
        } else {
            put_input(writer, text);
        }
    } else if (item->part == ANSWER_REASONING) {
        json_put_text(writer, "type", "thinking");
        answer_put_buffer(writer, "thinking", text);
        json_put_text(writer, "signature", "");
    } else {
        json_put_text(writer, "type", "text");
        answer_put_buffer(writer, "text", text);
    }
    json_close(writer, '}');
}

static void put_message(struct json_writer *writer, const char *key,
                        const struct exchange *exchange, bool over)
{
    const struct answer_items *items = &exchange->choices[0].items;
    char id[64];
    snprintf(id, sizeof(id), "msg_%s", exchange->answer_id);
    json_open(writer, key, '{');
    json_put_text(writer, "id", id);
    json_put_text(writer, "type", "message");
    json_put_text(writer, "role", "assistant");
    json_put_text(writer, "model", lookup_called(exchange));
    json_open(writer, "content", '[');
    for (uint32_t i = 0; over && i < items->count; i++)
        put_block(writer, NULL, exchange, &items->list[i], false);
    json_close(writer, ']');
    if (over) {
        put_stop(writer, exchange);
    } else {
        json_put_null(writer, "stop_reason");
        json_put_null(writer, "stop_sequence");
    }
    put_usage(writer, exchange);
    json_close(writer, '}');
}

static void put_whole(struct json_writer *writer, const void *exchange)
{
    put_message(writer, NULL, exchange, true);
}

/* ---- streams -----------------------------------------------------------------------------------
 */

struct event {
    struct exchange *exchange;
    const char *type;
    const struct answer_event *said;
};

static void put_delta(struct json_writer *writer, const struct event *event)
{
    const struct answer_event *said = event->said;
    bool thought = said->part == ANSWER_REASONING, call = said->part == ANSWER_ARGUMENTS;
    json_open(writer, "delta", '{');
    json_put_text(writer, "type",
                  thought ? "thinking_delta"
                  : call  ? "input_json_delta"
                          : "text_delta");
    json_put_string(writer,
                    thought ? "thinking"
                    : call  ? "partial_json"
                            : "text",
                    said->text, said->length);
    json_close(writer, '}');
}

static void put_event(struct json_writer *writer, const void *context)
{
    const struct event *event = context;
    const struct exchange *exchange = event->exchange;
    const struct answer_items *items = &exchange->choices[0].items;
    json_open(writer, NULL, '{');
    json_put_text(writer, "type", event->type);
    if (strncmp(event->type, "content_block", 13) == 0)
        json_put_uint(writer, "index", items->count - 1);
    if (strcmp(event->type, "content_block_start") == 0)
        put_block(writer, "content_block", exchange, &items->list[items->count - 1], true);
    else if (event->said)
        put_delta(writer, event);
    if (strcmp(event->type, "message_start") == 0)
        put_message(writer, "message", exchange, false);
    if (strcmp(event->type, "message_delta") == 0) {
        json_open(writer, "delta", '{');
        put_stop(writer, exchange);
        json_close(writer, '}');
        put_usage(writer, exchange);
    }
    json_close(writer, '}');
}

static void send(struct exchange *exchange, const char *type, const struct answer_event *said)
{
    const struct event event = {.exchange = exchange, .type = type, .said = said};
    out_format(&exchange->out, "event: %s\n", type);
    out_event(&exchange->out, put_event, &event);
}

static void tell_event(void *context, const struct answer_event *said)
{
    struct exchange *exchange = context;
    struct answer_items *items = &exchange->choices[0].items;
    bool begins = answer_items_begins(items, said);
    if (begins && items->count > 0)
        send(exchange, "content_block_stop", NULL);
    answer_items_add(items, said);
    exchange->out.failed |= items->failed;
    if (items->failed)
        return;
    if (begins)
        send(exchange, "content_block_start", NULL);
    if (said->part != ANSWER_CALL)
        send(exchange, "content_block_delta", said);
}

static void tell(struct exchange *exchange, const struct piece *piece)
{
    if (piece->begin)
        send(exchange, "message_start", NULL);
    answer_events(exchange, piece, tell_event, exchange);
    if (piece->end && exchange->choices[0].items.count > 0)
        send(exchange, "content_block_stop", NULL);
}

static void end(struct exchange *exchange)
{
    send(exchange, "message_delta", NULL);
    send(exchange, "message_stop", NULL);
}

/* ---- count_tokens ------------------------------------------------------------------------------
 */

static void put_count(struct json_writer *writer, const void *context)
{
    const struct exchange *exchange = context;
    json_open(writer, NULL, '{');
    json_put_uint(writer, "input_tokens", exchange->encoding.texts[0].count);
    json_close(writer, '}');
}

static void counted(struct exchange *exchange, time_us now_us)
{
    (void)now_us;
    exchange_status(exchange, 200, "application/json");
    out_json(&exchange->out, put_count, exchange);
    exchange_finish(exchange);
}

void messages_count_tokens(struct exchange *exchange, time_us now_us)
{
    encode_begin(exchange, counted, now_us);
}

const struct api api_messages = {.items = true,
                                 .refusal = put_refusal,
                                 .whole = put_whole,
                                 .piece = tell,
                                 .end = end,
                                 .broken = broken};
