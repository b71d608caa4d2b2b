#include "daemon/sched/cache.h"

#include <assert.h>
#include <stdlib.h>

#include "protocol/base/error.h"

/* ---- memory ------------------------------------------------------------------------------------
 */

static uint32_t blocks_of(const struct kv_group *group)
{
    return group->slab_blocks * group->slabs_max;
}

static bool groups_init(struct cache *cache)
{
    bool good = true;
    for (uint32_t g = 0; g < cache->kv->group_count; g++) {
        uint32_t blocks = blocks_of(&cache->kv->group[g]);
        struct cache_window *window = &cache->window[g];
        cache->owner[g] = malloc(blocks * sizeof(*cache->owner[g]));
        for (uint32_t i = 0; cache->owner[g] != NULL && i < blocks; i++)
            cache->owner[g][i] = CACHE_NONE;
        *window = (struct cache_window){.oldest = CACHE_NONE, .newest = CACHE_NONE};
        good = good && cache->owner[g] != NULL;
        if (cache->kv->group[g].window == 0)
            continue;
        window->newer = malloc(cache->node_max * sizeof(*window->newer));
        window->older = malloc(cache->node_max * sizeof(*window->older));
        good = good && window->newer != NULL && window->older != NULL;
    }
    return good;
}

int cache_init(struct cache *cache, struct kv *kv, bool on)
{
    *cache = (struct cache){.kv = kv, .node_free = CACHE_NONE};
    if (!on)
        return 0;
    for (uint32_t g = 0; g < kv->group_count; g++)
        if (blocks_of(&kv->group[g]) > cache->node_max)
            cache->node_max = blocks_of(&kv->group[g]);
    uint32_t buckets = 16;
    while (buckets < cache->node_max && buckets < UINT32_MAX / 2)
        buckets *= 2;
    cache->mask = buckets - 1;
    cache->nodes = calloc(cache->node_max, sizeof(*cache->nodes));
    cache->blocks = calloc((size_t)cache->node_max * kv->group_count, sizeof(*cache->blocks));
    cache->buckets = malloc(buckets * sizeof(*cache->buckets));
    cache->heap = calloc(cache->node_max, sizeof(*cache->heap));
    if (!cache->nodes || !cache->blocks || !cache->buckets || !cache->heap || !groups_init(cache) ||
        prefix_hint_init(&cache->hint, cache->node_max) < 0) {
        cache_destroy(cache);
        return -ERR_NO_MEMORY;
    }
    for (uint32_t i = 0; i < buckets; i++)
        cache->buckets[i] = CACHE_NONE;
    for (uint32_t i = cache->node_max; i-- > 0;) {
        cache->nodes[i].next = cache->node_free;
        cache->node_free = i;
    }
    return 0;
}

void cache_destroy(struct cache *cache)
{
    for (uint32_t g = 0; g < GPU_GROUPS_MAX; g++) {
        free(cache->owner[g]);
        free(cache->window[g].newer);
        free(cache->window[g].older);
    }
    free(cache->nodes);
    free(cache->blocks);
    free(cache->buckets);
    free(cache->heap);
    prefix_hint_destroy(&cache->hint);
    *cache = (struct cache){.node_free = CACHE_NONE};
}

static uint32_t *block_at(struct cache *cache, uint32_t node, uint32_t group)
{
    return &cache->blocks[(size_t)node * cache->kv->group_count + group];
}

/* ---- what can be dropped: a heap ---------------------------------------------------------------
 */

static bool goes_before(const struct cache *cache, uint32_t a, uint32_t b)
{
    const struct cache_node *x = &cache->nodes[a], *y = &cache->nodes[b];
    return x->used_us != y->used_us ? x->used_us < y->used_us : x->depth > y->depth;
}

static void heap_put(struct cache *cache, uint32_t at, uint32_t node)
{
    cache->heap[at] = node;
    cache->nodes[node].heap_at = at;
}

