#include "client/bench/later.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>

#include "protocol/base/error.h"

#define ROOM_FIRST 64

static bool goes_before(const struct later_item *a, const struct later_item *b)
{
    return a->due_us != b->due_us ? a->due_us < b->due_us : a->index < b->index;
}

int later_put(struct later *later, uint64_t due_us, uint32_t index)
{
    const struct later_item item = {.due_us = due_us, .index = index};
    if (later->count == later->room) {
        uint32_t room = later->room ? 2 * later->room : ROOM_FIRST;
        struct later_item *more = realloc(later->items, room * sizeof(*more));
        if (!more)
            return -ERR_NO_MEMORY;
        later->items = more;
        later->room = room;
    }
    uint32_t at = later->count++;
    for (; at > 0 && goes_before(&item, &later->items[(at - 1) / 2]); at = (at - 1) / 2)
        later->items[at] = later->items[(at - 1) / 2];
    later->items[at] = item;
    return 0;
}

struct later_item later_take(struct later *later)
{
    assert(later->count > 0);
    struct later_item first = later->items[0], last = later->items[--later->count];
    uint32_t at = 0;
    for (uint32_t below; (below = 2 * at + 1) < later->count; at = below) {
        if (below + 1 < later->count && goes_before(&later->items[below + 1], &later->items[below]))
            below++;
        if (!goes_before(&later->items[below], &last))
            break;
        later->items[at] = later->items[below];
    }
    later->items[at] = last;
    return first;
}

void later_free(struct later *later)
{
    free(later->items);
    *later = (struct later){0};
}
