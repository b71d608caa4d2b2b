#include "client/job/render.h"

#include <stdio.h>
#include <stdlib.h>

#include "client/terminal/status.h"
#include "protocol/base/json.h"

/* ---- plain -------------------------------------------------------------------------------------
 */

static void show_tokens(struct output *output, struct result *result)
{
    const int32_t *tokens = (const int32_t *)(const void *)result->tokens.bytes;
    size_t count = item_count(&result->tokens, sizeof(*tokens));
    for (; result->shown < count; result->shown++) {
        output_print(output, "%s%d", result->begun ? "," : "", tokens[result->shown]);
        result->begun = true;
    }
}

static void show_text(struct output *output, struct result *result)
{
    size_t more = buffer_used(&result->text) - result->shown;
    if (more == 0)
        return;
    output_put(output, result->text.bytes + result->shown, more);
    result->shown += more;
    result->begun = true;
}

static void show_scores(struct output *output, const struct item *item, struct result *result,
                        uint64_t index)
{
    const sluice_score *scores = (const sluice_score *)(const void *)result->scores.bytes;
    size_t count = item_count(&result->scores, sizeof(*scores));
    for (size_t i = 0; i < count; i++) {
        if (item->line > 0)
            output_print(output, "%llu\t", (unsigned long long)index);
        output_print(output, "%zu\t%.9g\t%d\t%.9g\n", i + 1, (double)scores[i].logprob,
                     scores[i].top_token, (double)scores[i].top_logprob);
    }
}

static void show_rows(struct output *output, const struct result *result)
{
    const float *values = (const float *)(const void *)result->rows.bytes;
    size_t count = item_count(&result->rows, sizeof(*values));
    for (size_t i = 0; i < count; i++)
        output_print(output, "%.9g%c", (double)values[i], (i + 1) % result->width ? ' ' : '\n');
}

static void show_generated(struct output *output, const struct item *item, struct result *result)
{
    if (item->text)
        show_text(output, result);
    else
        show_tokens(output, result);
    /* Of a file every result has its line, also an empty one, so that lines can be counted. */
    if (result->ended && (result->begun || item->line > 0))
        output_put(output, "\n", 1);
}

bool render_plain(struct output *output, struct item *item, int job, bool whole)
{
    if (whole && item->state != ITEM_ENDED)
        return false;
    for (uint32_t i = 0; i < item->result_count; i++) {
        struct result *result = &item->results[i];
        if (result->ended && result->shown == SIZE_MAX)
            continue;
        if (job == SLUICE_GENERATE)
            show_generated(output, item, result);
        if (!result->ended)
            return false;
        if (job == SLUICE_SCORE)
            show_scores(output, item, result, item->index + i);
        else if (job == SLUICE_EMBED)
            show_rows(output, result);
        result->shown = SIZE_MAX;
    }
    return true;
}

/* ---- JSON --------------------------------------------------------------------------------------
 */

static void put_tokens(struct json_writer *writer, const struct result *result)
{
    const int32_t *tokens = (const int32_t *)(const void *)result->tokens.bytes;
    json_open(writer, "tokens", '[');
    for (size_t i = 0; i < item_count(&result->tokens, sizeof(*tokens)); i++)
        json_put_int(writer, NULL, tokens[i]);
    json_close(writer, ']');
}

static void put_tops(struct json_writer *writer, const struct result *result, bool ids)
{
    const sluice_top *tops = (const sluice_top *)(const void *)result->tops.bytes;
    size_t count = result->top_count ? item_count(&result->tops, sizeof(*tops)) : 0;
    json_open(writer, ids ? "top_tokens" : "top_logprobs", '[');
    for (size_t i = 0; i < count; i++) {
        if (i % result->top_count == 0)
            json_open(writer, NULL, '[');
        if (ids)
            json_put_int(writer, NULL, tops[i].token);
        else
            json_put_double(writer, NULL, (double)tops[i].logprob);
        if ((i + 1) % result->top_count == 0)
            json_close(writer, ']');
    }
    json_close(writer, ']');
}

static void put_logprobs(struct json_writer *writer, const struct item *item,
                         const struct result *result)
{
    const float *logprobs = (const float *)(const void *)result->logprobs.bytes;
    if (item->work.params.logprobs < 0) {
        json_put_null(writer, "logprobs");
        return;
    }
    json_open(writer, "logprobs", '[');
    for (size_t i = 0; i < item_count(&result->logprobs, sizeof(*logprobs)); i++)
        json_put_double(writer, NULL, (double)logprobs[i]);
    json_close(writer, ']');
    if (item->work.params.logprobs > 0) {
        put_tops(writer, result, true);
        put_tops(writer, result, false);
    }
}

