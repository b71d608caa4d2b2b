#include "daemon/request/chat_prompt.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/request/model_text.h"
#include "daemon/text/template/chat.h"

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

/* What was thought comes by either name, and templates know the older one, or as gpt-oss's a third;
 * NULL: nothing, or it is said by that name. */
static const json *thought_of(const json *message, const char *name)
{
    const json *older = json_get(message, "reasoning_content");
    const json *thought = older ? older : json_get(message, "reasoning");
    return json_is_string(thought) && !json_get(message, name) ? thought : NULL;
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
    *ret_rewrite =
        *ret_rewrite || json_get(message, "tool_calls") || thought_of(message, "thinking");
    return 0;
}

/* ---- rewriting ---------------------------------------------------------------------------------
 */

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
    const struct json_bounds bounds = {.bytes_max = strlen(text),
                                       .depth_max = CHAT_PROMPT_DEPTH_MAX / 2,
                                       .values_max = CHAT_PROMPT_VALUES_MAX};
    json *object;
    if (!json_is_string(value) || json_parse(text, strlen(text), bounds, &object, NULL)) {
        json_put_value(writer, "arguments", value);
        return;
    }
    json_put_value(writer, "arguments", object);
    json_free(object);
}

static void copy_call(struct json_writer *writer, const json *call)
{
    json_open(writer, NULL, '{');
    for (const json *item = json_child(call); item; item = json_next(item)) {
        if (strcmp(json_key(item), "function") != 0 || !json_is_object(item)) {
            json_put_value(writer, json_key(item), item);
            continue;
        }
        json_open(writer, "function", '{');
        for (const json *part = json_child(item); part; part = json_next(part)) {
            if (strcmp(json_key(part), "arguments") == 0)
                copy_arguments(writer, part);
            else
                json_put_value(writer, json_key(part), part);
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
                    json_put_value(writer, NULL, call);
            }
            json_close(writer, ']');
        } else {
            json_put_value(writer, json_key(item), item);
        }
    }
    static const char *const names[] = {"reasoning_content", "thinking"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (thought_of(message, names[i]))
            json_put_value(writer, names[i], thought_of(message, names[i]));
    json_close(writer, '}');
}

static size_t write_messages(const struct chat_prompt *conversation, char *buffer, size_t size,
                             char *text)
{
    struct json_writer writer;
    json_writer_init(&writer, buffer, size);
    json_open(&writer, NULL, '[');
    for (const json *message = json_child(conversation->messages); message;
         message = json_next(message))
        copy_message(&writer, message, text);
    json_close(&writer, ']');
    return writer.used;
}

/* The longest content that copy_parts() puts together. */
static size_t parts_length(const struct chat_prompt *conversation)
{
    size_t most = 1;
    for (const json *message = json_child(conversation->messages); message;
         message = json_next(message)) {
        size_t length = 0;
        const json *parts = json_get(message, "content");
        for (const json *part = json_child(parts); json_is_array(parts) && part;
             part = json_next(part))
            length += strlen(json_string(json_get(part, "text")));
        most = length > most ? length : most;
    }
    return most;
}

static int rewrite(struct chat_prompt *conversation, struct error *error)
{
    char *text = malloc(parts_length(conversation));
    size_t size = text ? write_messages(conversation, NULL, 0, text) : 0;
    char *buffer = malloc(size + 1);
    const struct json_bounds bounds = {
        .bytes_max = size, .depth_max = 64, .values_max = CHAT_PROMPT_VALUES_MAX};
    struct error found;
    int rc = text && buffer ? 0 : error_set(error, ERR_NO_MEMORY, "no memory for the messages");
    if (!rc) {
        write_messages(conversation, buffer, size + 1, text);
        rc = json_parse(buffer, size, bounds, &conversation->rewritten, &found);
        if (rc) /* places in it say nothing to whoever sent the messages */
            error_limit(error, found.code, found.limit, found.value,
                        "messages, with the arguments of tool calls: %s", found.text);
    }
    free(buffer);
    free(text);
    return rc;
}

int chat_prompt_check(struct chat_prompt *conversation, struct error *error)
{
    bool needed = false;
    int rc = 0;
    if (!conversation->messages)
        return error_set(error, ERR_BAD_VALUE, "messages is missing");
    for (const json *message = json_child(conversation->messages); !rc && message;
         message = json_next(message))
        rc = check_message(message, &needed, error);
    return !rc && needed ? rewrite(conversation, error) : rc;
}

