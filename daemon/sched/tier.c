#include "daemon/sched/tier.h"

#include <assert.h>
#include <stdlib.h>

#include "protocol/base/error.h"

/* ---- memory ------------------------------------------------------------------------------------
 */

static uint32_t nodes_for(const struct tier *tier)
{
    uint64_t most = 0;
    for (uint32_t g = 0; g < tier->group_count; g++) {
        uint64_t places = (uint64_t)tier->chunk_most[g] * tier->chunk_blocks[g];
        most = places > most ? places : most;
    }
    return most < TIER_NODES_MAX ? (uint32_t)most : TIER_NODES_MAX;
}

/* One chunk for each group, and of the rest the more the fewer blocks it holds. */
static void chunks_share(struct tier *tier)
{
    double all = 0;
    uint32_t rest = tier->chunks_max - tier->group_count, left = rest;
    for (uint32_t g = 0; g < tier->group_count; g++)
        all += 1.0 / tier->chunk_blocks[g];
    for (uint32_t g = tier->group_count; g-- > 0;) {
        uint32_t share = (uint32_t)(rest / all / tier->chunk_blocks[g] + 0.5);
        share = g == 0 || share > left ? left : share;
        tier->chunk_most[g] = 1 + share;
        left -= share;
    }
}

static bool arrays_init(struct tier *tier)
{
    bool good = true;
    tier->chunks = calloc(tier->chunks_max, sizeof *tier->chunks);
    tier->nodes = calloc(tier->node_max, sizeof *tier->nodes);
    tier->places = calloc((size_t)tier->node_max * tier->group_count, sizeof *tier->places);
    tier->buckets = malloc((tier->mask + 1) * sizeof *tier->buckets);
    for (uint32_t g = 0; g < tier->group_count; g++) {
        tier->place_next[g] =
            calloc((size_t)tier->chunks_max * tier->chunk_blocks[g], sizeof *tier->place_next[g]);
        good = good && tier->place_next[g] != NULL;
    }
    return good && tier->chunks && tier->nodes && tier->places && tier->buckets;
}

int tier_init(struct tier *tier, const struct gpu_model *model, uint32_t chunks_max)
{
    *tier = (struct tier){.group_count = model->group_count,
                          .chunks_max = chunks_max,
                          .asked = TIER_NONE,
                          .node_free = TIER_NONE,
                          .newest = TIER_NONE,
                          .oldest = TIER_NONE};
    for (uint32_t g = 0; g < model->group_count; g++)
        tier->chunk_blocks[g] = model->groups[g].chunk_blocks;
    if (model->group_count == 0 || chunks_max < model->group_count || tier->chunk_blocks[0] == 0)
        return 0;
    chunks_share(tier);
    tier->node_max = nodes_for(tier);
    uint32_t buckets = 16;
    while (buckets < tier->node_max)
        buckets *= 2;
    tier->mask = buckets - 1;
    if (!arrays_init(tier) || prefix_hint_init(&tier->hint, tier->node_max) < 0) {
        tier_destroy(tier);
        return -ERR_NO_MEMORY;
    }
    for (uint32_t i = 0; i < buckets; i++)
        tier->buckets[i] = TIER_NONE;
    return 0;
}

void tier_destroy(struct tier *tier)
{
    for (uint32_t g = 0; g < GPU_GROUPS_MAX; g++)
        free(tier->place_next[g]);
    free(tier->chunks);
    free(tier->nodes);
    free(tier->places);
    free(tier->buckets);
    prefix_hint_destroy(&tier->hint);
    *tier = (struct tier){.node_max = 0};
}

/* ---- places ------------------------------------------------------------------------------------
 */

static bool has_place(const struct tier *tier, uint32_t chunk, uint32_t group)
{
    const struct tier_chunk *of = &tier->chunks[chunk];
    return of->state == TIER_CHUNK_THERE && of->group == group &&
           of->used < tier->chunk_blocks[group];
}

