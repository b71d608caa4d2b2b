#include "daemon/text/template/chat_arena.h"

#include <stdalign.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK_BYTES ((size_t)16 << 10)

struct chat_block {
    struct chat_block *next;
    max_align_t data[];
};

void chat_arena_init(struct chat_arena *arena, size_t max)
{
    *arena = (struct chat_arena){.max = max};
}

void chat_arena_free(struct chat_arena *arena)
{
    for (struct chat_block *block = arena->blocks, *next; block; block = next) {
        next = block->next;
        free(block);
    }
    *arena = (struct chat_arena){0};
}

static bool grow(struct chat_arena *arena, size_t bytes)
{
    /* Larger pieces as more is used: a long text that grows is then copied rarely. */
    size_t size = arena->used / 4 > BLOCK_BYTES ? arena->used / 4 : BLOCK_BYTES;
    if (size < bytes)
        size = bytes;
    if (size > arena->max - arena->used)
        size = bytes;
    if (size > arena->max - arena->used)
        return false;
    struct chat_block *block = malloc(sizeof(*block) + size);
    if (!block)
        return false;
    block->next = arena->blocks;
    arena->blocks = block;
    arena->at = (char *)block->data;
    arena->end = arena->at + size;
    arena->used += size;
    return true;
}

char *chat_arena_text(struct chat_arena *arena, size_t bytes)
{
    if (bytes > (size_t)(arena->end - arena->at) && !grow(arena, bytes))
        return NULL;
    char *text = arena->at;
    arena->at += bytes;
    return text;
}

void *chat_arena_take(struct chat_arena *arena, size_t bytes)
{
    size_t gap = -(uintptr_t)arena->at % alignof(max_align_t);
    if (!arena->at || gap > (size_t)(arena->end - arena->at) ||
        bytes > (size_t)(arena->end - arena->at) - gap) {
        if (bytes > arena->max || !grow(arena, bytes))
            return NULL;
        gap = 0;
    }
    void *memory = arena->at + gap;
    arena->at += gap + bytes;
    memset(memory, 0, bytes);
    return memory;
}

bool chat_arena_extend(struct chat_arena *arena, const char *text, size_t length, size_t more)
{
    if (!arena->at || text + length != arena->at || more > (size_t)(arena->end - arena->at))
        return false;
    arena->at += more;
    return true;
}
