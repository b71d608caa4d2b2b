/* Log-probabilities as OpenAI's answers have them. A token is called by its text, or where its
 * bytes are none, by its number, as vLLM writes it. */
#include <stdio.h>
#include <stdlib.h>

#include "client/job/job.h"
#include "client/job/render.h"
#include "protocol/base/json.h"

#define NUMBER_MAX 32

struct told {
    const struct token_names *names;
    const int32_t *tokens;
    const float *logprobs;
    const sluice_top *tops; /* top_count of each token */
    size_t count, top_count;
};

static const void *array_of(const struct buffer *buffer)
{
    return buffer->bytes ? buffer->bytes + buffer->start : NULL;
}

static bool ends_there(const struct item *item, const struct told *told)
{
    int32_t last = told->tokens[told->count - 1];
    bool ends = token_names_at(told->names, last)->special;
    for (size_t i = 0; i < item->work.params.stop_id_count; i++)
        ends = ends || item->work.params.stop_ids[i] == last;
    return ends;
}

/* A chat's end token is none of its text's. */
static struct told told_of(const struct item *item, const struct result *result)
{
    struct told told = {
        .names = &item->job->names,
        .tokens = array_of(&result->tokens),
        .logprobs = array_of(&result->logprobs),
        .tops = array_of(&result->tops),
        .count = item_count(&result->logprobs, sizeof(*told.logprobs)),
        .top_count = item_count(&result->tops, sizeof(*told.tops)) ? result->top_count : 0,
    };
    if (item->work.form == LINE_CHAT && told.count > 0 &&
        result->end.finish == SLUICE_FINISH_STOP && ends_there(item, &told))
        told.count--;
    return told;
}

/* The name's bytes; `number` has room for those of one without a text. */
static const char *name_of(const struct told *told, int32_t token, char number[NUMBER_MAX],
                           size_t *ret_length)
{
    const struct token_name *name = token_names_at(told->names, token);
    *ret_length = name->length;
    if (name->text)
        return name->text;
    *ret_length = (size_t)snprintf(number, NUMBER_MAX, "token_id:%d", token);
    return number;
}

static size_t characters_of(const struct told *told, int32_t token)
{
    char number[NUMBER_MAX];
    size_t length, characters = 0;
    const char *name = name_of(told, token, number, &length);
    for (size_t at = 0; at < length; at++)
        characters += ((unsigned char)name[at] & 0xc0) != 0x80;
    return characters;
}

/* ---- completions -------------------------------------------------------------------------------
 */

static void put_by_name(struct json_writer *writer, const struct told *told, int32_t token,
                        float logprob)
{
    char number[NUMBER_MAX];
    size_t length;
    json_put_double(writer, name_of(told, token, number, &length), (double)logprob);
}

static void put_top_object(struct json_writer *writer, const struct told *told, size_t index)
{
    const sluice_top *tops = told->tops + index * told->top_count;
    bool chosen = false;
    json_open(writer, NULL, '{');
    for (size_t i = 0; i < told->top_count; i++) {
        put_by_name(writer, told, tops[i].token, tops[i].logprob);
        chosen = chosen || tops[i].token == told->tokens[index];
    }
    if (!chosen)
        put_by_name(writer, told, told->tokens[index], told->logprobs[index]);
    json_close(writer, '}');
}

static void put_lists(struct json_writer *writer, const struct told *told)
{
    char number[NUMBER_MAX];
    size_t offset = 0, length;
    json_open(writer, "tokens", '[');
    for (size_t i = 0; i < told->count; i++) {
        const char *name = name_of(told, told->tokens[i], number, &length);
        json_put_string(writer, NULL, name, length);
    }
    json_close(writer, ']');
    json_open(writer, "token_logprobs", '[');
    for (size_t i = 0; i < told->count; i++)
        json_put_double(writer, NULL, (double)told->logprobs[i]);
    json_close(writer, ']');
    if (told->top_count == 0) {
        json_put_null(writer, "top_logprobs");
    } else {
        json_open(writer, "top_logprobs", '[');
        for (size_t i = 0; i < told->count; i++)
            put_top_object(writer, told, i);
        json_close(writer, ']');
    }
    json_open(writer, "text_offset", '[');
    for (size_t i = 0; i < told->count; i++) {
        json_put_uint(writer, NULL, offset);
        offset += characters_of(told, told->tokens[i]);
    }
    json_close(writer, ']');
}

/* ---- chats -------------------------------------------------------------------------------------
 */

static void put_token(struct json_writer *writer, const struct told *told, int32_t token,
                      float logprob)
{
    char number[NUMBER_MAX];
    size_t length;
    const struct token_name *known = token_names_at(told->names, token);
    const char *name = name_of(told, token, number, &length);
    json_put_string(writer, "token", name, length);
    json_put_double(writer, "logprob", (double)logprob);
    if (!known->text) {
        json_put_null(writer, "bytes");
        return;
    }
    json_open(writer, "bytes", '[');
    for (size_t i = 0; i < known->length; i++)
        json_put_uint(writer, NULL, (unsigned char)known->text[i]);
    json_close(writer, ']');
}

static void put_content(struct json_writer *writer, const struct told *told)
{
    json_open(writer, "content", '[');
    for (size_t i = 0; i < told->count; i++) {
        const sluice_top *tops = told->top_count ? told->tops + i * told->top_count : NULL;
        json_open(writer, NULL, '{');
        put_token(writer, told, told->tokens[i], told->logprobs[i]);
        json_open(writer, "top_logprobs", '[');
        for (size_t j = 0; j < told->top_count; j++) {
            json_open(writer, NULL, '{');
            put_token(writer, told, tops[j].token, tops[j].logprob);
            json_close(writer, '}');
        }
        json_close(writer, ']');
        json_close(writer, '}');
    }
    json_close(writer, ']');
    json_put_null(writer, "refusal");
}

void batch_form_logprobs(struct json_writer *writer, const struct item *item,
                         const struct result *result)
{
    if (item->work.params.logprobs < 0) {
        json_put_null(writer, "logprobs");
        return;
    }
    const struct told told = told_of(item, result);
    json_open(writer, "logprobs", '{');
    (item->work.form == LINE_CHAT ? put_content : put_lists)(writer, &told);
    json_close(writer, '}');
}

void batch_form_ask(struct job *job, const struct item *item)
{
    bool asks = item->work.params.logprobs >= 0 && job->client;
    for (uint32_t i = 0; asks && i < item->result_count; i++) {
        const struct result *result = &item->results[i];
        const sluice_top *tops = array_of(&result->tops);
        token_names_ask(&job->names, job->client, array_of(&result->tokens),
                        item_count(&result->tokens, sizeof(int32_t)));
        for (size_t at = 0; at < item_count(&result->tops, sizeof(*tops)); at++)
            token_names_ask(&job->names, job->client, &tops[at].token, 1);
    }
}
