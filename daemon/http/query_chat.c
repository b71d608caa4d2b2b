#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/http/query.h"

#define WHOLE_MAX 9007199254740992.0 /* whole numbers that strict JSON carries */

/* ---- checks ------------------------------------------------------------------------------------
 */

static int check_part(const json *part, struct error *error)
{
    const char *type = json_string(json_get(part, "type"));
    if (strcmp(type, "text") != 0)
        return error_set(error, ERR_UNSUPPORTED, "messages: a part of type %.32s is not supported",
                         *type ? type : "(none)");
    if (!json_is_string(json_get(part, "text")))
        return error_set(error, ERR_BAD_VALUE, "messages: a part without text");
    return 0;
}

static int check_message(const json *message, bool *ret_rewrite, struct error *error)
{
    const json *content = json_get(message, "content");
    int rc = 0;
    if (!json_is_object(message) || !json_is_string(json_get(message, "role")))
        return error_set(error, ERR_BAD_VALUE, "messages: an entry without a role");
    if (json_is_array(content)) {
        *ret_rewrite = true;
        for (const json *part = json_child(content); !rc && part; part = json_next(part))
            rc = check_part(part, error);
        return rc;
    }
    if (content && !json_is_null(content) && !json_is_string(content))
        return error_set(error, ERR_BAD_VALUE,
                         "messages: content must be a string or a list of parts");
    *ret_rewrite = *ret_rewrite || json_get(message, "tool_calls");
    return 0;
}

/* ---- rewriting ---------------------------------------------------------------------------------
 */

static void copy(struct json_writer *writer, const char *key, const json *value);

static void copy_members(struct json_writer *writer, const json *value)
{
    bool object = json_is_object(value);
    for (const json *item = json_child(value); item; item = json_next(item))
        copy(writer, object ? json_key(item) : NULL, item);
}

static void copy(struct json_writer *writer, const char *key, const json *value)
{
    if (json_is_object(value) || json_is_array(value)) {
        bool object = json_is_object(value);
        json_open(writer, key, object ? '{' : '[');
        copy_members(writer, value);
        json_close(writer, object ? '}' : ']');
    } else if (json_is_string(value)) {
        json_put_text(writer, key, json_string(value));
    } else if (json_is_bool(value)) {
        json_put_bool(writer, key, json_bool(value));
    } else if (json_is_null(value)) {
        json_put_null(writer, key);
    } else {
        double number = json_number(value);
        if (fabs(number) <= WHOLE_MAX && number == (double)(int64_t)number)
            json_put_int(writer, key, (int64_t)number);
        else
            json_put_double(writer, key, number);
    }
}

static void copy_parts(struct json_writer *writer, const json *parts, char *text)
{
    size_t length = 0;
    for (const json *part = json_child(parts); part; part = json_next(part)) {
        const char *piece = json_string(json_get(part, "text"));
        memcpy(text + length, piece, strlen(piece));
        length += strlen(piece);
    }
    json_put_string(writer, "content", text, length);
}

/* As the object that the string holds; as it is where that is none. */
static void copy_arguments(struct json_writer *writer, const json *value)
{
    const char *text = json_string(value);
    const struct json_bounds bounds = {.bytes_max = strlen(text), .depth_max = QUERY_DEPTH_MAX / 2};
    json *object;
    if (!json_is_string(value) || json_parse(text, strlen(text), bounds, &object, NULL)) {
        copy(writer, "arguments", value);
        return;
    }
    copy(writer, "arguments", object);
    json_free(object);
}

static void copy_call(struct json_writer *writer, const json *call)
{
    json_open(writer, NULL, '{');
    for (const json *item = json_child(call); item; item = json_next(item)) {
        if (strcmp(json_key(item), "function") != 0 || !json_is_object(item)) {
            copy(writer, json_key(item), item);
            continue;
        }
        json_open(writer, "function", '{');
        for (const json *part = json_child(item); part; part = json_next(part)) {
            if (strcmp(json_key(part), "arguments") == 0)
                copy_arguments(writer, part);
            else
                copy(writer, json_key(part), part);
        }
        json_close(writer, '}');
    }
    json_close(writer, '}');
}

static void copy_message(struct json_writer *writer, const json *message, char *text)
{
    json_open(writer, NULL, '{');
    for (const json *item = json_child(message); item; item = json_next(item)) {
        if (strcmp(json_key(item), "content") == 0 && json_is_array(item)) {
            copy_parts(writer, item, text);
        } else if (strcmp(json_key(item), "tool_calls") == 0 && json_is_array(item)) {
            json_open(writer, "tool_calls", '[');
            for (const json *call = json_child(item); call; call = json_next(call)) {
                if (json_is_object(call))
                    copy_call(writer, call);
                else
                    copy(writer, NULL, call);
            }
            json_close(writer, ']');
        } else {
            copy(writer, json_key(item), item);
        }
    }
    json_close(writer, '}');
}

static size_t write_messages(const struct query *query, char *buffer, size_t size, char *text)
{
    struct json_writer writer;
    json_writer_init(&writer, buffer, size);
    json_open(&writer, NULL, '[');
    for (const json *message = json_child(query->messages); message; message = json_next(message))
        copy_message(&writer, message, text);
    json_close(&writer, ']');
    return writer.used;
}

/* The longest content that copy_parts() puts together. */
static size_t parts_length(const struct query *query)
{
    size_t most = 1;
    for (const json *message = json_child(query->messages); message; message = json_next(message)) {
        size_t length = 0;
        const json *parts = json_get(message, "content");
        for (const json *part = json_child(parts); json_is_array(parts) && part;
             part = json_next(part))
            length += strlen(json_string(json_get(part, "text")));
        most = length > most ? length : most;
    }
    return most;
}

static int rewrite(struct query *query, struct error *error)
{
    char *text = malloc(parts_length(query));
    size_t size = text ? write_messages(query, NULL, 0, text) : 0;
    char *buffer = malloc(size + 1);
    const struct json_bounds bounds = {.bytes_max = size, .depth_max = 64};
    int rc = text && buffer ? 0 : error_set(error, ERR_NO_MEMORY, "no memory for the messages");
    if (!rc) {
        write_messages(query, buffer, size + 1, text);
        rc = json_parse(buffer, size, bounds, &query->rewritten, error);
    }
    free(buffer);
    free(text);
    return rc;
}

int query_read_messages(struct query *query, struct error *error)
{
    bool needed = false;
    int rc = 0;
    for (const json *message = json_child(query->messages); !rc && message;
         message = json_next(message))
        rc = check_message(message, &needed, error);
    return !rc && needed ? rewrite(query, error) : rc;
}
