/* Bytes on their way in or out: a piece of memory of which `start` to `end` is in use.
 *
 * What is in use starts at a multiple of 8 when only multiples of 8 are taken off, as frames are.
 * The owner frees it with buffer_free(). Zeroed memory is an empty buffer.
 */
#pragma once

#include <stddef.h>

struct buffer {
    unsigned char *bytes;
    size_t size, start, end;
};

static inline size_t buffer_used(const struct buffer *buffer)
{
    return buffer->end - buffer->start;
}

/* Room for `more` bytes at `end`; moves what is in use. 0 or -ERR_NO_MEMORY. */
int buffer_reserve(struct buffer *buffer, size_t more);
/* Takes bytes off the front. An empty buffer gives memory over `keep_max` back. */
void buffer_consume(struct buffer *buffer, size_t count, size_t keep_max);
void buffer_free(struct buffer *buffer);
