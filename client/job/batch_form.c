/* Results as OpenAI's batches have them: a line per request, with the answer that the API would
 * give, or its error. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "client/job/job.h"
#include "client/job/render.h"
#include "protocol/base/json.h"

/* As the daemon's own HTTP side answers; 0: nothing was answered at all. */
static unsigned status_of(const sluice_end *end)
{
    if (end->finish == SLUICE_FINISH_DEADLINE)
        return 504;
    switch (end->error.code) {
    case SLUICE_E_CONNECT:
    case SLUICE_E_TIMEOUT:
    case SLUICE_E_CLOSED:
    case SLUICE_E_CANCELLED:
        return 0;
    case SLUICE_E_BUSY:
        return 429;
    case SLUICE_E_NOT_FOUND:
        return 404;
    case SLUICE_E_DENIED:
        return 403;
    case SLUICE_E_DEADLINE:
        return 504;
    case SLUICE_E_DRAINING:
    case SLUICE_E_LOADING:
    case SLUICE_E_DEVICE:
        return 503;
    case SLUICE_E_INTERNAL:
    case SLUICE_E_NO_MEMORY:
    case SLUICE_E_IO:
        return 500;
    default:
        return 400;
    }
}

/* The first result that did not come about; NULL: all did. */
static const sluice_end *failure_of(const struct item *item)
{
    for (uint32_t i = 0; i < item->result_count; i++) {
        int finish = item->results[i].end.finish;
        if (finish != SLUICE_FINISH_STOP && finish != SLUICE_FINISH_LENGTH)
            return &item->results[i].end;
    }
    return NULL;
}

static const char *code_of(const sluice_end *end)
{
    return end->finish == SLUICE_FINISH_ERROR ? sluice_error_name(end->error.code)
                                              : sluice_finish_name(end->finish);
}

static void put_reason(struct json_writer *writer, const sluice_end *end, bool whole)
{
    const char *text = end->finish == SLUICE_FINISH_ERROR      ? end->error.text
                       : end->finish == SLUICE_FINISH_DEADLINE ? "the deadline passed"
                                                               : "cancelled before it had ended";
    json_open(writer, "error", '{');
    json_put_text(writer, "message", text);
    if (whole)
        json_put_text(writer, "type", "invalid_request_error");
    json_put_text(writer, "code", code_of(end));
    json_close(writer, '}');
}

static void put_choice(struct json_writer *writer, const struct item *item, uint32_t number)
{
    const struct result *result = &item->results[number];
    const char *text = (const char *)result->text.bytes + result->text.start;
    size_t length = buffer_used(&result->text);
    json_open(writer, NULL, '{');
    json_put_uint(writer, "index", number);
    if (item->work.form == LINE_CHAT) {
        json_open(writer, "message", '{');
        json_put_text(writer, "role", "assistant");
        json_put_string(writer, "content", length ? text : "", length);
        json_close(writer, '}');
    } else {
        json_put_string(writer, "text", length ? text : "", length);
    }
    batch_form_logprobs(writer, item, result);
    json_put_text(writer, "finish_reason", sluice_finish_name(result->end.finish));
    json_close(writer, '}');
}

static void put_row(struct json_writer *writer, const struct item *item, uint32_t number)
{
    const struct buffer *rows = &item->results[number].rows;
    const float *values = (const float *)(const void *)(rows->bytes + rows->start);
    json_open(writer, NULL, '{');
    json_put_text(writer, "object", "embedding");
    json_put_uint(writer, "index", number);
    json_open(writer, "embedding", '[');
    for (size_t i = 0; i < item_count(rows, sizeof(*values)); i++)
        json_put_double(writer, NULL, (double)values[i]);
    json_close(writer, ']');
    json_close(writer, '}');
}

static void put_usage(struct json_writer *writer, const struct item *item)
{
    uint64_t prompt = item->results[0].end.prompt_tokens, answer = 0;
    for (uint32_t i = 0; i < item->result_count; i++)
        answer += item->results[i].end.completion_tokens;
    json_open(writer, "usage", '{');
    json_put_uint(writer, "prompt_tokens", prompt);
    if (item->work.form != LINE_EMBEDDING)
        json_put_uint(writer, "completion_tokens", answer);
    json_put_uint(writer, "total_tokens", prompt + answer);
    json_close(writer, '}');
}

static void put_answer(struct json_writer *writer, const struct item *item)
{
    static const char *const objects[] = {[LINE_COMPLETION] = "text_completion",
                                          [LINE_CHAT] = "chat.completion",
                                          [LINE_EMBEDDING] = "list"};
    static const char *const prefixes[] = {[LINE_COMPLETION] = "cmpl", [LINE_CHAT] = "chatcmpl"};
    enum line_form form = item->work.form;
    char id[48];
    json_open(writer, "body", '{');
    if (form != LINE_EMBEDDING) {
        snprintf(id, sizeof(id), "%s-%llu", prefixes[form], (unsigned long long)item->index);
        json_put_text(writer, "id", id);
        json_put_uint(writer, "created", (uint64_t)time(NULL));
    }
    json_put_text(writer, "object", objects[form]);
    json_put_text(writer, "model", job_model(item->job, item));
    json_open(writer, form == LINE_EMBEDDING ? "data" : "choices", '[');
    for (uint32_t i = 0; i < item->result_count; i++)
        (form == LINE_EMBEDDING ? put_row : put_choice)(writer, item, i);
    json_close(writer, ']');
    put_usage(writer, item);
    json_close(writer, '}');
}

static void put_response(struct json_writer *writer, const struct item *item, const char *id,
                         const sluice_end *failure, unsigned status)
{
    if (!status) {
        json_put_null(writer, "response");
        return;
    }
    json_open(writer, "response", '{');
    json_put_uint(writer, "status_code", status);
    json_put_text(writer, "request_id", id);
    if (failure) {
        json_open(writer, "body", '{');
        put_reason(writer, failure, true);
        json_close(writer, '}');
    } else {
        put_answer(writer, item);
    }
    json_close(writer, '}');
}

void batch_form_write(struct json_writer *writer, const struct item *item)
{
    const sluice_end *failure = failure_of(item);
    unsigned status = failure ? status_of(failure) : 200;
    char id[48];
    snprintf(id, sizeof(id), "batch_req_%llu", (unsigned long long)item->line);
    json_open(writer, NULL, '{');
    json_put_text(writer, "id", id);
    if (item->work.custom_id)
        json_put_value(writer, "custom_id", item->work.custom_id);
    else
        json_put_null(writer, "custom_id");
    put_response(writer, item, id, failure, status);
    if (status)
        json_put_null(writer, "error");
    else
        put_reason(writer, failure, false);
    json_close(writer, '}');
}