static bool reach_place(struct tier *tier, uint32_t group)
{
    uint32_t *first = &tier->first_free[group];
    while (*first < tier->chunks_max && !has_place(tier, *first, group))
        ++*first;
    return *first < tier->chunks_max;
}

uint32_t tier_lacks(struct tier *tier, uint32_t groups)
{
    for (uint32_t g = 0; g < tier->group_count; g++)
        if (groups >> g & 1 && !reach_place(tier, g))
            return g;
    return TIER_NONE;
}

static uint32_t place_take(struct tier *tier, uint32_t group)
{
    const uint32_t *first = &tier->first_free[group];
    if (!reach_place(tier, group))
        return TIER_NONE;
    struct tier_chunk *chunk = &tier->chunks[*first];
    uint32_t place = chunk->free_first;
    if (place != TIER_NONE)
        chunk->free_first = tier->place_next[group][place];
    else
        place = *first * tier->chunk_blocks[group] + chunk->fresh++;
    chunk->used++;
    tier->used_places++;
    return place;
}

static void place_give(struct tier *tier, uint32_t group, uint32_t place)
{
    uint32_t number = place / tier->chunk_blocks[group];
    struct tier_chunk *chunk = &tier->chunks[number];
    assert(chunk->state == TIER_CHUNK_THERE && chunk->used > 0);
    tier->place_next[group][place] = chunk->free_first;
    chunk->free_first = place;
    chunk->used--;
    tier->used_places--;
    if (number < tier->first_free[group])
        tier->first_free[group] = number;
}

uint32_t tier_chunk_ask(struct tier *tier, uint32_t group)
{
    if (tier->asked != TIER_NONE || tier->chunk_count[group] == tier->chunk_most[group])
        return TIER_NONE;
    for (uint32_t i = 0; i < tier->chunks_max; i++) {
        if (tier->chunks[i].state != TIER_CHUNK_NONE)
            continue;
        tier->chunk_count[group]++;
        tier->chunks[i] =
            (struct tier_chunk){.state = TIER_CHUNK_ASKED, .group = group, .free_first = TIER_NONE};
        tier->asked = i;
        return i;
    }
    return TIER_NONE;
}

uint32_t tier_chunk_spare(struct tier *tier)
{
    if (tier->asked != TIER_NONE || tier->node_max == 0)
        return TIER_NONE;
    for (uint32_t i = tier->chunks_max; i-- > 0 && tier->asked == TIER_NONE;) {
        if (tier->chunks[i].state != TIER_CHUNK_THERE || tier->chunks[i].used > 0)
            continue;
        tier->chunks[i].state = TIER_CHUNK_GOING;
        tier->asked = i;
    }
    return tier->asked;
}

void tier_chunk_told(struct tier *tier, bool good)
{
    assert(tier->asked != TIER_NONE);
    struct tier_chunk *chunk = &tier->chunks[tier->asked];
    bool there = chunk->state == TIER_CHUNK_ASKED && good;
    chunk->state = there ? TIER_CHUNK_THERE : TIER_CHUNK_NONE;
    tier->chunk_count[chunk->group] -= !there;
    if (there && tier->asked < tier->first_free[chunk->group])
        tier->first_free[chunk->group] = tier->asked;
    tier->asked = TIER_NONE;
}

/* ---- names and ages ----------------------------------------------------------------------------
 */

static uint32_t find(const struct tier *tier, const struct prefix_key *key)
{
    if (tier->node_count == 0)
        return TIER_NONE;
    uint32_t node = tier->buckets[key->word[0] & tier->mask];
    while (node != TIER_NONE &&
           (tier->nodes[node].spoiled || !prefix_key_same(&tier->nodes[node].key, key)))
        node = tier->nodes[node].next;
    return node;
}

uint32_t tier_find(const struct tier *tier, const struct prefix_key *key)
{
    uint32_t node = find(tier, key);
    return node != TIER_NONE && tier->nodes[node].leaving ? TIER_NONE : node;
}

