#include "client/bench/event.h"

#include <stdlib.h>
#include <string.h>

#include "protocol/base/error.h"

#define ROOM_FIRST 1024

/* The value behind "name": wherever it stands; NULL when it does not. A quoted name cannot occur
 * within a JSON string, where its quotes are escaped. */
static const char *find_value(const char *text, size_t length, const char *name)
{
    const char *end = text + length, *at = text;
    size_t size = strlen(name);
    while ((at = memmem(at, (size_t)(end - at), name, size))) {
        const char *value = at + size;
        bool quoted = at > text && at[-1] == '"' && value < end && *value == '"';
        at = value;
        if (!quoted)
            continue;
        for (value++; value < end && strchr(" \t", *value);)
            value++;
        if (value == end || *value != ':')
            continue;
        for (value++; value < end && strchr(" \t", *value);)
            value++;
        return value < end ? value : NULL;
    }
    return NULL;
}

static bool find_count(const char *text, size_t length, const char *name, uint32_t *ret)
{
    const char *value = find_value(text, length, name);
    uint64_t number = 0;
    if (!value || *value < '0' || *value > '9')
        return false;
    for (; value < text + length && *value >= '0' && *value <= '9' && number < UINT32_MAX; value++)
        number = number * 10 + (uint64_t)(*value - '0');
    *ret = number < UINT32_MAX ? (uint32_t)number : UINT32_MAX - 1;
    return true;
}

void event_parse(const char *text, size_t length, struct event *ret_event)
{
    struct event event = {0};
    const char *choices = find_value(text, length, "choices"), *end = text + length;
    event.done = length >= 6 && !memcmp(text, "[DONE]", 6);
    if (choices && *choices == '[') {
        for (choices++; choices < end && strchr(" \t", *choices);)
            choices++;
        event.choices = choices < end && *choices != ']';
    }
    event.error = !choices && find_value(text, length, "error");
    event.usage = find_count(text, length, "completion_tokens", &event.completion_tokens);
    find_count(text, length, "prompt_tokens", &event.prompt_tokens);
    find_count(text, length, "cached_tokens", &event.cached_tokens);
    *ret_event = event;
}

static int append(struct event_reader *reader, const char *text, size_t length)
{
    size_t room = reader->room ? reader->room : ROOM_FIRST;
    if (length > EVENT_LINE_MAX - reader->used)
        return -ERR_TOO_LARGE;
    while (room < reader->used + length)
        room *= 2;
    if (room > reader->room) {
        char *more = realloc(reader->line, room);
        if (!more)
            return -ERR_NO_MEMORY;
        reader->line = more;
        reader->room = room;
    }
    memcpy(reader->line + reader->used, text, length);
    reader->used += length;
    return 0;
}

/* Whether a whole line is an event. */
static bool take_line(struct event_reader *reader, struct event *ret_event)
{
    const char *line = reader->line;
    size_t length = reader->used;
    reader->used = 0;
    while (length > 0 && (line[length - 1] == '\n' || line[length - 1] == '\r'))
        length--;
    if (length < 5 || memcmp(line, "data:", 5))
        return false;
    for (line += 5, length -= 5; length > 0 && *line == ' '; length--)
        line++;
    event_parse(line, length, ret_event);
    return true;
}

int event_read(struct event_reader *reader, const char **text, size_t *length,
               struct event *ret_event)
{
    while (*length > 0) {
        const char *end = memchr(*text, '\n', *length);
        size_t count = end ? (size_t)(end - *text) + 1 : *length;
        int rc = append(reader, *text, count);
        if (rc)
            return rc;
        *text += count;
        *length -= count;
        if (end && take_line(reader, ret_event))
            return 1;
    }
    return 0;
}

void event_free(struct event_reader *reader)
{
    free(reader->line);
    *reader = (struct event_reader){0};
}
