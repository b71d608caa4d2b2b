#include "daemon/base/prefix_hint.h"

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

/* Never 0; without THERE it is expected. */
#define THERE UINT64_C(1)

static uint64_t mark_of(const struct prefix_key *key)
{
    return (key->word[1] & ~THERE) | 2;
}

static _Atomic uint64_t *places(const struct prefix_hint *hint, const struct prefix_key *key)
{
    return hint->marks + (key->word[0] & hint->mask);
}

static uint64_t look(const _Atomic uint64_t *place)
{
    return atomic_load_explicit(place, memory_order_relaxed);
}

static bool has(const struct prefix_hint *hint, const struct prefix_key *key, bool expected)
{
    const _Atomic uint64_t *place = places(hint, key);
    for (uint32_t i = 0; i < WAYS; i++)
        if (look(&place[i]) == (mark_of(key) | THERE) ||
            (expected && look(&place[i]) == mark_of(key)))
            return true;
    return false;
}

/* Where it stands, expected or not; else where nothing does; all taken: one of them goes. */
static void put(struct prefix_hint *hint, const struct prefix_key *key, uint64_t mark)
{
    _Atomic uint64_t *place = places(hint, key);
    uint32_t to = (uint32_t)(key->word[1] >> 32) % WAYS;
    for (uint32_t i = 0; i < WAYS; i++)
        if (look(&place[i]) == 0)
            to = i;
    for (uint32_t i = 0; i < WAYS; i++)
        if ((look(&place[i]) | THERE) == (mark | THERE))
            to = i;
    atomic_store_explicit(&place[to], mark, memory_order_relaxed);
}

void prefix_hint_put(struct prefix_hint *hint, const struct prefix_key *key)
{
    if (hint->marks)
        put(hint, key, mark_of(key) | THERE);
}

void prefix_hint_expect(struct prefix_hint *hint, const struct prefix_key *keys, uint32_t count)
{
    for (uint32_t i = 0; hint->marks && i < count; i++)
        if (!has(hint, &keys[i], true))
            put(hint, &keys[i], mark_of(&keys[i]));
}

void prefix_hint_drop(struct prefix_hint *hint, const struct prefix_key *key)
{
    if (!hint->marks)
        return;
    _Atomic uint64_t *place = places(hint, key);
    for (uint32_t i = 0; i < WAYS; i++)
        if ((look(&place[i]) | THERE) == (mark_of(key) | THERE))
            atomic_store_explicit(&place[i], 0, memory_order_relaxed);
}

/* A block goes before the one that it stands behind, so those that are there end somewhere. */
static uint32_t count_from(const struct prefix_hint *hint, const struct prefix_key *keys,
                           uint32_t from, uint32_t count, bool expected)
{
    uint32_t there = from, not_there = count + 1;
    if (!hint->marks)
        return from;
    while (not_there - there > 1) {
        uint32_t middle = there + (not_there - there) / 2;
        if (has(hint, &keys[middle - 1], expected))
            there = middle;
        else
            not_there = middle;
    }
    return there;
}

uint32_t prefix_hint_count(const struct prefix_hint *hint, const struct prefix_key *keys,
                           uint32_t count, bool expected)
{
    return count_from(hint, keys, 0, count, expected);
}

uint32_t prefix_hint_count_behind(const struct prefix_hint *hint, const struct prefix_key *keys,
                                  uint32_t from, uint32_t count)
{
    return count_from(hint, keys, from, count, false) - from;
}

/* ---- what is wanted ----------------------------------------------------------------------------
 */

#define WANTS_WAYS 16u /* places that a mark may stand at: a line of the processor's cache */
#define WANTS_SPACE 2u /* places for each mark, so that hardly one finds all of its own taken */
#define COUNT 0xffu    /* of a mark: how many want the block; the rest is of its key */

/* Written once, so that what waits later does not make the process larger. */
int prefix_wants_init(struct prefix_wants *wants, uint32_t blocks)
{
    uint64_t size = WANTS_WAYS * 16;
    while (size < (uint64_t)WANTS_SPACE * blocks)
        size *= 2;
    *wants = (struct prefix_wants){.marks = malloc(size * sizeof(*wants->marks)),
                                   .mask = size - WANTS_WAYS,
                                   .room = blocks,
                                   .most = blocks};
    for (uint64_t i = 0; wants->marks && i < size; i++)
        atomic_init(&wants->marks[i], 0);
    return wants->marks ? 0 : -ERR_NO_MEMORY;
}

void prefix_wants_destroy(struct prefix_wants *wants)
{
    free(wants->marks);
    *wants = (struct prefix_wants){.marks = NULL};
}

static uint32_t look_at(const _Atomic uint32_t *place)
{
    return atomic_load_explicit(place, memory_order_relaxed);
}

/* Two blocks may have one mark, in a few million: then one is kept for the other. */
static uint32_t mark_for(const struct prefix_key *key)
{
    return (uint32_t)key->word[1] & ~COUNT;
}

/* Its mark, or NULL; *ret_free: a place for it, or NULL. */
static _Atomic uint32_t *find(const struct prefix_wants *wants, const struct prefix_key *key,
                              _Atomic uint32_t **ret_free)
{
    _Atomic uint32_t *place = wants->marks + (key->word[0] & wants->mask);
    *ret_free = NULL;
    for (uint32_t i = 0; i < WANTS_WAYS; i++) {
        uint32_t mark = look_at(&place[i]);
        if (mark == 0)
            *ret_free = &place[i];
        else if ((mark & ~COUNT) == mark_for(key))
            return &place[i];
    }
    return NULL;
}

static void set(_Atomic uint32_t *place, uint32_t mark)
{
    atomic_store_explicit(place, mark, memory_order_relaxed);
}

bool prefix_wants_add(struct prefix_wants *wants, const struct prefix_key *keys, uint32_t count)
{
    if (count == 0 || count > wants->room)
        return false;
    wants->room -= count;
    for (uint32_t i = 0; i < count; i++) {
        _Atomic uint32_t *unused, *mark = find(wants, &keys[i], &unused);
        if (mark != NULL && (look_at(mark) & COUNT) < COUNT)
            set(mark, look_at(mark) + 1);
        else if (mark == NULL && unused != NULL)
            set(unused, mark_for(&keys[i]) + 1);
    }
    return true;
}

/* Where a mark was not made, or not counted, it is taken back too early, and never too late. */
void prefix_wants_drop(struct prefix_wants *wants, const struct prefix_key *keys, uint32_t count)
{
    wants->room = wants->most - wants->room < count ? wants->most : wants->room + count;
    for (uint32_t i = 0; wants->marks && i < count; i++) {
        _Atomic uint32_t *unused, *mark = find(wants, &keys[i], &unused);
        if (mark != NULL)
            set(mark, (look_at(mark) & COUNT) > 1 ? look_at(mark) - 1 : 0);
    }
}

bool prefix_wants_any(const struct prefix_wants *wants, uint32_t tables,
                      const struct prefix_key *key)
{
    _Atomic uint32_t *unused;
    for (uint32_t i = 0; i < tables; i++)
        if (wants[i].marks != NULL && find(&wants[i], key, &unused) != NULL)
            return true;
    return false;
}