/* ---- as a whole --------------------------------------------------------------------------------
 */

void chat_prompt_init(struct chat_prompt *conversation)
{
    *conversation = (struct chat_prompt){.add_generation_prompt = true};
}

static int wrong(const json *value, const char *expected, struct error *error)
{
    return error_set(error, ERR_BAD_VALUE, "%s must be %s", json_key(value), expected);
}

/* One of a few words, none of which is kept from the document. */
int chat_prompt_effort(struct chat_prompt *conversation, const json *member, struct error *error)
{
    static const char *const words[] = {"none", "minimal", "low", "medium", "high", "xhigh"};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (strcmp(json_string(member), words[i]) == 0) {
            conversation->reasoning_effort = words[i];
            return 0;
        }
    return wrong(member, "none, minimal, low, medium, high or xhigh", error);
}

int chat_prompt_field(struct chat_prompt *conversation, const json *member, bool *ret_known,
                      struct error *error)
{
    const char *name = json_key(member);
    *ret_known = true;
    if (strcmp(name, "messages") == 0) {
        if (!json_is_array(member) || !json_child(member))
            return wrong(member, "a list of messages", error);
        conversation->messages = member;
    } else if (strcmp(name, "tools") == 0) {
        if (!json_is_array(member))
            return wrong(member, "a list", error);
        conversation->tools = json_child(member) ? member : NULL;
    } else if (strcmp(name, "chat_template_kwargs") == 0) {
        if (!json_is_object(member))
            return wrong(member, "an object", error);
        conversation->extra = member;
    } else if (strcmp(name, "add_generation_prompt") == 0) {
        if (!json_is_bool(member))
            return wrong(member, "true or false", error);
        conversation->add_generation_prompt = json_bool(member);
    } else if (strcmp(name, "reasoning_effort") == 0) {
        return chat_prompt_effort(conversation, member, error);
    } else {
        *ret_known = false;
    }
    return 0;
}

static int read_fields(struct chat_prompt *conversation, struct error *error)
{
    if (!json_is_object(conversation->document))
        return error_set(error, ERR_BAD_VALUE, "a conversation is not an object");
    for (const json *member = json_child(conversation->document); member;
         member = json_next(member)) {
        bool known;
        int rc = chat_prompt_field(conversation, member, &known, error);
        if (rc)
            return rc;
        if (!known)
            return error_set(error, ERR_UNKNOWN_FIELD, "unknown field \"%.64s\" of a conversation",
                             json_key(member));
    }
    return chat_prompt_check(conversation, error);
}

int chat_prompt_parse(struct chat_prompt *conversation, const char *text, size_t length,
                      struct error *error)
{
    const struct json_bounds bounds = {.bytes_max = length,
                                       .depth_max = CHAT_PROMPT_DEPTH_MAX,
                                       .values_max = CHAT_PROMPT_VALUES_MAX};
    struct error found;
    chat_prompt_init(conversation);
    int rc = json_parse(text, length, bounds, &conversation->document, &found);
    if (rc)
        return error_set(error, found.code, "the conversation: %s", found.text);
    rc = read_fields(conversation, error);
    if (rc)
        chat_prompt_free(conversation);
    return rc;
}

int chat_prompt_render(const struct chat_prompt *conversation, const struct model_text *model_text,
                       const struct halt *halt, char **ret_text, size_t *ret_length,
                       struct error *error)
{
    struct chat_limits limits = CHAT_LIMITS;
    const struct chat_input input = {
        .messages = conversation->rewritten ? conversation->rewritten : conversation->messages,
        .tools = conversation->tools,
        .extra = conversation->extra,
        .reasoning_effort = conversation->reasoning_effort,
        .bos_token = model_text->bos_token[0] ? model_text->bos_token : NULL,
        .eos_token = model_text->eos_token[0] ? model_text->eos_token : NULL,
        .add_generation_prompt = conversation->add_generation_prompt,
        .now = time(NULL),
    };
    limits.halt = halt;
    return chat_template_render(model_text->chat, &input, &limits, ret_text, ret_length, error);
}

void chat_prompt_free(struct chat_prompt *conversation)
{
    json_free(conversation->rewritten);
    json_free(conversation->document);
    *conversation = (struct chat_prompt){0};
}
