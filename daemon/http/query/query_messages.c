/* What Anthropic's /v1/messages alone has: content as blocks, results of tools within users'
 * messages, tools with an input_schema. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/http/query/query_constraint.h"
#include "daemon/http/query/query_convert.h"
#include "daemon/http/query/query_tools.h"

/* ---- fields ------------------------------------------------------------------------------------
 */

/* {"type": "auto" | "any" | "tool" | "none", "name": ..., "disable_parallel_tool_use": ...} */
int read_messages_choice(const struct reading *reading, const json *value)
{
    struct query_tools *tools = &reading->query->tools;
    const char *type = json_string(json_get(value, "type"));
    const json *single = json_get(value, "disable_parallel_tool_use");
    if (single && !json_is_null(single) && !json_is_bool(single))
        return error_set(reading->error, ERR_BAD_VALUE,
                         "tool_choice.disable_parallel_tool_use must be true or false");
    tools->one_call |= json_bool(single);
    if (strcmp(type, "tool") == 0)
        return query_tools_choose(reading->query, json_string(json_get(value, "name")),
                                  reading->error);
    if (strcmp(type, "any") == 0)
        tools->choice = TOOL_CHOICE_REQUIRED;
    else if (strcmp(type, "none") == 0)
        tools->choice = TOOL_CHOICE_NONE;
    else if (strcmp(type, "auto") != 0)
        return error_set(reading->error, ERR_BAD_VALUE,
                         "tool_choice.type must be \"auto\", \"any\", \"tool\" or \"none\"");
    return 0;
}

static bool thinks(const json *thinking)
{
    const char *type = json_string(json_get(thinking, "type"));
    return strcmp(type, "enabled") == 0 || strcmp(type, "adaptive") == 0;
}

/* {"type": "enabled", "budget_tokens": n}, or adaptive, or disabled. */
int read_messages_thinking(const struct reading *reading, const json *value)
{
    const char *type = json_string(json_get(value, "type"));
    const json *budget = json_get(value, "budget_tokens");
    int64_t tokens;
    if (!thinks(value) && strcmp(type, "disabled") != 0)
        return error_set(reading->error, ERR_BAD_VALUE,
                         "thinking.type must be \"enabled\", \"adaptive\" or \"disabled\"");
    if (!budget || json_is_null(budget))
        return 0;
    int rc = json_integer(budget, "thinking.budget_tokens", 0, INT32_MAX, &tokens, reading->error);
    if (!rc)
        reading->query->tools.budget = (uint32_t)tokens;
    return rc;
}

/* {"type": "json_schema", "schema": {...}} */
int read_messages_output(const struct reading *reading, const json *value)
{
    return read_text_format(reading, value);
}

/* {"format": {...}} */
int read_messages_output_config(const struct reading *reading, const json *value)
{
    if (!json_is_object(value))
        return error_set(reading->error, ERR_BAD_VALUE, "output_config must be an object");
    for (const json *item = json_child(value); item; item = json_next(item)) {
        int rc = 0;
        if (json_is_null(item))
            continue;
        if (strcmp(json_key(item), "format") == 0)
            rc = read_text_format(reading, item);
        else if (strcmp(json_key(item), "effort") == 0)
            rc = chat_prompt_effort(&reading->query->chat, item, reading->error);
        else
            rc = error_set(reading->error, ERR_UNKNOWN_FIELD, "output_config.%.32s is not known",
                           json_key(item));
        if (rc)
            return rc;
    }
    return 0;
}

/* ---- messages ----------------------------------------------------------------------------------
 */

static const char *const text_types[] = {"text", NULL};

static const char *type_of(const json *block)
{
    return json_string(json_get(block, "type"));
}

