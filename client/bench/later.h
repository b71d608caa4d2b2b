/* Items that are to be sent later, by when: a heap that grows. Zeroed memory is an empty one;
 * later_free() it. */
#pragma once

#include <stdint.h>

struct later_item {
    uint64_t due_us;
    uint32_t index;
};

struct later {
    struct later_item *items;
    uint32_t count, room;
};

/* 0 or -ERR_NO_MEMORY. */
int later_put(struct later *later, uint64_t due_us, uint32_t index);
/* The first of them; there is one. Equal ones by their index. */
struct later_item later_take(struct later *later);
void later_free(struct later *later);