static void heap_up(struct cache *cache, uint32_t at)
{
    uint32_t node = cache->heap[at];
    for (; at > 0 && goes_before(cache, node, cache->heap[(at - 1) / 2]); at = (at - 1) / 2)
        heap_put(cache, at, cache->heap[(at - 1) / 2]);
    heap_put(cache, at, node);
}

static void heap_down(struct cache *cache, uint32_t at)
{
    uint32_t node = cache->heap[at];
    for (;;) {
        uint32_t below = 2 * at + 1;
        if (below >= cache->heap_count)
            break;
        if (below + 1 < cache->heap_count &&
            goes_before(cache, cache->heap[below + 1], cache->heap[below]))
            below++;
        if (!goes_before(cache, cache->heap[below], node))
            break;
        heap_put(cache, at, cache->heap[below]);
        at = below;
    }
    heap_put(cache, at, node);
}

static void heap_remove(struct cache *cache, uint32_t node)
{
    uint32_t at = cache->nodes[node].heap_at, last = cache->heap[--cache->heap_count];
    cache->nodes[node].heap_at = CACHE_NONE;
    if (last == node)
        return;
    heap_put(cache, at, last);
    heap_up(cache, at);
    heap_down(cache, cache->nodes[last].heap_at);
}

/* Whether it can be dropped has changed, or when it was used. */
static void heap_tend(struct cache *cache, uint32_t node)
{
    struct cache_node *entry = &cache->nodes[node];
    if (entry->heap_at != CACHE_NONE)
        heap_remove(cache, node);
    if (!entry->named || entry->children > 0 || entry->users > 0)
        return;
    heap_put(cache, cache->heap_count++, node);
    heap_up(cache, entry->heap_at);
}

/* ---- blocks of groups with a window, by age ----------------------------------------------------
 */

static void window_remove(struct cache *cache, uint32_t node, uint32_t group)
{
    struct cache_window *window = &cache->window[group];
    uint32_t newer = window->newer[node], older = window->older[node];
    *(newer == CACHE_NONE ? &window->newest : &window->older[newer]) = older;
    *(older == CACHE_NONE ? &window->oldest : &window->newer[older]) = newer;
}

static void window_append(struct cache *cache, uint32_t node, uint32_t group)
{
    struct cache_window *window = &cache->window[group];
    window->newer[node] = CACHE_NONE;
    window->older[node] = window->newest;
    *(window->newest == CACHE_NONE ? &window->oldest : &window->newer[window->newest]) = node;
    window->newest = node;
}

void cache_touch(struct cache *cache, uint32_t node, uint32_t group)
{
    if (cache->kv->group[group].window == 0 || cache_block(cache, node, group) == KV_NONE)
        return;
    window_remove(cache, node, group);
    window_append(cache, node, group);
}

/* ---- blocks of a node --------------------------------------------------------------------------
 */

/* The node names the block; whose reference that is, the caller knows. */
static void own(struct cache *cache, uint32_t node, uint32_t group, uint32_t block)
{
    assert(cache->owner[group][block] == CACHE_NONE);
    *block_at(cache, node, group) = block;
    cache->owner[group][block] = node;
    if (cache->kv->group[group].window != 0)
        window_append(cache, node, group);
}

static void disown(struct cache *cache, uint32_t node, uint32_t group)
{
    uint32_t *block = block_at(cache, node, group);
    cache->owner[group][*block] = CACHE_NONE;
    *block = KV_NONE;
    if (cache->kv->group[group].window != 0)
        window_remove(cache, node, group);
}

void cache_keep(struct cache *cache, uint32_t node, uint32_t group, uint32_t block)
{
    kv_keep(cache->kv, group, block);
    own(cache, node, group, block);
}

static void strip(struct cache *cache, uint32_t node, uint32_t group)
{
    uint32_t block = cache_block(cache, node, group);
    disown(cache, node, group);
    kv_keep_end(cache->kv, group, block);
    cache->version++;
}

