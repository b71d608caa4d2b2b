/* /v1/completions: texts that go on. */
#include <stdio.h>

#include "daemon/http/answer.h"
#include "daemon/http/api/api.h"
#include "daemon/request/server.h"

static void put_start(struct json_writer *writer, const struct exchange *exchange)
{
    char id[64];
    snprintf(id, sizeof(id), "cmpl-%s", exchange->answer_id);
    json_open(writer, NULL, '{');
    json_put_text(writer, "id", id);
    json_put_text(writer, "object", "text_completion");
    json_put_uint(writer, "created", exchange->created_s);
    json_put_text(writer, "model", lookup_called(exchange));
}

static void put_choice(struct json_writer *writer, const struct piece *piece, bool begin)
{
    json_open(writer, NULL, '{');
    json_put_uint(writer, "index", piece->seq->number);
    json_put_string(writer, "text", piece->text, piece->length);
    answer_put_logprobs(writer, piece);
    answer_put_finish(writer, piece);
    if (begin)
        answer_put_prompt(writer, piece->exchange, piece->seq);
    answer_put_token_ids(writer, piece);
    json_close(writer, '}');
}

static void put_chunk(struct json_writer *writer, const void *context)
{
    const struct piece *piece = context;
    put_start(writer, piece->exchange);
    json_open(writer, "choices", '[');
    put_choice(writer, piece, piece->begin);
    json_close(writer, ']');
    if (piece->exchange->query.continuous_usage)
        answer_put_usage(writer, piece->exchange);
    else if (piece->exchange->query.include_usage)
        json_put_null(writer, "usage");
    json_close(writer, '}');
}

static void put_usage(struct json_writer *writer, const void *context)
{
    const struct exchange *exchange = context;
    put_start(writer, exchange);
    json_open(writer, "choices", '[');
    json_close(writer, ']');
    answer_put_usage(writer, exchange);
    json_close(writer, '}');
}

static void put_whole(struct json_writer *writer, const void *context)
{
    const struct exchange *exchange = context;
    const struct request *request = exchange->request;
    put_start(writer, exchange);
    json_open(writer, "choices", '[');
    for (uint32_t i = 0; i < request->seq_count; i++) {
        const struct piece piece = answer_whole_piece(exchange, &request->seqs[i]);
        put_choice(writer, &piece, true);
    }
    json_close(writer, ']');
    answer_put_usage(writer, exchange);
    json_close(writer, '}');
}

static void tell(struct exchange *exchange, const struct piece *piece)
{
    out_event(&exchange->out, put_chunk, piece);
}

static void end(struct exchange *exchange)
{
    if (exchange->query.include_usage)
        out_event(&exchange->out, put_usage, exchange);
    answer_end_openai(exchange);
}

const struct api api_completions = {.whole = put_whole, .piece = tell, .end = end};