bool tier_has(const struct tier *tier, const struct prefix_key *key)
{
    return find(tier, key) != TIER_NONE;
}

static void age_remove(struct tier *tier, uint32_t node)
{
    uint32_t newer = tier->nodes[node].newer, older = tier->nodes[node].older;
    *(newer == TIER_NONE ? &tier->newest : &tier->nodes[newer].older) = older;
    *(older == TIER_NONE ? &tier->oldest : &tier->nodes[older].newer) = newer;
}

static void age_append(struct tier *tier, uint32_t node)
{
    tier->nodes[node].turn = tier->turn;
    tier->nodes[node].newer = TIER_NONE;
    tier->nodes[node].older = tier->newest;
    *(tier->newest == TIER_NONE ? &tier->oldest : &tier->nodes[tier->newest].newer) = node;
    tier->newest = node;
}

void tier_touch(struct tier *tier, uint32_t node)
{
    age_remove(tier, node);
    age_append(tier, node);
}

void tier_turn(struct tier *tier)
{
    tier->turn++;
    tier->passed = 0;
}

/* ---- the life of a node ------------------------------------------------------------------------
 */

void tier_drop(struct tier *tier, uint32_t node)
{
    struct tier_node *entry = &tier->nodes[node];
    uint32_t *at = &tier->buckets[entry->key.word[0] & tier->mask];
    assert(entry->readers == 0 && !entry->leaving);
    while (*at != node)
        at = &tier->nodes[*at].next;
    *at = entry->next;
    if (!entry->spoiled)
        prefix_hint_drop(&tier->hint, &entry->key);
    age_remove(tier, node);
    for (uint32_t g = 0; g < tier->group_count; g++)
        if (tier_place(tier, node, g) != TIER_NONE)
            place_give(tier, g, tier_place(tier, node, g));
    entry->next = tier->node_free;
    tier->node_free = node;
    tier->node_count--;
}

static bool is_idle(const struct tier *tier, uint32_t node)
{
    return !tier->nodes[node].leaving && tier->nodes[node].readers == 0;
}

#define PASSES_MOST 1024u /* in a turn */

/* It is as the newest now: so those behind it are looked at, and it is when they all were. Its turn
 * stays, for nobody used it. False: no more now. */
static bool pass(struct tier *tier, uint32_t node)
{
    uint64_t turn = tier->nodes[node].turn;
    if (tier->passed == PASSES_MOST)
        return false;
    tier->passed++;
    tier_touch(tier, node);
    tier->nodes[node].turn = turn;
    return true;
}

/* The oldest that can go and that nobody waits for: those in use are few, and were the newest when
 * that began. Where all are waited for, what comes is no better. */
static bool evict(struct tier *tier, bool wanted_too)
{
    uint32_t node = tier->oldest, newer;
    for (; node != TIER_NONE; node = newer) {
        newer = tier->nodes[node].newer;
        if (!is_idle(tier, node))
            continue;
        if (wanted_too || !prefix_wants_any(tier->wants, tier->want_count, &tier->nodes[node].key))
            break;
        if (!pass(tier, node))
            return false;
    }
    if (node == TIER_NONE || tier->nodes[node].turn == tier->turn)
        return false;
    tier->evicted++;
    tier_drop(tier, node);
    return true;
}

static uint32_t node_take(struct tier *tier)
{
    uint32_t node = tier->node_free;
    if (node != TIER_NONE)
        tier->node_free = tier->nodes[node].next;
    else if (tier->node_count < tier->node_max)
        node = tier->node_count; /* none is free: the first so many are in use */
    if (node != TIER_NONE)
        tier->node_count++;
    return node;
}

static bool places_take(struct tier *tier, uint32_t node, uint32_t groups)
{
    bool all = true;
    for (uint32_t g = 0; g < tier->group_count; g++) {
        uint32_t *place = &tier->places[(size_t)node * tier->group_count + g];
        *place = TIER_NONE;
        while (all && groups >> g & 1 && (*place = place_take(tier, g)) == TIER_NONE)
            if (!evict(tier, false))
                all = false;
    }
    return all;
}

