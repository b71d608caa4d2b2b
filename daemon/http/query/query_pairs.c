#include "daemon/http/query/query_pairs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int wrong(const struct reading *reading, const char *expected)
{
    return error_set(reading->error, ERR_BAD_VALUE, "%s must be %s", reading->field->name,
                     expected);
}

/* A text, or an object with one, as Cohere's and Jina's clients write documents. */
static const json *text_of(const json *item, bool objects)
{
    const json *text = objects && json_is_object(item) ? json_get(item, "text") : item;
    return json_is_string(text) ? text : NULL;
}

static int read_texts(const struct reading *reading, const json *value, bool objects,
                      struct query_prompt **ret_texts, uint32_t *ret_count)
{
    const char *name = reading->field->name;
    uint32_t max = reading->limits->batch_max;
    size_t count = json_is_array(value) ? json_count(value) : 1;
    if (count == 0)
        return error_set(reading->error, ERR_EMPTY, "%s has no text", name);
    if (count > max)
        return error_limit(reading->error, ERR_TOO_LARGE, max, count,
                           "%s has %zu texts, at most %u are accepted", name, count, max);
    struct query_prompt *texts = calloc(count, sizeof(*texts)), *to = texts;
    if (!texts)
        return error_set(reading->error, ERR_NO_MEMORY, "no memory for %zu texts", count);
    *ret_texts = texts;
    *ret_count = (uint32_t)count;
    for (const json *item = json_is_array(value) ? json_child(value) : value; item;
         item = json_is_array(value) ? json_next(item) : NULL, to++) {
        const json *text = text_of(item, objects);
        if (!text)
            return wrong(reading, objects ? "a list of texts, or of objects with text"
                                          : "a string, or a list of strings");
        to->text = json_string(text);
        to->length = strlen(to->text);
    }
    return 0;
}

int read_ranked_query(const struct reading *reading, const json *value)
{
    struct query *query = reading->query;
    return json_is_string(value)
               ? read_texts(reading, value, false, &query->pairs.queries, &query->pairs.query_count)
               : wrong(reading, "a string");
}

int read_documents(const struct reading *reading, const json *value)
{
    struct query *query = reading->query;
    return json_is_array(value)
               ? read_texts(reading, value, true, &query->prompts, &query->prompt_count)
               : wrong(reading, "a list");
}

int read_text_1(const struct reading *reading, const json *value)
{
    struct query *query = reading->query;
    return read_texts(reading, value, false, &query->pairs.queries, &query->pairs.query_count);
}

int read_text_2(const struct reading *reading, const json *value)
{
    struct query *query = reading->query;
    return read_texts(reading, value, false, &query->prompts, &query->prompt_count);
}

int read_instruction(const struct reading *reading, const json *value)
{
    reading->query->pairs.instruction = json_string(value);
    return json_is_string(value) ? 0 : wrong(reading, "a string");
}

int read_top_n(const struct reading *reading, const json *value)
{
    int64_t count;
    int rc = json_integer(value, reading->field->name, 0, INT32_MAX, &count, reading->error);
    if (!rc)
        reading->query->pairs.top_n = (uint32_t)count;
    return rc;
}

int read_return_documents(const struct reading *reading, const json *value)
{
    reading->query->pairs.no_documents = !json_bool(value);
    return json_is_bool(value) ? 0 : wrong(reading, "true or false");
}

int read_use_activation(const struct reading *reading, const json *value)
{
    reading->query->pairs.log_odds = !json_bool(value);
    return json_is_bool(value) ? 0 : wrong(reading, "true or false");
}

int query_pairs_check(struct query *query, struct error *error)
{
    uint32_t queries = query->pairs.query_count, documents = query->prompt_count;
    if (query->kind == QUERY_RERANK) {
        query->pairs.ranked = calloc(documents, sizeof(*query->pairs.ranked));
        return query->pairs.ranked
                   ? 0
                   : error_set(error, ERR_NO_MEMORY, "no memory to rank %u documents", documents);
    }
    if (queries == 1 || queries == documents)
        return 0;
    snprintf(query->param, sizeof(query->param), "text_1");
    return error_set(error, ERR_BAD_VALUE,
                     "text_1 has %u texts and text_2 %u: it must have one, or as many", queries,
                     documents);
}
