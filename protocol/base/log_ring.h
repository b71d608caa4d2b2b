/* Finished lines on their way to a log that may not take them now: a ring of bytes, in which a line
 * finds room at once or is dropped.
 *
 * From the first dropped line on, all lines at info and debug are, until what was kept is taken and
 * the gap is told: so a log has few long gaps, each with its number at its place, and not one line of
 * every ten. An eighth of the room is for graver lines alone, which a flood of the others does not
 * push out.
 *
 * Not thread-safe. The room is the caller's.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "protocol/base/log.h"

struct log_ring {
    char *bytes;
    size_t capacity;
    size_t first, used;
    uint64_t dropped; /* lines, since the start */
    uint64_t gap;     /* of them, those of which log_ring_gap() has not told */
};

void log_ring_init(struct log_ring *ring, char *bytes, size_t capacity);
/* A line ends with its only newline. False when it was dropped. */
bool log_ring_put(struct log_ring *ring, enum log_level level, const char *line, size_t length);
/* Moves whole lines, as many as fit; `max` is at least LOG_LINE_MAX. */
size_t log_ring_take(struct log_ring *ring, char *bytes, size_t max);
/* How many lines were dropped behind what was taken, once all of it is; told once. */
uint64_t log_ring_gap(struct log_ring *ring);