/* The texts of the blocks of one type, as one. */
static int put_joined(struct json_writer *writer, const char *key, const json *blocks,
                      const char *type, const char *member, struct error *error)
{
    size_t length = 0;
    for (const json *block = json_child(blocks); block; block = json_next(block))
        if (strcmp(type_of(block), type) == 0)
            length += strlen(json_string(json_get(block, member)));
    char *text = malloc(length + 1), *to = text;
    if (!text)
        return error_set(error, ERR_NO_MEMORY, "no memory for a text");
    for (const json *block = json_child(blocks); block; block = json_next(block))
        if (strcmp(type_of(block), type) == 0)
            to = stpcpy(to, json_string(json_get(block, member)));
    json_put_string(writer, key, text, length);
    free(text);
    return 0;
}

static bool has(const json *blocks, const char *type)
{
    for (const json *block = json_child(blocks); block; block = json_next(block))
        if (strcmp(type_of(block), type) == 0)
            return true;
    return false;
}

static int check_blocks(const json *blocks, bool user, struct error *error)
{
    static const char *const users[] = {"text", "tool_result", NULL, NULL};
    static const char *const models[] = {"text", "tool_use", "thinking", "redacted_thinking"};
    if (!json_is_array(blocks))
        return error_set(error, ERR_BAD_VALUE,
                         "messages: content must be a string or a list of blocks");
    for (const json *block = json_child(blocks); block; block = json_next(block)) {
        const char *type = type_of(block);
        bool known = false;
        for (size_t i = 0; i < 4; i++) {
            const char *one = user ? users[i] : models[i];
            known |= one && strcmp(type, one) == 0;
        }
        if (!known)
            return error_set(error, ERR_UNSUPPORTED,
                             "messages: a block of type %.32s is not supported here",
                             *type ? type : "(none)");
    }
    return 0;
}

static int put_result(struct json_writer *writer, const json *block, struct error *error)
{
    const json *content = json_get(block, "content");
    int rc = 0;
    json_open(writer, NULL, '{');
    json_put_text(writer, "role", "tool");
    json_put_text(writer, "tool_call_id", json_string(json_get(block, "tool_use_id")));
    if (content && !json_is_null(content))
        rc = query_put_texts(writer, "content", content, text_types, error);
    else
        json_put_text(writer, "content", "");
    json_close(writer, '}');
    return rc;
}

/* Results of tools are messages of their own, before what the user says beside them. */
static int put_user(struct json_writer *writer, const json *blocks, struct error *error)
{
    int rc = check_blocks(blocks, true, error);
    for (const json *block = json_child(blocks); !rc && block; block = json_next(block))
        if (strcmp(type_of(block), "tool_result") == 0)
            rc = put_result(writer, block, error);
    if (rc || (!has(blocks, "text") && has(blocks, "tool_result")))
        return rc;
    json_open(writer, NULL, '{');
    json_put_text(writer, "role", "user");
    rc = put_joined(writer, "content", blocks, "text", "text", error);
    json_close(writer, '}');
    return rc;
}

static void put_uses(struct json_writer *writer, const json *blocks)
{
    json_open(writer, "tool_calls", '[');
    for (const json *block = json_child(blocks); block; block = json_next(block)) {
        if (strcmp(type_of(block), "tool_use") != 0)
            continue;
        query_open_function(writer, json_string(json_get(block, "id")));
        json_put_text(writer, "name", json_string(json_get(block, "name")));
        if (json_get(block, "input"))
            json_put_value(writer, "arguments", json_get(block, "input"));
        query_close_function(writer);
    }
    json_close(writer, ']');
}

static int put_assistant(struct json_writer *writer, const json *blocks, struct error *error)
{
    int rc = check_blocks(blocks, false, error);
    if (rc)
        return rc;
    json_open(writer, NULL, '{');
    json_put_text(writer, "role", "assistant");
    if (has(blocks, "text"))
        rc = put_joined(writer, "content", blocks, "text", "text", error);
    else
        json_put_null(writer, "content");
    if (!rc && has(blocks, "thinking"))
        rc = put_joined(writer, "reasoning_content", blocks, "thinking", "thinking", error);
    if (!rc && has(blocks, "tool_use"))
        put_uses(writer, blocks);
    json_close(writer, '}');
    return rc;
}

