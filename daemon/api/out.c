#include "daemon/api/out.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define JSON_ROOM 512u   /* what most values take */
#define FORMAT_ROOM 512u /* of one out_format() */

void out_bytes(struct out *out, const char *bytes, size_t length)
{
    if (!buffer_append(&out->buffer, bytes, length, SIZE_MAX))
        out->failed = true;
}

void out_text(struct out *out, const char *text)
{
    out_bytes(out, text, strlen(text));
}

void out_words(struct out *out, const char *const *words)
{
    struct buffer *buffer = &out->buffer;
    for (; *words; words++) {
        size_t length = strlen(*words);
        if (buffer->room - buffer->length < length && !buffer_reserve(buffer, length, SIZE_MAX)) {
            out->failed = true;
            return;
        }
        if (length > 0)
            memcpy(buffer->data + buffer->length, *words, length);
        buffer->length += length;
    }
}

void out_format(struct out *out, const char *format, ...)
{
    char text[FORMAT_ROOM];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    if (length > 0)
        out_bytes(out, text, (size_t)length < sizeof(text) ? (size_t)length : sizeof(text) - 1);
}

void out_json(struct out *out, out_writer write, const void *context)
{
    struct buffer *buffer = &out->buffer;
    struct json_writer writer;
    for (size_t room = JSON_ROOM;; room = writer.used + 1) {
        if (!buffer_reserve(buffer, room, SIZE_MAX)) {
            out->failed = true;
            return;
        }
        json_writer_init(&writer, buffer->data + buffer->length, buffer->room - buffer->length);
        write(&writer, context);
        if (writer.used <= writer.size)
            break;
    }
    buffer->length += writer.used;
}

void out_event(struct out *out, out_writer write, const void *context)
{
    out_text(out, "data: ");
    out_json(out, write, context);
    out_text(out, "\n\n");
}

size_t out_take(struct out *out, char *bytes, size_t max)
{
    size_t count = out_left(out) < max ? out_left(out) : max;
    if (count > 0)
        memcpy(bytes, out->buffer.data + out->taken, count);
    out->taken += count;
    if (out->taken == out->buffer.length)
        out->taken = out->buffer.length = 0;
    return count;
}

void out_clear(struct out *out)
{
    buffer_free(&out->buffer);
    *out = (struct out){0};
}
