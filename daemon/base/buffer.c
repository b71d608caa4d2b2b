#include "daemon/base/buffer.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_ROOM 256

bool buffer_reserve(struct buffer *buffer, size_t more, size_t max)
{
    if (buffer->length > max || more > max - buffer->length)
        return false;
    size_t need = buffer->length + more;
    if (need <= buffer->room)
        return true;
    size_t room = buffer->room > 0 ? buffer->room : FIRST_ROOM;
    while (room < need)
        room *= 2;
    char *data = realloc(buffer->data, room);
    if (!data)
        return false;
    buffer->data = data;
    buffer->room = room;
    return true;
}

bool buffer_append(struct buffer *buffer, const char *bytes, size_t count, size_t max)
{
    if (!buffer_reserve(buffer, count, max))
        return false;
    if (count > 0)
        memcpy(buffer->data + buffer->length, bytes, count);
    buffer->length += count;
    return true;
}

void buffer_free(struct buffer *buffer)
{
    free(buffer->data);
    *buffer = (struct buffer){0};
}