bool cache_moved(struct cache *cache, uint32_t group, uint32_t from, uint32_t to)
{
    if (cache->node_max == 0 || cache->owner[group][from] == CACHE_NONE)
        return false;
    uint32_t node = cache->owner[group][from];
    cache->owner[group][from] = CACHE_NONE;
    cache->owner[group][to] = node;
    *block_at(cache, node, group) = to;
    return true;
}

/* ---- names -------------------------------------------------------------------------------------
 */

uint32_t cache_find(struct cache *cache, const struct prefix_key *key)
{
    if (cache->named_count == 0)
        return CACHE_NONE;
    cache->searched++;
    uint32_t node = cache->buckets[key->word[0] & cache->mask];
    while (node != CACHE_NONE && !prefix_key_same(&cache->nodes[node].key, key))
        node = cache->nodes[node].next;
    return node;
}

static void index_insert(struct cache *cache, uint32_t node)
{
    uint32_t *bucket = &cache->buckets[cache->nodes[node].key.word[0] & cache->mask];
    cache->nodes[node].next = *bucket;
    *bucket = node;
    cache->named_count++;
    prefix_hint_put(&cache->hint, &cache->nodes[node].key);
}

static void index_remove(struct cache *cache, uint32_t node)
{
    uint32_t *at = &cache->buckets[cache->nodes[node].key.word[0] & cache->mask];
    while (*at != node)
        at = &cache->nodes[*at].next;
    *at = cache->nodes[node].next;
    cache->named_count--;
    prefix_hint_drop(&cache->hint, &cache->nodes[node].key);
}

/* Of `count` blocks ending with this node, how many a group with a window leaves: all that the next
 * position sees are there. *node goes along. */
static uint32_t fit_window(const struct cache *cache, uint32_t group, uint32_t count,
                           uint32_t *node)
{
    uint32_t walk = *node;
    for (uint32_t at = count;
         at > 0 && at > kv_first_seen(cache->kv, group, count * cache->kv->block_tokens); at--) {
        uint32_t block = cache_block(cache, walk, group);
        walk = cache->nodes[walk].parent;
        if (block != KV_NONE)
            continue;
        count = at - 1; /* nothing that sees this block */
        *node = walk;
    }
    return count;
}

uint32_t cache_hit(struct cache *cache, const struct cache_names *names, uint32_t count,
                   uint32_t *ret_node)
{
    uint32_t there = 0, not_there = count + 1;
    *ret_node = CACHE_NONE;
    while (not_there - there > 1) { /* none is there without those before it */
        uint32_t middle = there + (not_there - there) / 2;
        uint32_t node = cache_find(cache, cache_name_of(names, middle - 1));
        if (node == CACHE_NONE) {
            not_there = middle;
            continue;
        }
        there = middle;
        *ret_node = node;
    }
    uint32_t before;
    do { /* shorter in one group: once more for all */
        before = there;
        for (uint32_t g = 0; g < cache->kv->group_count; g++)
            there = fit_window(cache, g, there, ret_node);
    } while (there < before);
    if (there == 0)
        *ret_node = CACHE_NONE;
    return there;
}

static bool is_shared(const struct cache *cache, uint32_t node)
{
    for (uint32_t g = 0; g < cache->kv->group_count; g++)
        if (cache->kv->group[g].window == 0 && cache_block(cache, node, g) != KV_NONE &&
            cache->kv->group[g].references[cache_block(cache, node, g)] > 1)
            return true;
    return false;
}

uint32_t cache_in_use(struct cache *cache, const struct cache_names *names, uint32_t count)
{
    uint32_t used = 0, unused = count + 1; /* who holds one holds those before it */
    while (unused - used > 1) {
        uint32_t middle = used + (unused - used) / 2;
        uint32_t node = cache_find(cache, cache_name_of(names, middle - 1));
        if (node != CACHE_NONE && is_shared(cache, node))
            used = middle;
        else
            unused = middle;
    }
    return used;
}