static void put_scores(struct json_writer *writer, const struct result *result)
{
    const sluice_score *scores = (const sluice_score *)(const void *)result->scores.bytes;
    size_t count = item_count(&result->scores, sizeof(*scores));
    json_open(writer, "logprobs", '[');
    for (size_t i = 0; i < count; i++)
        json_put_double(writer, NULL, (double)scores[i].logprob);
    json_close(writer, ']');
    json_open(writer, "top_tokens", '[');
    for (size_t i = 0; i < count; i++)
        json_put_int(writer, NULL, scores[i].top_token);
    json_close(writer, ']');
    json_open(writer, "top_logprobs", '[');
    for (size_t i = 0; i < count; i++)
        json_put_double(writer, NULL, (double)scores[i].top_logprob);
    json_close(writer, ']');
}

static void put_rows(struct json_writer *writer, const struct item *item,
                     const struct result *result)
{
    const float *values = (const float *)(const void *)result->rows.bytes;
    size_t count = item_count(&result->rows, sizeof(*values));
    bool several = item->work.pooling[0] == 'a';
    json_open(writer, "embedding", '[');
    for (size_t i = 0; i < count; i++) {
        if (several && i % result->width == 0)
            json_open(writer, NULL, '[');
        json_put_double(writer, NULL, (double)values[i]);
        if (several && (i + 1) % result->width == 0)
            json_close(writer, ']');
    }
    json_close(writer, ']');
}

static void put_error(struct json_writer *writer, const sluice_error *error)
{
    json_open(writer, "error", '{');
    json_put_text(writer, "code", sluice_error_name(error->code));
    json_put_text(writer, "text", error->text);
    if (error->limit) {
        json_put_uint(writer, "limit", error->limit);
        json_put_uint(writer, "value", error->value);
    }
    if (error->retry_after_ms)
        json_put_uint(writer, "retry_after_ms", error->retry_after_ms);
    json_put_bool(writer, "retry", error->retry == SLUICE_RETRY_LATER);
    json_close(writer, '}');
}

static void put_end(struct json_writer *writer, const sluice_end *end)
{
    json_put_text(writer, "finish_reason", sluice_finish_name(end->finish));
    if (end->finish == SLUICE_FINISH_ERROR)
        put_error(writer, &end->error);
    json_open(writer, "usage", '{');
    json_put_uint(writer, "prompt_tokens", end->prompt_tokens);
    json_put_uint(writer, "completion_tokens", end->completion_tokens);
    if (end->cached_tokens > 0)
        json_put_uint(writer, "cached_tokens", end->cached_tokens);
    json_close(writer, '}');
    json_open(writer, "timings", '{');
    json_put_uint(writer, "queued_us", end->queued_us);
    json_put_uint(writer, "first_token_us", end->first_token_us);
    json_put_uint(writer, "total_us", end->total_us);
    json_close(writer, '}');
}

static void write_result(struct json_writer *writer, const struct item *item, uint32_t number,
                         int job)
{
    const struct result *result = &item->results[number];
    json_open(writer, NULL, '{');
    json_put_uint(writer, "index", item->index + number);
    if (item->work.id)
        json_put_value(writer, "id", item->work.id);
    if (item->work.custom_id)
        json_put_value(writer, "custom_id", item->work.custom_id);
    if (job == SLUICE_GENERATE) {
        put_tokens(writer, result);
        if (item->text)
            json_put_string(writer, "text", (const char *)result->text.bytes,
                            buffer_used(&result->text));
        else
            json_put_null(writer, "text");
        put_logprobs(writer, item, result);
    } else if (job == SLUICE_SCORE) {
        put_scores(writer, result);
    } else {
        put_rows(writer, item, result);
    }
    put_end(writer, &result->end);
    json_close(writer, '}');
}

static void write_line(struct json_writer *writer, const struct item *item, uint32_t number,
                       int job)
{
    if (item->work.form == LINE_OWN)
        write_result(writer, item, number, job);
    else
        batch_form_write(writer, item);
}

void render_json(struct output *output, const struct item *item, int job)
{
    uint32_t lines = item->work.form == LINE_OWN ? item->result_count : 1;
    for (uint32_t i = 0; i < lines; i++) {
        struct json_writer writer;
        json_writer_init(&writer, NULL, 0);
        write_line(&writer, item, i, job);
        size_t length = writer.used;
        char *text = malloc(length + 1);
        if (!text) {
            say("out of memory");
            exit(STATUS_SERVER);
        }
        json_writer_init(&writer, text, length);
        write_line(&writer, item, i, job);
        text[length] = '\n';
        output_put(output, text, length + 1);
        free(text);
    }
}
