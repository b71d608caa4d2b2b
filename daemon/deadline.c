#include "daemon/deadline.h"

#include <stdlib.h>

#include "daemon/request.h"

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
    struct seq **heap =
        room < DEADLINE_NONE ? realloc(deadlines->heap, room * sizeof(*heap)) : NULL;
    if (!heap)
        return error_set(error, ERR_NO_MEMORY, "no memory for deadlines");
    deadlines->heap = heap;
    deadlines->room = (uint32_t)room;
    return 0;
}

static void put(struct deadlines *deadlines, uint32_t slot, struct seq *seq)
{
    deadlines->heap[slot] = seq;
    seq->deadline_slot = slot;
}

static void rise(struct deadlines *deadlines, uint32_t slot, struct seq *seq)
{
    while (slot > 0) {
        uint32_t parent = (slot - 1) / 2;
        if (deadlines->heap[parent]->deadline_us <= seq->deadline_us)
            break;
        put(deadlines, slot, deadlines->heap[parent]);
        slot = parent;
    }
    put(deadlines, slot, seq);
}

static void sink(struct deadlines *deadlines, uint32_t slot, struct seq *seq)
{
    for (;;) {
        uint32_t child = 2 * slot + 1;
        if (child >= deadlines->count)
            break;
        if (child + 1 < deadlines->count &&
            deadlines->heap[child + 1]->deadline_us < deadlines->heap[child]->deadline_us)
            child++;
        if (seq->deadline_us <= deadlines->heap[child]->deadline_us)
            break;
        put(deadlines, slot, deadlines->heap[child]);
        slot = child;
    }
    put(deadlines, slot, seq);
}

void deadlines_add(struct deadlines *deadlines, struct seq *seq)
{
    rise(deadlines, deadlines->count++, seq);
}

void deadlines_remove(struct deadlines *deadlines, struct seq *seq)
{
    uint32_t slot = seq->deadline_slot;
    if (slot == DEADLINE_NONE)
        return;
    seq->deadline_slot = DEADLINE_NONE;
    struct seq *last = deadlines->heap[--deadlines->count];
    if (last == seq)
        return;
    /* The last one may belong above or below the gap. */
    sink(deadlines, slot, last);
    rise(deadlines, last->deadline_slot, last);
}

struct seq *deadlines_first(const struct deadlines *deadlines)
{
    return deadlines->count > 0 ? deadlines->heap[0] : NULL;
}
