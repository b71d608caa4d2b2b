/* Deadlines: a heap of what ends at a time of its own, the earliest on top.
 *
 * A deadline is embedded in what it is about and knows its place, so that what ended early is taken
 * out in logarithmic time. Room is made before a request is accepted, so that adding cannot fail.
 * loop thread
 */
#pragma once

#include <stdint.h>

#include "protocol/base/clock.h"
#include "protocol/base/error.h"

#define DEADLINE_NONE UINT32_MAX

/* Embedded in what it is about. */
struct deadline {
    time_us at_us;
    uint32_t slot; /* index in the heap, DEADLINE_NONE = not there */
};

struct deadlines {
    struct deadline **heap;
    uint32_t count, room;
};

static inline void deadline_init(struct deadline *deadline)
{
    *deadline = (struct deadline){.slot = DEADLINE_NONE};
}

void deadlines_init(struct deadlines *deadlines);
void deadlines_destroy(struct deadlines *deadlines);
int deadlines_reserve(struct deadlines *deadlines, uint32_t more, struct error *error);
void deadlines_add(struct deadlines *deadlines, struct deadline *deadline, time_us at_us);
/* Nothing if it is not there. */
void deadlines_remove(struct deadlines *deadlines, struct deadline *deadline);
struct deadline *deadlines_first(const struct deadlines *deadlines); /* NULL: there is none */