/* ---- the life of a node ------------------------------------------------------------------------
 */

/* Its blocks go, and itself. */
static void node_drop(struct cache *cache, uint32_t node)
{
    struct cache_node *entry = &cache->nodes[node];
    for (uint32_t g = 0; g < cache->kv->group_count; g++)
        if (cache_block(cache, node, g) != KV_NONE)
            strip(cache, node, g);
    entry->next = cache->node_free;
    cache->node_free = node;
    cache->node_count--;
}

uint32_t cache_make(struct cache *cache, uint32_t depth)
{
    if (cache->node_free == CACHE_NONE && !cache_drop_oldest(cache))
        return CACHE_NONE;
    uint32_t node = cache->node_free;
    cache->node_free = cache->nodes[node].next;
    cache->node_count++;
    cache->nodes[node] = (struct cache_node){
        .parent = CACHE_NONE, .next = CACHE_NONE, .depth = depth, .heap_at = CACHE_NONE};
    for (uint32_t g = 0; g < cache->kv->group_count; g++)
        *block_at(cache, node, g) = KV_NONE;
    return node;
}

/* `there` takes over from `made` what it lacks, or has and nobody uses: so the maker stands on it
 * with blocks of its own. */
static void merge(struct cache *cache, uint32_t there, uint32_t made)
{
    for (uint32_t g = 0; g < cache->kv->group_count; g++) {
        uint32_t old = cache_block(cache, there, g), fresh = cache_block(cache, made, g);
        if (fresh == KV_NONE || (old != KV_NONE && cache->kv->group[g].references[old] > 1))
            continue;
        if (old != KV_NONE)
            strip(cache, there, g);
        disown(cache, made, g);
        own(cache, there, g, fresh);
    }
}

uint32_t cache_name(struct cache *cache, uint32_t node, uint32_t parent,
                    const struct prefix_key *key, time_us now_us)
{
    struct cache_node *entry = &cache->nodes[node];
    uint32_t there = cache_find(cache, key);
    assert(!entry->named);
    cache->version++;
    if (there != CACHE_NONE) {
        merge(cache, there, node);
        node_drop(cache, node);
        cache->nodes[there].used_us = now_us;
        heap_tend(cache, there);
        return there;
    }
    entry->key = *key;
    entry->parent = parent;
    entry->named = true;
    entry->used_us = now_us;
    index_insert(cache, node);
    if (parent != CACHE_NONE) {
        cache->nodes[parent].children++;
        heap_tend(cache, parent);
    }
    heap_tend(cache, node);
    return node;
}

void cache_drop(struct cache *cache, uint32_t node)
{
    struct cache_node *entry = &cache->nodes[node];
    uint32_t parent = entry->parent;
    assert(entry->children == 0 && entry->users == 0);
    if (entry->named) {
        index_remove(cache, node);
        heap_remove(cache, node);
        if (parent != CACHE_NONE) {
            struct cache_node *above = &cache->nodes[parent];
            above->children--;
            if (entry->used_us > above->used_us)
                above->used_us = entry->used_us;
            heap_tend(cache, parent);
        }
    }
    node_drop(cache, node);
}

void cache_pin(struct cache *cache, uint32_t node, time_us now_us)
{
    cache->nodes[node].users++;
    cache->nodes[node].used_us = now_us;
    heap_tend(cache, node);
}

void cache_unpin(struct cache *cache, uint32_t node, time_us now_us)
{
    assert(cache->nodes[node].users > 0);
    cache->nodes[node].users--;
    if (now_us > cache->nodes[node].used_us)
        cache->nodes[node].used_us = now_us;
    heap_tend(cache, node);
}

