/* /v1/responses: answers as lists of items, and their streams as events of items. Nothing is kept:
 * there is no previous response to go on from. */
#include <stdio.h>
#include <string.h>

#include "daemon/http/answer.h"
#include "daemon/http/api/api.h"
#include "daemon/request/server.h"

#define TOLD_DEPTH_MAX 48u

/* ---- items -------------------------------------------------------------------------------------
 */

static const char *type_of(const struct answer_item *item)
{
    return item->part == ANSWER_REASONING ? "reasoning"
           : item->part == ANSWER_CALL    ? "function_call"
                                          : "message";
}

static void put_item_id(struct json_writer *writer, const char *key,
                        const struct exchange *exchange, uint32_t index)
{
    const struct answer_item *item = &exchange->choices[0].items.list[index];
    const char *prefix = item->part == ANSWER_REASONING ? "rs"
                         : item->part == ANSWER_CALL    ? "fc"
                                                        : "msg";
    char id[64];
    snprintf(id, sizeof(id), "%s_%s%04x", prefix, exchange->answer_id, index);
    json_put_text(writer, key, id);
}

static void put_part(struct json_writer *writer, const char *key, const struct answer_item *item,
                     bool text)
{
    bool thought = item->part == ANSWER_REASONING;
    json_open(writer, key, '{');
    json_put_text(writer, "type", thought ? "reasoning_text" : "output_text");
    json_put_string(writer, "text", text && item->text.length > 0 ? item->text.data : "",
                    text ? item->text.length : 0);
    if (!thought) {
        json_open(writer, "annotations", '[');
        json_close(writer, ']');
        json_open(writer, "logprobs", '[');
        json_close(writer, ']');
    }
    json_close(writer, '}');
}

enum item_status { ITEM_BEGUN, ITEM_COMPLETE, ITEM_CUT };

static void put_item(struct json_writer *writer, const char *key, const struct exchange *exchange,
                     uint32_t index, enum item_status status)
{
    static const char *const words[] = {"in_progress", "completed", "incomplete"};
    const struct answer_item *item = &exchange->choices[0].items.list[index];
    char call_id[ANSWER_CALL_ID_MAX];
    json_open(writer, key, '{');
    put_item_id(writer, "id", exchange, index);
    json_put_text(writer, "type", type_of(item));
    json_put_text(writer, "status", words[status]);
    if (item->part == ANSWER_CALL) {
        answer_call_id(exchange, 0, item->call, "call_", call_id);
        json_put_text(writer, "call_id", call_id);
        json_put_text(writer, "name", item->name);
        json_put_string(writer, "arguments",
                        status != ITEM_BEGUN && item->text.length > 0 ? item->text.data : "",
                        status != ITEM_BEGUN ? item->text.length : 0);
        json_close(writer, '}');
        return;
    }
    if (item->part == ANSWER_CONTENT) {
        json_put_text(writer, "role", "assistant");
    } else {
        json_open(writer, "summary", '[');
        json_close(writer, ']');
    }
    json_open(writer, "content", '[');
    if (status != ITEM_BEGUN)
        put_part(writer, NULL, item, true);
    json_close(writer, ']');
    json_close(writer, '}');
}

/* ---- the response ------------------------------------------------------------------------------
 */

/* What the request said, as it was kept. */
static void put_told(struct json_writer *writer, const struct exchange *exchange)
{
    const char *text = exchange->query.told;
    const struct json_bounds bounds = {.bytes_max = SIZE_MAX, .depth_max = TOLD_DEPTH_MAX};
    json *told;
    if (json_parse(text, strlen(text), bounds, &told, NULL))
        return;
    for (const json *item = json_child(told); item; item = json_next(item))
        json_put_value(writer, json_key(item), item);
    json_free(told);
}

static void put_usage(struct json_writer *writer, const struct exchange *exchange)
{
    json_open(writer, "usage", '{');
    json_put_uint(writer, "input_tokens", exchange->prompt_tokens);
    json_open(writer, "input_tokens_details", '{');
    json_put_uint(writer, "cached_tokens", exchange->cached_tokens);
    json_put_uint(writer, "cache_write_tokens", 0); /* none that cost anything */
    json_close(writer, '}');
    json_put_uint(writer, "output_tokens", exchange->completion_tokens);
    json_open(writer, "output_tokens_details", '{');
    json_put_uint(writer, "reasoning_tokens", 0);
    json_close(writer, '}');
    json_put_uint(writer, "total_tokens", exchange->prompt_tokens + exchange->completion_tokens);
    json_close(writer, '}');
}

