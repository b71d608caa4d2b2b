#include "daemon/http/answer.h"

#include <stdio.h>
#include <string.h>

#include "daemon/answer/call_format.h"
#include "daemon/request/server.h"
#include "daemon/request/text_stream.h"
#include "protocol/base/mix.h"

/* ---- parts -------------------------------------------------------------------------------------
 */

bool answer_reads(const struct exchange *exchange)
{
    return exchange->choices && (exchange->query.tools.reads || exchange->route->api->items);
}

void answer_reader_make(struct exchange *exchange, struct choice *choice)
{
    const struct query_tools *tools = &exchange->query.tools;
    answer_reader_init(&choice->reader, &exchange->model->text->answer, tools->thinks,
                       tools->count > 0, answer_message_add, &choice->message);
    choice->reader.names = tools->names;
    choice->reader.types = tools->types;
}

enum answer_end answer_end(const struct exchange *exchange, const struct seq *seq)
{
    const struct choice *choice = &exchange->choices[seq->number];
    if (seq->finish != FINISH_STOP)
        return seq->finish == FINISH_LENGTH ? ANSWER_END_LENGTH : ANSWER_END_OTHER;
    return choice->reader.calls > 0 ? ANSWER_END_CALLS : ANSWER_END_STOP;
}

void answer_events(struct exchange *exchange, const struct piece *piece, answer_sink sink,
                   void *context)
{
    struct answer_reader *reader = &exchange->choices[piece->seq->number].reader;
    if (!answer_reads(exchange)) {
        const struct answer_event event = {
            .part = ANSWER_CONTENT, .text = piece->text, .length = piece->length};
        if (piece->length > 0)
            sink(context, &event);
        return;
    }
    reader->sink = sink;
    reader->context = context;
    answer_reader_push(reader, piece->text, piece->length);
    if (piece->end) {
        struct choice *choice = &exchange->choices[piece->seq->number];
        answer_reader_finish(reader);
        choice->end = answer_end(exchange, piece->seq);
        choice->stop = piece->seq->text_stream->found;
    }
    exchange->out.failed |= reader->failed;
}

void answer_gather(struct exchange *exchange, const struct seq *seq)
{
    struct choice *choice = &exchange->choices[seq->number];
    const struct buffer *text = &seq->text_stream->text;
    const struct piece piece = {.exchange = exchange,
                                .seq = seq,
                                .text = text->length > 0 ? text->data : "",
                                .length = text->length,
                                .end = true};
    if (exchange->route->api->items)
        answer_events(exchange, &piece, answer_items_add, &choice->items);
    else
        answer_events(exchange, &piece, answer_message_add, &choice->message);
    exchange->out.failed |= choice->message.failed || choice->items.failed;
}

/* ---- what APIs have in common ------------------------------------------------------------------
 */

/* Nine letters and digits. */
static void short_id(uint64_t seed, char *id)
{
    static const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    seed = mix64(seed);
    for (int i = 0; i < 9; i++, seed /= 62)
        id[i] = digits[seed % 62];
    id[9] = '\0';
}

void answer_call_id(const struct exchange *exchange, uint32_t choice, uint32_t call,
                    const char *prefix, char id[ANSWER_CALL_ID_MAX])
{
    const struct call_format *format = exchange->model->text->answer.calls;
    if (format && format->short_ids)
        short_id(exchange->http->salt + (exchange->sink.number << 20) + ((uint64_t)choice << 12) +
                     call + 1,
                 id);
    else
        snprintf(id, ANSWER_CALL_ID_MAX, "%s%s%02x%02x", prefix, exchange->answer_id, choice, call);
}

void answer_put_buffer(struct json_writer *writer, const char *key, const struct buffer *text)
{
    json_put_string(writer, key, text->length > 0 ? text->data : "", text->length);
}

void answer_put_usage(struct json_writer *writer, const struct exchange *exchange)
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
    if (exchange->drafted_tokens > 0) {
        json_open(writer, "completion_tokens_details", '{');
        json_put_uint(writer, "accepted_prediction_tokens", exchange->accepted_tokens);
        json_put_uint(writer, "rejected_prediction_tokens",
                      exchange->drafted_tokens - exchange->accepted_tokens);
        json_close(writer, '}');
    }
    json_close(writer, '}');
}

void answer_put_finish(struct json_writer *writer, const struct piece *piece)
{
    if (!piece->end) /* until then `finish` is the worker's */
        json_put_null(writer, "finish_reason");
    else if (piece->exchange->query.prompt_only)
        json_put_text(writer, "finish_reason", finish_name(FINISH_LENGTH));
    else if (answer_end(piece->exchange, piece->seq) == ANSWER_END_CALLS)
        json_put_text(writer, "finish_reason", "tool_calls");
    else
        json_put_text(writer, "finish_reason", finish_name(piece->seq->finish));
}

struct piece answer_whole_piece(const struct exchange *exchange, const struct seq *seq)
{
    const struct buffer *text = &seq->text_stream->text;
    bool told = !exchange->query.prompt_only;
    return (struct piece){.exchange = exchange,
                          .seq = seq,
                          .text = text->length > 0 ? text->data : "",
                          .length = text->length,
                          .count = told && seq->out_logprobs ? answer_tokens(exchange, seq) : 0,
                          .ids = told ? seq_out_count(seq) : 0,
                          .end = true};
}

void answer_end_openai(struct exchange *exchange)
{
    out_text(&exchange->out, "data: [DONE]\n\n");
}
