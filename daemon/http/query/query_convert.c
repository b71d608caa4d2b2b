#include "daemon/http/query/query_convert.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/http/query/query_tools.h"

#define DEPTH_MAX 48u

static bool is_one_of(const char *text, const char *const *list)
{
    for (; *list; list++)
        if (strcmp(text, *list) == 0)
            return true;
    return false;
}

int query_put_texts(struct json_writer *writer, const char *key, const json *content,
                    const char *const *types, struct error *error)
{
    size_t length = 0;
    if (json_is_string(content)) {
        json_put_text(writer, key, json_string(content));
        return 0;
    }
    if (!json_is_array(content))
        return error_set(error, ERR_BAD_VALUE, "%s must be a string or a list of parts", key);
    for (const json *part = json_child(content); part; part = json_next(part)) {
        const char *type = json_string(json_get(part, "type"));
        if (!is_one_of(type, types))
            return error_set(error, ERR_UNSUPPORTED, "%s: a part of type %.32s is not supported",
                             key, *type ? type : "(none)");
        if (!json_is_string(json_get(part, "text")))
            return error_set(error, ERR_BAD_VALUE, "%s: a part without text", key);
        length += strlen(json_string(json_get(part, "text")));
    }
    char *text = malloc(length + 1), *to = text;
    if (!text)
        return error_set(error, ERR_NO_MEMORY, "no memory for a text");
    for (const json *part = json_child(content); part; part = json_next(part))
        to = stpcpy(to, json_string(json_get(part, "text")));
    json_put_string(writer, key, text, length);
    free(text);
    return 0;
}

void query_open_function(struct json_writer *writer, const char *id)
{
    json_open(writer, NULL, '{');
    if (id)
        json_put_text(writer, "id", id);
    json_put_text(writer, "type", "function");
    json_open(writer, "function", '{');
}

void query_close_function(struct json_writer *writer)
{
    json_close(writer, '}');
    json_close(writer, '}');
}

static int add_tools(struct query *query, struct error *error)
{
    int rc = 0;
    for (const json *tool = json_child(query->chat.tools); !rc && tool; tool = json_next(tool))
        rc = query_tools_function(query, tool, error);
    return rc;
}

static int parse(struct query *query, const char *text, size_t length, struct error *error)
{
    const struct json_bounds bounds = {
        .bytes_max = length, .depth_max = DEPTH_MAX, .values_max = QUERY_VALUES_MAX};
    struct error found;
    int rc = json_parse(text, length, bounds, &query->chat.document, &found);
    if (rc)
        return error_limit(error, found.code, found.limit, found.value, "the conversation: %s",
                           found.text);
    const json *tools = json_get(query->chat.document, "tools");
    query->chat.messages = json_get(query->chat.document, "messages");
    query->chat.extra = json_get(query->chat.document, "extra");
    query->chat.tools = json_child(tools) ? tools : NULL;
    if (!json_child(query->chat.messages))
        return error_set(error, ERR_BAD_VALUE, "the conversation is empty");
    return add_tools(query, error);
}

int query_convert(struct query *query, query_writer write, struct error *error)
{
    struct json_writer writer;
    const char *param = "";
    json_writer_init(&writer, NULL, 0);
    int rc = write(query, &writer, &param, error);
    size_t size = writer.used;
    char *text = rc ? NULL : malloc(size + 1);
    if (!rc && !text)
        rc = error_set(error, ERR_NO_MEMORY, "no memory for a conversation");
    if (!rc) {
        json_writer_init(&writer, text, size);
        rc = write(query, &writer, &param, error);
    }
    if (rc)
        snprintf(query->param, sizeof(query->param), "%s", param);
    if (!rc && (rc = parse(query, text, size, error)))
        snprintf(query->param, sizeof(query->param), "%s",
                 query->chat.messages && json_child(query->chat.messages) ? "tools" : "messages");
    free(text);
    return rc;
}
