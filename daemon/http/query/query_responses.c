/* What /v1/responses alone has: a conversation as a list of items, tools without a function inside,
 * a format within `text`. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/http/query/query_constraint.h"
#include "daemon/http/query/query_convert.h"

static int unknown(const struct reading *reading, const json *member)
{
    return error_set(reading->error, ERR_UNKNOWN_FIELD, "%s.%.32s is not known",
                     reading->field->name, json_key(member));
}

/* {"format": {...}, "verbosity": ...} */
int read_responses_text(const struct reading *reading, const json *value)
{
    if (!json_is_object(value))
        return error_set(reading->error, ERR_BAD_VALUE, "text must be an object");
    for (const json *item = json_child(value); item; item = json_next(item)) {
        int rc = 0;
        if (json_is_null(item))
            continue;
        if (strcmp(json_key(item), "format") == 0)
            rc = read_text_format(reading, item);
        else if (strcmp(json_key(item), "verbosity") != 0)
            rc = unknown(reading, item);
        else if (strcmp(json_string(item), "medium") != 0)
            rc = error_set(reading->error, ERR_UNSUPPORTED,
                           "text.verbosity must be \"medium\": nothing here makes answers shorter "
                           "or longer");
        if (rc)
            return rc;
    }
    return 0;
}

/* {"effort": ..., "summary": ...}: thought is told as it is, and no summary is made of it. */
int read_responses_reasoning(const struct reading *reading, const json *value)
{
    if (!json_is_object(value))
        return error_set(reading->error, ERR_BAD_VALUE, "reasoning must be an object");
    for (const json *item = json_child(value); item; item = json_next(item)) {
        const char *key = json_key(item);
        bool summary = strcmp(key, "summary") == 0 || strcmp(key, "generate_summary") == 0;
        int rc = 0;
        if (json_is_null(item))
            continue;
        if (strcmp(key, "effort") == 0)
            rc = chat_prompt_effort(&reading->query->chat, item, reading->error);
        else if (!summary)
            rc = unknown(reading, item);
        else if (strcmp(json_string(item), "auto") != 0)
            rc = error_set(reading->error, ERR_UNSUPPORTED,
                           "reasoning.summary must be \"auto\": summaries are not made");
        if (rc)
            return rc;
    }
    return 0;
}

/* ---- items -------------------------------------------------------------------------------------
 */

static const char *type_of(const json *item)
{
    const json *type = json_get(item, "type");
    return type ? json_string(type) : json_get(item, "role") ? "message" : "";
}

static bool is_assistant(const json *item)
{
    const char *type = type_of(item);
    return strcmp(type, "function_call") == 0 || strcmp(type, "reasoning") == 0 ||
           (strcmp(type, "message") == 0 &&
            strcmp(json_string(json_get(item, "role")), "assistant") == 0);
}

static int put_call(struct json_writer *writer, const json *item, struct error *error)
{
    static const char *const needed[] = {"call_id", "name", "arguments"};
    for (size_t i = 0; i < 3; i++)
        if (!json_is_string(json_get(item, needed[i])))
            return error_set(error, ERR_BAD_VALUE, "input: a function_call without %s", needed[i]);
    query_open_function(writer, json_string(json_get(item, "call_id")));
    json_put_value(writer, "name", json_get(item, "name"));
    json_put_value(writer, "arguments", json_get(item, "arguments"));
    query_close_function(writer);
    return 0;
}

static int put_texts_of(struct json_writer *writer, const json *item, struct error *error)
{
    static const char *const types[] = {"input_text", "output_text", "text", NULL};
    return query_put_texts(writer, "content", json_get(item, "content"), types, error);
}

/* What the model said in a row is one message: thought, content, calls; *ret_next is behind it. */
static int put_assistant(struct json_writer *writer, const json *item, const json **ret_next,
                         struct error *error)
{
    static const char *const thought[] = {"reasoning_text", "summary_text", NULL};
    const json *at, *content = NULL, *reasoning = NULL;
    bool calls = false;
    int rc = 0;
    for (at = item; at && is_assistant(at) && !(calls && strcmp(type_of(at), "function_call") != 0);
         at = json_next(at)) {
        const char *type = type_of(at);
        if (strcmp(type, "message") == 0 && content)
            break;
        calls |= strcmp(type, "function_call") == 0;
        content = strcmp(type, "message") == 0 ? at : content;
        reasoning = strcmp(type, "reasoning") == 0 ? at : reasoning;
    }
    *ret_next = at;
    json_open(writer, NULL, '{');
    json_put_text(writer, "role", "assistant");
    if (content)
        rc = put_texts_of(writer, content, error);
    else
        json_put_null(writer, "content");
    if (!rc && json_child(json_get(reasoning, "content")))
        rc = query_put_texts(writer, "reasoning_content", json_get(reasoning, "content"), thought,
                             error);
    if (calls)
        json_open(writer, "tool_calls", '[');
    for (; !rc && calls && item != at; item = json_next(item))
        rc = strcmp(type_of(item), "function_call") == 0 ? put_call(writer, item, error) : 0;
    if (calls)
        json_close(writer, ']');
    json_close(writer, '}');
    return rc;
}

