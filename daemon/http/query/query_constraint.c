/* What an answer must be, as the clients of others write it: OpenAI's response_format, vLLM's
 * structured_outputs, and the guided_... before that; llama.cpp's grammar. All become the one
 * constraint of the query. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/http/query/query_constraint.h"

static int wrong(const struct reading *reading, const char *what)
{
    return error_set(reading->error, ERR_BAD_VALUE, "%s%s", reading->field->name, what);
}

static int set(const struct reading *reading, enum message_constraint_kind kind, char *text)
{
    struct query *query = reading->query;
    if (query->constraint.kind != MESSAGE_CONSTRAINT_NONE) {
        free(text);
        return error_set(reading->error, ERR_BAD_VALUE,
                         "%s asks for a second constraint beside %s: one at most is kept",
                         reading->field->name, query->constraint_field);
    }
    free(query->constraint_text);
    query->constraint_text = text;
    query->constraint_field = reading->field->name;
    query->constraint =
        (struct message_constraint){.kind = kind, .text = text, .length = text ? strlen(text) : 0};
    return 0;
}

static int set_text(const struct reading *reading, enum message_constraint_kind kind,
                    const char *text)
{
    char *own = strdup(text);
    return own ? set(reading, kind, own)
               : error_set(reading->error, ERR_NO_MEMORY, "no memory for a constraint");
}

static void put_value(struct json_writer *writer, const void *value)
{
    json_put_value(writer, NULL, value);
}

/* The value as a text of its own: what the body was read into goes. */
static int set_value(const struct reading *reading, enum message_constraint_kind kind,
                     const json *value)
{
    size_t length;
    char *own = json_written(put_value, value, &length);
    return own ? set(reading, kind, own)
               : error_set(reading->error, ERR_NO_MEMORY, "no memory for a constraint");
}

/* An object, a boolean, or a string that holds one: vLLM takes both. */
int read_schema(const struct reading *reading, const json *value)
{
    if (json_is_string(value))
        return set_text(reading, MESSAGE_CONSTRAINT_SCHEMA, json_string(value));
    if (!json_is_object(value) && !json_is_bool(value))
        return wrong(reading, ": a schema is an object, or a string that holds one");
    return set_value(reading, MESSAGE_CONSTRAINT_SCHEMA, value);
}

int read_pattern(const struct reading *reading, const json *value)
{
    if (!json_is_string(value))
        return wrong(reading, ": a regular expression is a string");
    return set_text(reading, MESSAGE_CONSTRAINT_PATTERN, json_string(value));
}

int read_grammar(const struct reading *reading, const json *value)
{
    if (!json_is_string(value))
        return wrong(reading, ": a grammar is a string, in GBNF");
    return set_text(reading, MESSAGE_CONSTRAINT_GRAMMAR, json_string(value));
}

int read_choices(const struct reading *reading, const json *value)
{
    if (!json_is_array(value))
        return wrong(reading, ": choices are a list of strings");
    return set_value(reading, MESSAGE_CONSTRAINT_CHOICE, value);
}

/* ---- response_format ---------------------------------------------------------------------------
 */

/* {"name": ..., "description": ..., "schema": {...}, "strict": ...}: the schema is kept to the
 * letter whether it is to be strict or not. */
static int read_json_schema(const struct reading *reading, const json *object)
{
    const json *schema = NULL;
    if (!json_is_object(object))
        return wrong(reading, ".json_schema must be an object with a schema");
    for (const json *item = json_child(object); item; item = json_next(item)) {
        const char *key = json_key(item);
        bool text = strcmp(key, "name") == 0 || strcmp(key, "description") == 0;
        if (strcmp(key, "schema") == 0)
            schema = item;
        else if (!text && strcmp(key, "strict") != 0)
            return error_set(reading->error, ERR_UNKNOWN_FIELD,
                             "response_format.json_schema.%.32s is not known", key);
        else if (!json_is_null(item) && (text ? !json_is_string(item) : !json_is_bool(item)))
            return error_set(reading->error, ERR_BAD_VALUE,
                             "response_format.json_schema.%s must be a %s", key,
                             text ? "string" : "boolean");
    }
    if (!schema || json_is_null(schema))
        return wrong(reading, ".json_schema.schema is missing");
    return read_schema(reading, schema);
}

int read_response_format(const struct reading *reading, const json *value)
{
    const char *type = json_string(json_get(value, "type"));
    bool schema = strcmp(type, "json_schema") == 0;
    if (!json_is_object(value))
        return wrong(reading, " must be an object with a type");
    for (const json *item = json_child(value); item; item = json_next(item))
        if (strcmp(json_key(item), "type") != 0 &&
            !(strcmp(json_key(item), "json_schema") == 0 && (schema || json_is_null(item))))
            return error_set(reading->error, ERR_UNKNOWN_FIELD,
                             "response_format.%.32s does not belong to this type", json_key(item));
    if (strcmp(type, "text") == 0)
        return 0;
    if (strcmp(type, "json_object") == 0)
        return set(reading, MESSAGE_CONSTRAINT_OBJECT, NULL);
    if (schema)
        return read_json_schema(reading, json_get(value, "json_schema"));
    return error_set(reading->error, ERR_UNSUPPORTED,
                     "response_format.type must be \"text\", \"json_object\" or \"json_schema\"");
}

int read_text_format(const struct reading *reading, const json *value)
{
    static const char *const known[] = {"type", "name", "description", "schema", "strict"};
    const char *type = json_string(json_get(value, "type"));
    bool schema = strcmp(type, "json_schema") == 0;
    if (!json_is_object(value))
        return wrong(reading, ": a format must be an object with a type");
    for (const json *item = json_child(value); item; item = json_next(item)) {
        bool found = false;
        for (size_t i = 0; i < (schema ? 5 : 1); i++)
            found |= strcmp(json_key(item), known[i]) == 0;
        if (!found && !json_is_null(item))
            return error_set(reading->error, ERR_UNKNOWN_FIELD,
                             "%s: %.32s does not belong to a format of this type",
                             reading->field->name, json_key(item));
    }
    if (strcmp(type, "text") == 0)
        return 0;
    if (strcmp(type, "json_object") == 0)
        return set(reading, MESSAGE_CONSTRAINT_OBJECT, NULL);
    if (schema && json_get(value, "schema"))
        return read_schema(reading, json_get(value, "schema"));
    return wrong(reading, ": a format's type must be \"text\", \"json_object\", or \"json_schema\" "
                          "with a schema");
}

/* ---- structured_outputs ------------------------------------------------------------------------
 */

int read_structured_outputs(const struct reading *reading, const json *value)
{
    if (!json_is_object(value))
        return wrong(reading, " must be an object");
    for (const json *item = json_child(value); item; item = json_next(item)) {
        const char *key = json_key(item);
        int rc = 0;
        if (json_is_null(item))
            continue;
        if (strcmp(key, "json") == 0)
            rc = read_schema(reading, item);
        else if (strcmp(key, "regex") == 0)
            rc = read_pattern(reading, item);
        else if (strcmp(key, "choice") == 0)
            rc = read_choices(reading, item);
        else if (strcmp(key, "grammar") == 0)
            rc = read_grammar(reading, item);
        else if (strcmp(key, "json_object") == 0 && json_is_bool(item))
            rc = json_bool(item) ? set(reading, MESSAGE_CONSTRAINT_OBJECT, NULL) : 0;
        else
            rc = error_set(reading->error, ERR_UNSUPPORTED,
                           "structured_outputs.%.32s is not supported: json, regex, choice, "
                           "grammar and json_object are",
                           key);
        if (rc)
            return rc;
    }
    return 0;
}