bool cache_is_idle(const struct cache *cache, uint32_t node)
{
    return cache->nodes[node].heap_at != CACHE_NONE;
}

bool cache_oldest_us(const struct cache *cache, time_us *ret_us)
{
    if (cache->heap_count == 0)
        return false;
    *ret_us = cache->nodes[cache->heap[0]].used_us;
    return true;
}

void cache_pass(struct cache *cache, time_us now_us)
{
    cache->nodes[cache->heap[0]].used_us = now_us;
    heap_down(cache, 0);
}

bool cache_drop_oldest(struct cache *cache)
{
    if (cache->heap_count == 0)
        return false;
    cache->evicted++;
    cache_drop(cache, cache->heap[0]);
    return true;
}

/* The oldest block of the group that nobody but its node holds; those in use are as new as any. */
static bool strip_oldest(struct cache *cache, uint32_t group)
{
    struct cache_window *window = &cache->window[group];
    uint32_t last = window->newest;
    while (cache->kv->group[group].alone > 0) {
        uint32_t node = window->oldest;
        if (cache->kv->group[group].references[cache_block(cache, node, group)] == 1) {
            cache->evicted++;
            strip(cache, node, group);
            return true;
        }
        cache_touch(cache, node, group);
        assert(node != last); /* all were looked at: one of them is alone */
    }
    return false;
}

bool cache_evict(struct cache *cache, uint32_t group)
{
    if (cache->node_max == 0)
        return false;
    return cache->kv->group[group].window != 0 ? strip_oldest(cache, group)
                                               : cache_drop_oldest(cache);
}

/* ---- for tests ---------------------------------------------------------------------------------
 */

static const char *check_node(const struct cache *cache, uint32_t node)
{
    const struct cache_node *entry = &cache->nodes[node];
    bool can_go = entry->named && entry->children == 0 && entry->users == 0;
    if (can_go != (entry->heap_at != CACHE_NONE) || (can_go && cache->heap[entry->heap_at] != node))
        return "a cached block that is not used cannot be dropped, or one that is can";
    for (uint32_t g = 0; g < cache->kv->group_count; g++) {
        uint32_t block = cache_block(cache, node, g);
        if (block != KV_NONE &&
            (cache->owner[g][block] != node || !cache->kv->group[g].kept[block]))
            return "a cached block is not kept";
        if (block == KV_NONE && entry->named && cache->kv->group[g].window == 0)
            return "a cached node lacks a block";
    }
    const struct cache_node *above =
        entry->named && entry->parent != CACHE_NONE ? &cache->nodes[entry->parent] : NULL;
    if (above != NULL &&
        (!above->named || above->depth + 1 != entry->depth || above->children == 0))
        return "a cached block stands behind one that is gone";
    return "";
}

const char *cache_check(const struct cache *cache)
{
    uint32_t named = 0, kept[GPU_GROUPS_MAX] = {0};
    for (uint32_t i = 0; i <= cache->mask && cache->node_max > 0; i++)
        for (uint32_t node = cache->buckets[i]; node != CACHE_NONE;
             node = cache->nodes[node].next) {
            named++;
            if (*check_node(cache, node))
                return check_node(cache, node);
        }
    if (named != cache->named_count || cache->heap_count > named || named > cache->node_count)
        return "cached blocks are miscounted";
    for (uint32_t g = 0; g < cache->kv->group_count && cache->node_max > 0; g++) {
        const struct kv_group *group = &cache->kv->group[g];
        for (uint32_t block = 0; block < blocks_of(group); block++) {
            uint32_t owner = cache->owner[g][block];
            if ((owner != CACHE_NONE) != group->kept[block] ||
                (owner != CACHE_NONE && cache_block(cache, owner, g) != block))
                return "a block is kept for nobody";
            kept[g] += group->kept[block] && group->references[block] == 1;
        }
        if (kept[g] != group->alone)
            return "blocks that only the cache holds are miscounted";
    }
    return "";
}
