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

static void put(struct talk *talk, const char *text)
{
    memcpy(talk->json.bytes + talk->json.end, text, strlen(text));
    talk->json.end += strlen(text);
}

int talk_add(struct talk *talk, const char *role, const char *text, size_t length)
{
    size_t size = write_message(NULL, 0, role, text, length);
    int rc = buffer_reserve(&talk->json, size + sizeof(start) + sizeof(finish));
    if (rc)
        return rc;
    put(talk, buffer_used(&talk->json) > 0 ? "," : start);
    write_message((char *)talk->json.bytes + talk->json.end, size, role, text, length);
    talk->json.end += size;
    return 0;
}

size_t talk_mark(const struct talk *talk)
{
    return talk->json.end;
}

void talk_back(struct talk *talk, size_t mark)
{
    talk->json.end = mark;
}

const char *talk_conversation(struct talk *talk, size_t *ret_length)
{
    size_t end = talk->json.end;
    if (buffer_reserve(&talk->json, sizeof(finish)))
        return NULL;
    put(talk, finish);
    talk->json.end = end;
    *ret_length = end + strlen(finish);
    return (const char *)talk->json.bytes;
}

void talk_free(struct talk *talk)
{
    buffer_free(&talk->json);
}