static const char *status_of(const struct exchange *exchange, bool over)
{
    enum answer_end end = exchange->choices[0].end;
    return !over                                                 ? "in_progress"
           : end == ANSWER_END_LENGTH || end == ANSWER_END_OTHER ? "incomplete"
                                                                 : "completed";
}

static void put_incomplete(struct json_writer *writer, const struct exchange *exchange, bool over)
{
    enum answer_end end = exchange->choices[0].end;
    if (!over || end == ANSWER_END_STOP || end == ANSWER_END_CALLS) {
        json_put_null(writer, "incomplete_details");
        return;
    }
    json_open(writer, "incomplete_details", '{');
    json_put_text(writer, "reason", end == ANSWER_END_LENGTH ? "max_output_tokens" : "cancelled");
    json_close(writer, '}');
}

static void put_response(struct json_writer *writer, const char *key,
                         const struct exchange *exchange, bool over)
{
    const struct answer_items *items = &exchange->choices[0].items;
    bool cut = strcmp(status_of(exchange, over), "incomplete") == 0;
    char id[64];
    snprintf(id, sizeof(id), "resp_%s", exchange->answer_id);
    json_open(writer, key, '{');
    json_put_text(writer, "id", id);
    json_put_text(writer, "object", "response");
    json_put_uint(writer, "created_at", exchange->created_s);
    json_put_text(writer, "status", status_of(exchange, over));
    json_put_bool(writer, "background", false);
    json_put_null(writer, "error");
    put_incomplete(writer, exchange, over);
    json_put_text(writer, "model", lookup_called(exchange));
    json_open(writer, "output", '[');
    for (uint32_t i = 0; over && i < items->count; i++)
        put_item(writer, NULL, exchange, i,
                 cut && i + 1 == items->count ? ITEM_CUT : ITEM_COMPLETE);
    json_close(writer, ']');
    json_put_null(writer, "previous_response_id");
    json_put_text(writer, "service_tier", "default");
    json_put_bool(writer, "store", false);
    put_told(writer, exchange);
    json_put_uint(writer, "top_logprobs", 0);
    json_put_text(writer, "truncation", "disabled");
    if (over)
        put_usage(writer, exchange);
    json_close(writer, '}');
}

static void put_whole(struct json_writer *writer, const void *exchange)
{
    put_response(writer, NULL, exchange, true);
}

/* ---- streams -----------------------------------------------------------------------------------
 */

/* An event of a stream: what it has beside its type and number depends on which it is. */
struct event {
    struct exchange *exchange;
    const char *type;
    enum {
        EVENT_RESPONSE,
        EVENT_OVER, /* the response as it ended */
        EVENT_ITEM, /* begun */
        EVENT_ITEM_DONE,
        EVENT_PART, /* begun */
        EVENT_PART_DONE,
        EVENT_DELTA,
        EVENT_DONE, /* the item's text */
        EVENT_ERROR
    } kind;
    const struct answer_event *said;
    const struct refusal *refusal;
    bool cut;
};

static void put_place(struct json_writer *writer, const struct event *event,
                      const struct answer_item *item, uint32_t index)
{
    put_item_id(writer, "item_id", event->exchange, index);
    json_put_uint(writer, "output_index", index);
    if (item->part != ANSWER_CALL)
        json_put_uint(writer, "content_index", 0);
}

static void put_text(struct json_writer *writer, const struct event *event,
                     const struct answer_item *item)
{
    bool call = item->part == ANSWER_CALL;
    if (event->kind == EVENT_DELTA)
        json_put_string(writer, "delta", event->said->text, event->said->length);
    else
        answer_put_buffer(writer, call ? "arguments" : "text", &item->text);
    if (call && event->kind == EVENT_DONE)
        json_put_text(writer, "name", item->name);
    if (item->part == ANSWER_CONTENT) {
        json_open(writer, "logprobs", '[');
        json_close(writer, ']');
    }
}

static void put_of_item(struct json_writer *writer, const struct event *event)
{
    const struct answer_items *items = &event->exchange->choices[0].items;
    uint32_t index = items->count - 1;
    const struct answer_item *item = &items->list[index];
    if (event->kind == EVENT_ITEM || event->kind == EVENT_ITEM_DONE) {
        json_put_uint(writer, "output_index", index);
        put_item(writer, "item", event->exchange, index,
                 event->kind == EVENT_ITEM ? ITEM_BEGUN
                 : event->cut              ? ITEM_CUT
                                           : ITEM_COMPLETE);
        return;
    }
    put_place(writer, event, item, index);
    if (event->kind == EVENT_PART || event->kind == EVENT_PART_DONE)
        put_part(writer, "part", item, event->kind == EVENT_PART_DONE);
    else
        put_text(writer, event, item);
}