static int put_output(struct json_writer *writer, const json *item, struct error *error)
{
    static const char *const types[] = {"input_text", "output_text", "text", NULL};
    const json *output = json_get(item, "output");
    json_open(writer, NULL, '{');
    json_put_text(writer, "role", "tool");
    json_put_text(writer, "tool_call_id", json_string(json_get(item, "call_id")));
    int rc = query_put_texts(writer, "content", output, types, error);
    json_close(writer, '}');
    return rc;
}

static int put_message(struct json_writer *writer, const json *item, struct error *error)
{
    const char *role = json_string(json_get(item, "role"));
    json_open(writer, NULL, '{');
    /* Templates know the older name. */
    json_put_text(writer, "role", strcmp(role, "developer") == 0 ? "system" : role);
    int rc = put_texts_of(writer, item, error);
    json_close(writer, '}');
    return rc;
}

static int put_items(struct json_writer *writer, const json *input, struct error *error)
{
    int rc = 0;
    for (const json *item = json_child(input), *next; !rc && item; item = next) {
        const char *type = type_of(item);
        next = json_next(item);
        if (is_assistant(item))
            rc = put_assistant(writer, item, &next, error);
        else if (strcmp(type, "message") == 0)
            rc = put_message(writer, item, error);
        else if (strcmp(type, "function_call_output") == 0)
            rc = put_output(writer, item, error);
        else
            rc = error_set(error, ERR_UNSUPPORTED, "input: an item of type %.32s is not supported",
                           *type ? type : "(none)");
    }
    return rc;
}

static void put_text_message(struct json_writer *writer, const char *role, const char *text)
{
    json_open(writer, NULL, '{');
    json_put_text(writer, "role", role);
    json_put_text(writer, "content", text);
    json_close(writer, '}');
}

static int put_tools(struct json_writer *writer, const json *tools, struct error *error)
{
    json_open(writer, "tools", '[');
    for (const json *tool = json_child(tools); tool; tool = json_next(tool)) {
        const char *type = json_string(json_get(tool, "type"));
        if (strcmp(type, "function") != 0)
            return error_set(error, ERR_UNSUPPORTED, "tools: one of type %.32s is not supported",
                             type);
        query_open_function(writer, NULL);
        for (const json *item = json_child(tool); item; item = json_next(item))
            if (strcmp(json_key(item), "type") != 0 && !json_is_null(item))
                json_put_value(writer, json_key(item), item);
        query_close_function(writer);
    }
    json_close(writer, ']');
    return 0;
}

int query_write_responses(const struct query *query, struct json_writer *writer,
                          const char **ret_param, struct error *error)
{
    const json *input = json_get(query->document, "input");
    const json *instructions = json_get(query->document, "instructions");
    const json *tools = json_get(query->document, "tools");
    const json *extra = json_get(query->document, "chat_template_kwargs");
    int rc = 0;
    *ret_param = "input";
    json_open(writer, NULL, '{');
    json_open(writer, "messages", '[');
    if (json_is_string(instructions))
        put_text_message(writer, "system", json_string(instructions));
    if (json_is_string(input))
        put_text_message(writer, "user", json_string(input));
    else if (json_is_array(input))
        rc = put_items(writer, input, error);
    else
        rc = error_set(error, ERR_BAD_VALUE, "input must be a string or a list of items");
    json_close(writer, ']');
    if (rc)
        return rc;
    *ret_param = "tools";
    rc = put_tools(writer, tools, error);
    if (extra &&
        !json_is_null(extra)) /* the body it stands in goes before the template is rendered */
        json_put_value(writer, "extra", extra);
    json_close(writer, '}');
    return rc;
}

/* ---- what an answer tells again ----------------------------------------------------------------
 */

/* What the request said, or what stands for it; NULL: nothing does. */
static void put_told(struct json_writer *writer, const void *context)
{
    static const struct {
        const char *name, *otherwise;
    } members[] = {{"instructions", "null"},
                   {"max_output_tokens", "null"},
                   {"metadata", "{}"},
                   {"parallel_tool_calls", "true"},
                   {"reasoning", "{\"effort\":null,\"summary\":null}"},
                   {"temperature", "null"},
                   {"text", "{\"format\":{\"type\":\"text\"}}"},
                   {"tool_choice", "\"auto\""},
                   {"tools", "[]"},
                   {"top_p", "null"},
                   {"user", NULL}};
    const struct json_bounds bounds = {.bytes_max = 64, .depth_max = 4, .values_max = 8};
    const struct query *query = context;
    json_open(writer, NULL, '{');
    for (size_t i = 0; i < sizeof(members) / sizeof(members[0]); i++) {
        const json *value = json_get(query->document, members[i].name);
        const char *text = members[i].otherwise;
        json *otherwise;
        if (value && !json_is_null(value)) {
            json_put_value(writer, members[i].name, value);
        } else if (text && json_parse(text, strlen(text), bounds, &otherwise, NULL) == 0) {
            json_put_value(writer, members[i].name, otherwise);
            json_free(otherwise);
        }
    }
    json_close(writer, '}');
}

int query_keep_told(struct query *query, struct error *error)
{
    size_t length;
    query->told = json_written(put_told, query, &length);
    return query->told ? 0 : error_set(error, ERR_NO_MEMORY, "no memory for what is told again");
}
