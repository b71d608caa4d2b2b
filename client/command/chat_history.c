#include "client/command/chat_history.h"

#include <string.h>

#include "protocol/base/json.h"

static const char start[] = "{\"messages\":[", finish[] = "]}";

static size_t write_message(char *buffer, size_t size, const char *role, const char *text,
                            size_t length)
{
    struct json_writer writer;
    json_writer_init(&writer, buffer, size);
    json_open(&writer, NULL, '{');
    json_put_text(&writer, "role", role);
    json_put_string(&writer, "content", text, length);
    json_close(&writer, '}');
    return writer.used;
}

static void put(struct chat_history *history, const char *text)
{
    memcpy(history->json.bytes + history->json.end, text, strlen(text));
    history->json.end += strlen(text);
}

int chat_history_add(struct chat_history *history, const char *role, const char *text,
                     size_t length)
{
    size_t size = write_message(NULL, 0, role, text, length);
    int rc = buffer_reserve(&history->json, size + sizeof(start) + sizeof(finish));
    if (rc)
        return rc;
    put(history, buffer_used(&history->json) > 0 ? "," : start);
    write_message((char *)history->json.bytes + history->json.end, size, role, text, length);
    history->json.end += size;
    return 0;
}

size_t chat_history_mark(const struct chat_history *history)
{
    return history->json.end;
}

void chat_history_rewind(struct chat_history *history, size_t mark)
{
    history->json.end = mark;
}

const char *chat_history_text(struct chat_history *history, size_t *ret_length)
{
    size_t end = history->json.end;
    if (buffer_reserve(&history->json, sizeof(finish)))
        return NULL;
    put(history, finish);
    history->json.end = end;
    *ret_length = end + strlen(finish);
    return (const char *)history->json.bytes;
}

void chat_history_free(struct chat_history *history)
{
    buffer_free(&history->json);
}