static void put_event(struct json_writer *writer, const void *context)
{
    const struct event *event = context;
    json_open(writer, NULL, '{');
    json_put_text(writer, "type", event->type);
    json_put_uint(writer, "sequence_number", event->exchange->choices[0].events);
    if (event->kind == EVENT_ERROR) {
        json_put_text(writer, "code", error_name(event->refusal->error->code));
        json_put_text(writer, "message", event->refusal->error->text);
        json_put_text(writer, "param", event->refusal->param);
    } else if (event->kind == EVENT_RESPONSE || event->kind == EVENT_OVER) {
        put_response(writer, "response", event->exchange, event->kind == EVENT_OVER);
    } else {
        put_of_item(writer, event);
    }
    json_close(writer, '}');
}

static void send(const struct event *event)
{
    struct exchange *exchange = event->exchange;
    out_format(&exchange->out, "event: %s\n", event->type);
    out_event(&exchange->out, put_event, event);
    exchange->choices[0].events++;
}

/* The names of an item's events. */
static const char *delta_of(const struct answer_item *item, bool done)
{
    static const char *const names[][2] = {
        [ANSWER_REASONING] = {"response.reasoning_text.delta", "response.reasoning_text.done"},
        [ANSWER_CONTENT] = {"response.output_text.delta", "response.output_text.done"},
        [ANSWER_CALL] = {"response.function_call_arguments.delta",
                         "response.function_call_arguments.done"}};
    return names[item->part][done];
}

static void begin_item(struct exchange *exchange, const struct answer_item *item)
{
    send(&(struct event){
        .exchange = exchange, .type = "response.output_item.added", .kind = EVENT_ITEM});
    if (item->part != ANSWER_CALL)
        send(&(struct event){
            .exchange = exchange, .type = "response.content_part.added", .kind = EVENT_PART});
}

static void end_item(struct exchange *exchange, bool cut)
{
    const struct answer_items *items = &exchange->choices[0].items;
    const struct answer_item *item = items->count > 0 ? &items->list[items->count - 1] : NULL;
    if (!item)
        return;
    send(&(struct event){.exchange = exchange, .type = delta_of(item, true), .kind = EVENT_DONE});
    if (item->part != ANSWER_CALL)
        send(&(struct event){
            .exchange = exchange, .type = "response.content_part.done", .kind = EVENT_PART_DONE});
    send(&(struct event){.exchange = exchange,
                         .type = "response.output_item.done",
                         .kind = EVENT_ITEM_DONE,
                         .cut = cut});
}

static void tell_event(void *context, const struct answer_event *said)
{
    struct exchange *exchange = context;
    struct answer_items *items = &exchange->choices[0].items;
    bool begins = answer_items_begins(items, said);
    if (begins)
        end_item(exchange, false);
    answer_items_add(items, said);
    exchange->out.failed |= items->failed;
    if (items->failed)
        return;
    const struct answer_item *item = &items->list[items->count - 1];
    if (begins)
        begin_item(exchange, item);
    if (said->part != ANSWER_CALL)
        send(&(struct event){.exchange = exchange,
                             .type = delta_of(item, false),
                             .kind = EVENT_DELTA,
                             .said = said});
}

static void tell(struct exchange *exchange, const struct piece *piece)
{
    if (piece->begin) {
        send(&(struct event){
            .exchange = exchange, .type = "response.created", .kind = EVENT_RESPONSE});
        send(&(struct event){
            .exchange = exchange, .type = "response.in_progress", .kind = EVENT_RESPONSE});
    }
    answer_events(exchange, piece, tell_event, exchange);
    if (piece->end)
        end_item(exchange, strcmp(status_of(exchange, true), "incomplete") == 0);
}

static void end(struct exchange *exchange)
{
    bool cut = strcmp(status_of(exchange, true), "incomplete") == 0;
    send(&(struct event){.exchange = exchange,
                         .type = cut ? "response.incomplete" : "response.completed",
                         .kind = EVENT_OVER});
}

static void broken(struct exchange *exchange, const struct refusal *refusal)
{
    send(&(struct event){
        .exchange = exchange, .type = "error", .kind = EVENT_ERROR, .refusal = refusal});
}

const struct api api_responses = {
    .items = true, .whole = put_whole, .piece = tell, .end = end, .broken = broken};
