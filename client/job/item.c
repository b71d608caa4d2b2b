#include "client/job/item.h"

#include <stdlib.h>
#include <string.h>

#include "client/job/job.h"
#include "client/terminal/status.h"

static void keep(struct item *item, struct buffer *buffer, const void *bytes, size_t length)
{
    if (length == 0)
        return;
    if (buffer_reserve(buffer, length)) {
        say("out of memory");
        exit(STATUS_SERVER);
    }
    memcpy(buffer->bytes + buffer->end, bytes, length);
    buffer->end += length;
    item->bytes += length;
    job_held(item->job, length);
}

size_t item_count(const struct buffer *buffer, size_t size)
{
    return buffer_used(buffer) / size;
}

static void clear_result(struct result *result)
{
    buffer_free(&result->tokens);
    buffer_free(&result->logprobs);
    buffer_free(&result->tops);
    buffer_free(&result->text);
    buffer_free(&result->scores);
    buffer_free(&result->rows);
    *result = (struct result){0};
}

void item_init(struct item *item, struct job *job, const struct work *work, size_t bytes)
{
    *item = (struct item){.work = *work, .job = job, .input = bytes, .bytes = bytes};
    item->result_count = item->open = (uint32_t)work->params.n;
    item->results = calloc(item->result_count, sizeof(*item->results));
    if (!item->results) {
        say("out of memory");
        exit(STATUS_SERVER);
    }
}

void item_reset(struct item *item)
{
    for (uint32_t i = 0; i < item->result_count; i++)
        clear_result(&item->results[i]);
    item->open = item->result_count;
    item->state = ITEM_WAITING;
}

void item_clear(struct item *item)
{
    item_reset(item);
    free(item->results);
    /* The command line's own tokens are its settings'. */
    if (item->line > 0)
        work_clear(&item->work);
}

static void take_tokens(void *context, uint32_t sequence, const sluice_piece *piece)
{
    struct item *item = context;
    struct result *result = &item->results[sequence];
    keep(item, &result->tokens, piece->tokens, piece->count * sizeof(*piece->tokens));
    if (piece->logprobs)
        keep(item, &result->logprobs, piece->logprobs, piece->count * sizeof(*piece->logprobs));
    if (piece->tops) {
        result->top_count = piece->top_count;
        keep(item, &result->tops, piece->tops,
             piece->count * piece->top_count * sizeof(*piece->tops));
    }
    if (piece->text)
        keep(item, &result->text, piece->text, piece->text_length);
    job_tokens(item->job, piece->count);
}

static void take_scores(void *context, uint32_t sequence, size_t first, const sluice_score *scores,
                        size_t count)
{
    struct item *item = context;
    (void)first;
    keep(item, &item->results[sequence].scores, scores, count * sizeof(*scores));
}

static void take_embedding(void *context, uint32_t sequence, size_t row, const float *values,
                           size_t width)
{
    struct item *item = context;
    (void)row;
    item->results[sequence].width = width;
    keep(item, &item->results[sequence].rows, values, width * sizeof(*values));
}

static void take_end(void *context, uint32_t sequence, const sluice_end *end)
{
    struct item *item = context;
    item->results[sequence].end = *end;
    item->results[sequence].ended = true;
    item->open--;
    if (item->open == 0)
        job_item_ended(item->job, item);
}

const sluice_callbacks item_callbacks = {take_tokens, take_scores, take_embedding, take_end};
