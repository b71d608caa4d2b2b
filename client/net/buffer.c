#include "client/net/buffer.h"

#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/base/error.h"

#define SIZE_FIRST 4096

int buffer_reserve(struct buffer *buffer, size_t more)
{
    size_t used = buffer_used(buffer);
    if (buffer->size - buffer->end >= more)
        return 0;
    if (buffer->size - used < more) {
        size_t size = buffer->size ? buffer->size : SIZE_FIRST;
        while (size - used < more) {
            if (size > SIZE_MAX / 2)
                return -ERR_NO_MEMORY;
            size *= 2;
        }
        unsigned char *bytes = malloc(size);
        if (!bytes)
            return -ERR_NO_MEMORY;
        if (used > 0)
            memcpy(bytes, buffer->bytes + buffer->start, used);
        free(buffer->bytes);
        buffer->bytes = bytes;
        buffer->size = size;
    } else {
        memmove(buffer->bytes, buffer->bytes + buffer->start, used);
    }
    buffer->start = 0;
    buffer->end = used;
    return 0;
}

void buffer_consume(struct buffer *buffer, size_t count, size_t keep_max)
{
    assert(count <= buffer_used(buffer));
    buffer->start += count;
    if (buffer->start < buffer->end)
        return;
    buffer->start = buffer->end = 0;
    if (buffer->size > keep_max)
        buffer_free(buffer);
}

void buffer_free(struct buffer *buffer)
{
    free(buffer->bytes);
    *buffer = (struct buffer){0};
}
