/* Memory of one template or one rendering: handed out from large pieces, given back all at once,
 * and never more than a maximum. Not thread-safe. Private to chat.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct chat_block;

struct chat_arena {
    struct chat_block *blocks;
    char *at, *end;
    size_t used, max; /* bytes */
};

void chat_arena_init(struct chat_arena *arena, size_t max);
void chat_arena_free(struct chat_arena *arena);

/* Aligned for anything, zeroed; NULL over the maximum or out of memory. */
void *chat_arena_take(struct chat_arena *arena, size_t bytes);

/* Makes the text that was taken last longer in place; false where that cannot be. */
bool chat_arena_extend(struct chat_arena *arena, const char *text, size_t length, size_t more);
char *chat_arena_text(struct chat_arena *arena, size_t bytes); /* not aligned, not zeroed */