static int put_message(struct json_writer *writer, const json *message, struct error *error)
{
    const char *role = json_string(json_get(message, "role"));
    const json *content = json_get(message, "content");
    bool user = strcmp(role, "user") == 0;
    if (!user && strcmp(role, "assistant") != 0)
        return error_set(error, ERR_BAD_VALUE,
                         "messages: a role must be \"user\" or \"assistant\"");
    if (!json_is_string(content))
        return user ? put_user(writer, content, error) : put_assistant(writer, content, error);
    json_open(writer, NULL, '{');
    json_put_text(writer, "role", role);
    json_put_text(writer, "content", json_string(content));
    json_close(writer, '}');
    return 0;
}

static int put_messages(const struct query *query, struct json_writer *writer, struct error *error)
{
    const json *system = json_get(query->document, "system");
    const json *messages = json_get(query->document, "messages");
    int rc = 0;
    if (!json_is_array(messages))
        return error_set(error, ERR_BAD_VALUE, "messages must be a list");
    json_open(writer, "messages", '[');
    if (system && !json_is_null(system)) {
        json_open(writer, NULL, '{');
        json_put_text(writer, "role", "system");
        rc = query_put_texts(writer, "content", system, text_types, error);
        json_close(writer, '}');
    }
    for (const json *message = json_child(messages); !rc && message; message = json_next(message))
        rc = put_message(writer, message, error);
    json_close(writer, ']');
    return rc;
}

static int check_tool(const json *tool, struct error *error)
{
    static const char *const known[] = {"name",   "description", "input_schema",
                                        "strict", "type",        "cache_control"};
    const json *type = json_get(tool, "type");
    if (!json_is_object(tool))
        return error_set(error, ERR_BAD_VALUE, "tools must be a list of objects");
    if (type && !json_is_null(type) && strcmp(json_string(type), "custom") != 0)
        return error_set(error, ERR_UNSUPPORTED, "tools: one of type %.32s is not supported",
                         json_string(type));
    for (const json *item = json_child(tool); item; item = json_next(item)) {
        bool found = false;
        for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
            found |= strcmp(json_key(item), known[i]) == 0;
        if (!found && !json_is_null(item))
            return error_set(error, ERR_UNKNOWN_FIELD, "tools: %.32s is not known", json_key(item));
    }
    return 0;
}

static int put_tools(struct json_writer *writer, const json *tools, struct error *error)
{
    json_open(writer, "tools", '[');
    for (const json *tool = json_child(tools); tool; tool = json_next(tool)) {
        int rc = check_tool(tool, error);
        if (rc)
            return rc;
        query_open_function(writer, NULL);
        json_put_text(writer, "name", json_string(json_get(tool, "name")));
        if (json_get(tool, "description"))
            json_put_value(writer, "description", json_get(tool, "description"));
        if (json_get(tool, "input_schema"))
            json_put_value(writer, "parameters", json_get(tool, "input_schema"));
        if (json_get(tool, "strict"))
            json_put_value(writer, "strict", json_get(tool, "strict"));
        query_close_function(writer);
    }
    json_close(writer, ']');
    return 0;
}

int query_write_messages(const struct query *query, struct json_writer *writer,
                         const char **ret_param, struct error *error)
{
    *ret_param = "messages";
    json_open(writer, NULL, '{');
    int rc = put_messages(query, writer, error);
    if (rc)
        return rc;
    *ret_param = "tools";
    rc = put_tools(writer, json_get(query->document, "tools"), error);
    /* Who does not ask for thought gets none, where the model's template has a say in it. */
    json_open(writer, "extra", '{');
    json_put_bool(writer, "enable_thinking", thinks(json_get(query->document, "thinking")));
    json_close(writer, '}');
    json_close(writer, '}');
    return rc;
}
