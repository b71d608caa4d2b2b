#include "daemon/base/deadlines.h"

#include <stdlib.h>

#define ROOM_MIN 64u

void deadlines_init(struct deadlines *deadlines)
{
    *deadlines = (struct deadlines){0};
}

void deadlines_destroy(struct deadlines *deadlines)
{
    free(deadlines->heap);
    deadlines_init(deadlines);
}

int deadlines_reserve(struct deadlines *deadlines, uint32_t more, struct error *error)
{
    uint64_t need = (uint64_t)deadlines->count + more;
    if (need <= deadlines->room)
        return 0;
    uint64_t room = deadlines->room ? deadlines->room : ROOM_MIN;
    while (room < need)
        room *= 2;
    struct deadline **heap =
        room < DEADLINE_NONE ? realloc(deadlines->heap, room * sizeof(*heap)) : NULL;
    if (!heap)
        return error_set(error, ERR_NO_MEMORY, "no memory for deadlines");
    deadlines->heap = heap;
    deadlines->room = (uint32_t)room;
    return 0;
}

static void put(struct deadlines *deadlines, uint32_t slot, struct deadline *deadline)
{
    deadlines->heap[slot] = deadline;
    deadline->slot = slot;
}

static void rise(struct deadlines *deadlines, uint32_t slot, struct deadline *deadline)
{
    while (slot > 0) {
        uint32_t parent = (slot - 1) / 2;
        if (deadlines->heap[parent]->at_us <= deadline->at_us)
            break;
        put(deadlines, slot, deadlines->heap[parent]);
        slot = parent;
    }
    put(deadlines, slot, deadline);
}

static void sink(struct deadlines *deadlines, uint32_t slot, struct deadline *deadline)
{
    for (;;) {
        uint32_t child = 2 * slot + 1;
        if (child >= deadlines->count)
            break;
        if (child + 1 < deadlines->count &&
            deadlines->heap[child + 1]->at_us < deadlines->heap[child]->at_us)
            child++;
        if (deadline->at_us <= deadlines->heap[child]->at_us)
            break;
        put(deadlines, slot, deadlines->heap[child]);
        slot = child;
    }
    put(deadlines, slot, deadline);
}

void deadlines_add(struct deadlines *deadlines, struct deadline *deadline, time_us at_us)
{
    deadline->at_us = at_us;
    rise(deadlines, deadlines->count++, deadline);
}

void deadlines_remove(struct deadlines *deadlines, struct deadline *deadline)
{
    uint32_t slot = deadline->slot;
    if (slot == DEADLINE_NONE)
        return;
    deadline->slot = DEADLINE_NONE;
    struct deadline *last = deadlines->heap[--deadlines->count];
    if (last == deadline)
        return;
    /* The last one may belong above or below the gap. */
    sink(deadlines, slot, last);
    rise(deadlines, last->slot, last);
}

struct deadline *deadlines_first(const struct deadlines *deadlines)
{
    return deadlines->count > 0 ? deadlines->heap[0] : NULL;
}
