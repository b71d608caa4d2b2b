#include "protocol/base/log_ring.h"

#include <assert.h>
#include <string.h>

void log_ring_init(struct log_ring *ring, char *bytes, size_t capacity)
{
    *ring = (struct log_ring){.bytes = bytes, .capacity = capacity};
}

static bool fits(const struct log_ring *ring, enum log_level level, size_t length)
{
    size_t free_bytes = ring->capacity - ring->used;
    if (level <= LOG_NOTICE)
        return length <= free_bytes;
    return ring->gap == 0 && length + ring->capacity / 8 <= free_bytes;
}

bool log_ring_put(struct log_ring *ring, enum log_level level, const char *line, size_t length)
{
    assert(length > 0 && length <= LOG_LINE_MAX && line[length - 1] == '\n');
    if (!fits(ring, level, length)) {
        ring->dropped++;
        ring->gap++;
        return false;
    }
    size_t at = (ring->first + ring->used) % ring->capacity;
    size_t straight = ring->capacity - at < length ? ring->capacity - at : length;
    memcpy(ring->bytes + at, line, straight);
    memcpy(ring->bytes, line + straight, length - straight);
    ring->used += length;
    return true;
}

size_t log_ring_take(struct log_ring *ring, char *bytes, size_t max)
{
    size_t length = ring->used < max ? ring->used : max;
    size_t straight = ring->capacity - ring->first;
    assert(max >= LOG_LINE_MAX);
    if (length == 0)
        return 0;
    straight = straight < length ? straight : length;
    memcpy(bytes, ring->bytes + ring->first, straight);
    memcpy(bytes + straight, ring->bytes, length - straight);
    const char *end = memrchr(bytes, '\n', length);
    assert(end);
    length = (size_t)(end + 1 - bytes);
    ring->used -= length;
    /* An empty ring begins anew, so that only as much of its room is ever touched as was needed. */
    ring->first = ring->used ? (ring->first + length) % ring->capacity : 0;
    return length;
}

uint64_t log_ring_gap(struct log_ring *ring)
{
    uint64_t gap = ring->used ? 0 : ring->gap;
    ring->gap -= gap;
    return gap;
}