uint32_t tier_put(struct tier *tier, const struct prefix_key *key, uint32_t groups)
{
    assert(!tier_has(tier, key));
    if (tier->node_max == 0 || (tier->node_count == tier->node_max && !evict(tier, false)))
        return TIER_NONE;
    uint32_t node = node_take(tier);
    tier->nodes[node] = (struct tier_node){.key = *key, .leaving = true};
    uint32_t *bucket = &tier->buckets[key->word[0] & tier->mask];
    tier->nodes[node].next = *bucket;
    *bucket = node;
    age_append(tier, node);
    if (places_take(tier, node, groups))
        return node;
    tier->nodes[node].leaving = false;
    tier_drop(tier, node);
    return TIER_NONE;
}

static void drop_spoiled(struct tier *tier, uint32_t node)
{
    if (tier->nodes[node].spoiled && is_idle(tier, node))
        tier_drop(tier, node);
}

void tier_put_ended(struct tier *tier, uint32_t node, bool good)
{
    assert(tier->nodes[node].leaving);
    tier->nodes[node].leaving = false;
    tier->nodes[node].spoiled |= !good;
    if (!tier->nodes[node].spoiled)
        prefix_hint_put(&tier->hint, &tier->nodes[node].key);
    drop_spoiled(tier, node);
}

void tier_read(struct tier *tier, uint32_t node)
{
    assert(!tier->nodes[node].leaving);
    tier->nodes[node].readers++;
    tier_touch(tier, node);
}

void tier_read_ended(struct tier *tier, uint32_t node)
{
    assert(tier->nodes[node].readers > 0);
    tier->nodes[node].readers--;
    drop_spoiled(tier, node);
}

void tier_spoil(struct tier *tier, const struct prefix_key *key)
{
    uint32_t node = find(tier, key);
    if (node == TIER_NONE)
        return;
    tier->nodes[node].spoiled = true;
    prefix_hint_drop(&tier->hint, key);
    drop_spoiled(tier, node);
}

void tier_give_up(struct tier *tier)
{
    uint64_t evicted = tier->evicted;
    tier_turn(tier);
    while (evict(tier, true))
        continue;
    tier->evicted = evicted;
}

/* ---- for tests ---------------------------------------------------------------------------------
 */

const char *tier_check(const struct tier *tier)
{
    uint32_t count = 0, used = 0, places = 0;
    for (uint32_t node = tier->oldest; node != TIER_NONE; node = tier->nodes[node].newer) {
        const struct tier_node *entry = &tier->nodes[node];
        if (++count > tier->node_count || (!entry->spoiled && find(tier, &entry->key) != node))
            return "a node of the tier is not found by its name";
        if (entry->spoiled && is_idle(tier, node))
            return "a node of the tier is spoiled and stays";
        for (uint32_t g = 0; g < tier->group_count; g++) {
            uint32_t place = tier_place(tier, node, g);
            if (place == TIER_NONE)
                continue;
            const struct tier_chunk *chunk = &tier->chunks[place / tier->chunk_blocks[g]];
            if (chunk->state != TIER_CHUNK_THERE || chunk->group != g)
                return "a place is in no chunk of its group";
            places++;
        }
    }
    uint32_t chunks[GPU_GROUPS_MAX] = {0};
    for (uint32_t i = 0; i < tier->chunks_max && tier->node_max > 0; i++) {
        used += tier->chunks[i].state == TIER_CHUNK_THERE ? tier->chunks[i].used : 0;
        chunks[tier->chunks[i].group] += tier->chunks[i].state != TIER_CHUNK_NONE;
    }
    for (uint32_t g = 0; g < tier->group_count; g++)
        if (chunks[g] != tier->chunk_count[g] || chunks[g] > tier->chunk_most[g])
            return "chunks of the tier are miscounted";
    if (count != tier->node_count || places != used || used != tier->used_places)
        return "places of the tier are miscounted";
    return "";
}
