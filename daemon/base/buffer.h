/* A growable array of bytes with a maximum that its owner sets at each growth. Not thread-safe.
 *
 * Zeroed memory is an empty buffer; buffer_free leaves it so again.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct buffer {
    char *data;
    size_t length, room;
};

/* Room for `more` bytes behind `length`. False when that goes over `max` or memory runs out. */
bool buffer_reserve(struct buffer *buffer, size_t more, size_t max);
bool buffer_append(struct buffer *buffer, const char *bytes, size_t count, size_t max);
void buffer_free(struct buffer *buffer);
