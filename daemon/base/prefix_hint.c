#include "daemon/base/prefix_hint.h"

#include <stdbool.h>
#include <stdlib.h>

#include "protocol/base/error.h"

#define WAYS 4u /* places that a mark may stand at */

int prefix_hint_init(struct prefix_hint *hint, uint32_t blocks)
{
    uint64_t size = WAYS * 16;
    while (size < 2ull * blocks)
        size *= 2;
    *hint = (struct prefix_hint){.marks = calloc(size, sizeof(*hint->marks)), .mask = size - WAYS};
    return hint->marks ? 0 : -ERR_NO_MEMORY;
}

void prefix_hint_destroy(struct prefix_hint *hint)
{
    free(hint->marks);
    *hint = (struct prefix_hint){.marks = NULL};
}

static uint64_t mark_of(const struct prefix_key *key)
{
    return key->word[1] | 1; /* 0 is none */
}

static _Atomic uint64_t *places(const struct prefix_hint *hint, const struct prefix_key *key)
{
    return hint->marks + (key->word[0] & hint->mask);
}

static bool has(const struct prefix_hint *hint, const struct prefix_key *key)
{
    const _Atomic uint64_t *place = places(hint, key);
    for (uint32_t i = 0; i < WAYS; i++)
        if (atomic_load_explicit(&place[i], memory_order_relaxed) == mark_of(key))
            return true;
    return false;
}

void prefix_hint_put(struct prefix_hint *hint, const struct prefix_key *key)
{
    if (!hint->marks || has(hint, key))
        return;
    _Atomic uint64_t *place = places(hint, key);
    uint32_t to = (uint32_t)(key->word[1] >> 32) % WAYS; /* all taken: one of them goes */
    for (uint32_t i = 0; i < WAYS; i++)
        if (atomic_load_explicit(&place[i], memory_order_relaxed) == 0)
            to = i;
    atomic_store_explicit(&place[to], mark_of(key), memory_order_relaxed);
}

void prefix_hint_drop(struct prefix_hint *hint, const struct prefix_key *key)
{
    if (!hint->marks)
        return;
    _Atomic uint64_t *place = places(hint, key);
    for (uint32_t i = 0; i < WAYS; i++)
        if (atomic_load_explicit(&place[i], memory_order_relaxed) == mark_of(key))
            atomic_store_explicit(&place[i], 0, memory_order_relaxed);
}

uint32_t prefix_hint_count(const struct prefix_hint *hint, const struct prefix_key *keys,
                           uint32_t count)
{
    uint32_t there = 0, not_there = count + 1; /* a block goes before the one that it stands behind */
    if (!hint->marks)
        return 0;
    while (not_there - there > 1) {
        uint32_t middle = there + (not_there - there) / 2;
        if (has(hint, &keys[middle - 1]))
            there = middle;
        else
            not_there = middle;
    }
    return there;
}
