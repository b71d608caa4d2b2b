/* The host tier (README.md, tier.h): what is cached on the device is copied to host memory before
 * it has to leave. How it comes back: sched_fetch.c. */
#include <assert.h>
#include <stdlib.h>

#include "daemon/sched/sched_inner.h"

#define COPY_BYTES (384ull << 20) /* of one call, of which a turn makes one each way */
#define COPY_BLOCKS 256u          /* likewise: each may be a call of the driver */
#define SHORT_SHARE 4u            /* memory is short once less than such a part can be had */
#define WALK_MOST 256u           /* nodes that are looked at in a turn: a large step's blocks */
#define WALK_LEAST 4u
#define WALK_SHARE 4u            /* no more than such a part of the tier */
#define WALK_CHAINS 64u          /* likewise, chains */
#define CHUNK_RETRY_US 10000000u /* until a chunk is asked for again that was refused */

static struct sched_copies *copies_of(struct sched *sched, enum gpu_way way, uint64_t number)
{
    return &sched->copies[way][number % GPU_COPIES_MAX];
}

/* ---- memory ------------------------------------------------------------------------------------
 */

static uint32_t blocks_of_call(const struct sched *sched)
{
    uint64_t bytes = 1;
    for (uint32_t g = 0; g < sched->model.group_count; g++)
        bytes =
            sched->model.groups[g].block_bytes > bytes ? sched->model.groups[g].block_bytes : bytes;
    uint64_t blocks = COPY_BYTES / bytes;
    blocks = blocks > COPY_BLOCKS ? COPY_BLOCKS : blocks;
    return blocks > 2 * GPU_GROUPS_MAX ? (uint32_t)blocks : 2 * GPU_GROUPS_MAX;
}

int sched_tier_init(struct sched *sched)
{
    bool on = sched->cache.node_max > 0 && sched->calls.chunk != NULL;
    int rc = tier_init(&sched->tier, &sched->model, on ? sched->limits.chunks_max : 0);
    if (rc < 0 || sched->tier.node_max == 0)
        return rc;
    sched->copies_max = blocks_of_call(sched);
    sched->unwritten = calloc(sched->cache.node_max, sizeof(*sched->unwritten));
    bool good = sched->unwritten != NULL;
    for (uint32_t i = 0; i < GPU_WAYS * GPU_COPIES_MAX; i++) {
        struct sched_copies *copies = &sched->copies[i % GPU_WAYS][i / GPU_WAYS];
        copies->copies = calloc(sched->copies_max, sizeof(*copies->copies));
        copies->copied = calloc(sched->copies_max, sizeof(*copies->copied));
        good = good && copies->copies != NULL && copies->copied != NULL;
    }
    return good ? 0 : -ERR_NO_MEMORY;
}

void sched_tier_destroy(struct sched *sched)
{
    for (uint32_t i = 0; i < GPU_WAYS * GPU_COPIES_MAX; i++) {
        free(sched->copies[i % GPU_WAYS][i / GPU_WAYS].copies);
        free(sched->copies[i % GPU_WAYS][i / GPU_WAYS].copied);
    }
    free(sched->unwritten);
    tier_destroy(&sched->tier);
}

/* ---- out ---------------------------------------------------------------------------------------
 */

void sched_tier_named(struct sched *sched, uint32_t node)
{
    const uint32_t max = sched->cache.node_max;
    if (sched->tier.node_max == 0)
        return;
    if (sched->unwritten_count == max) { /* the oldest is the least likely to be there still */
        sched->unwritten_first = (sched->unwritten_first + 1) % max;
        sched->unwritten_count--;
    }
    uint32_t at = (sched->unwritten_first + sched->unwritten_count++) % max;
    sched->unwritten[at] =
        (struct sched_unwritten){.key = sched->cache.nodes[node].key, .node = node};
}

/* Some group is short of blocks, or what is idle is due to go. */
static bool is_short(const struct sched *sched, time_us now_us)
{
    time_us due = sched_cache_due_us(sched);
    if (due != SCHED_NEVER && due <= now_us + sched->options.cache_idle_release_us / 2)
        return true;
    for (uint32_t g = 0; g < sched->kv.group_count; g++) {
        const struct kv_group *group = &sched->kv.group[g];
        uint64_t all = (uint64_t)group->slabs_max * group->slab_blocks, there = group->free;
        if (now_us >= sched->group[g].grow_after_us)
            there += (uint64_t)(group->slabs_max - group->slabs) * group->slab_blocks;
        if (there < all / SHORT_SHARE + 1)
            return true;
    }
    return false;
}

bool sched_tier_is_writing(const struct sched *sched)
{
    return sched_copies_in_flight(sched) > 0 ||
           (sched->tier.node_max > 0 && sched->tier.asked != TIER_NONE);
}

bool sched_tier_lets_go(const struct sched *sched, uint32_t node)
{
    return sched->tier.node_max == 0 || sched->tier_full ||
           tier_has(&sched->tier, &sched->cache.nodes[node].key);
}

static uint32_t groups_of(const struct sched *sched, uint32_t node)
{
    uint32_t groups = 0;
    for (uint32_t g = 0; g < sched->kv.group_count; g++)
        groups |= (uint32_t)(cache_block(&sched->cache, node, g) != KV_NONE) << g;
    return groups;
}

/* Whether there are free places. Where there are none, but may be, memory is asked for. */
static bool has_places(struct sched *sched, uint32_t groups, time_us now_us)
{
    uint32_t lacks = tier_lacks(&sched->tier, groups), chunk = TIER_NONE;
    if (lacks == TIER_NONE)
        return true;
    if (now_us >= sched->chunk_after_us)
        chunk = tier_chunk_ask(&sched->tier, lacks);
    if (chunk != TIER_NONE)
        sched->calls.chunk(sched->calls.context, lacks, chunk, true);
    return false;
}

/* Copies a node's blocks, to free places, or to those of others that leave the tier for it. False:
 * no more now. */
static bool write_out(struct sched *sched, struct sched_copies *copies, uint32_t node,
                      bool displace, time_us now_us)
{
    const struct prefix_key *key = &sched->cache.nodes[node].key;
    uint32_t groups = groups_of(sched, node), tier;
    if (copies->plan.count + sched->kv.group_count > sched->copies_max)
        return false;
    if (!has_places(sched, groups, now_us) && (!displace || sched->tier.asked != TIER_NONE))
        return false;
    tier = tier_put(&sched->tier, key, groups);
    sched->tier_full = tier == TIER_NONE;
    if (sched->tier_full)
        return false;
    copies->copied[copies->count++] =
        (struct sched_copied){.tier = tier, .node = CACHE_NONE, .key = *key};
    for (uint32_t g = 0; g < sched->kv.group_count; g++) {
        if (!(groups >> g & 1))
            continue;
        uint32_t block = cache_block(&sched->cache, node, g);
        kv_share(&sched->kv, g, block);
        copies->copies[copies->plan.count++] = (struct gpu_copy){
            .group = g, .block = block, .place = tier_place(&sched->tier, tier, g)};
    }
    return true;
}

/* A node that will leave soon. What the tier has of it already is used now, so that it does not
 * leave there at once. */
static bool write_soon(struct sched *sched, struct sched_copies *copies, uint32_t node,
                       time_us now_us)
{
    uint32_t tier = tier_find(&sched->tier, &sched->cache.nodes[node].key);
    if (tier != TIER_NONE)
        tier_touch(&sched->tier, tier);
    return tier_has(&sched->tier, &sched->cache.nodes[node].key) ||
           write_out(sched, copies, node, true, now_us);
}

/* The node that can go once this one has, as one of its chain. */
static uint32_t next_to_go(const struct cache *cache, uint32_t node)
{
    uint32_t parent = cache->nodes[node].parent;
    bool goes = parent != CACHE_NONE && cache->nodes[parent].children == 1 &&
                cache->nodes[parent].users == 0;
    return goes ? parent : CACHE_NONE;
}

/* A part of the tier is for what leaves next, the rest for what has left. */
static uint32_t walk_most(const struct sched *sched)
{
    uint32_t part = sched->tier.node_count / WALK_SHARE;
    return part < WALK_LEAST ? WALK_LEAST : sched_min(part, WALK_MOST);
}

/* What leaves next: of the first of the heap, which are about the oldest, their chains from the
 * tails up; and the oldest blocks of windows. */
static void write_leaving(struct sched *sched, struct sched_copies *copies, time_us now_us)
{
    const struct cache *cache = &sched->cache;
    uint32_t most = walk_most(sched), walked = 0;
    for (uint32_t i = 0; i < sched_min(cache->heap_count, WALK_CHAINS); i++)
        for (uint32_t node = cache->heap[i]; node != CACHE_NONE && walked < most; walked++) {
            if (!write_soon(sched, copies, node, now_us))
                return;
            node = next_to_go(cache, node);
        }
    for (uint32_t g = 0; g < sched->kv.group_count; g++) {
        uint32_t node = sched->kv.group[g].window != 0 ? cache->window[g].oldest : CACHE_NONE;
        for (walked = 0; node != CACHE_NONE && walked < most; walked++) {
            if (cache->nodes[node].named && !write_soon(sched, copies, node, now_us))
                return;
            node = cache->window[g].newer[node];
        }
    }
}

/* What was named, in that order, while there is free room: so a victim's blocks are there when it
 * gives way. */
static void write_named(struct sched *sched, struct sched_copies *copies, time_us now_us)
{
    while (sched->unwritten_count > 0) {
        const struct sched_unwritten *entry = &sched->unwritten[sched->unwritten_first];
        bool there = cache_find(&sched->cache, &entry->key) == entry->node;
        if (there && !tier_has(&sched->tier, &entry->key) &&
            !write_out(sched, copies, entry->node, false, now_us))
            return;
        sched->unwritten_first = (sched->unwritten_first + 1) % sched->cache.node_max;
        sched->unwritten_count--;
    }
}

static void plan_out(struct sched *sched, struct sched_copies *copies, time_us now_us)
{
    if (!is_short(sched, now_us))
        return;
    tier_turn(&sched->tier);
    write_leaving(sched, copies, now_us);
    write_named(sched, copies, now_us);
}

static void end_out(struct sched *sched, struct sched_copies *copies, bool good)
{
    for (uint32_t i = 0; i < copies->count; i++)
        tier_put_ended(&sched->tier, copies->copied[i].tier, good);
    for (uint32_t i = 0; i < copies->plan.count; i++)
        kv_retire(&sched->kv, copies->copies[i].group, copies->copies[i].block, 0);
}

/* ---- both --------------------------------------------------------------------------------------
 */

const struct gpu_copies *sched_copies(struct sched *sched, enum gpu_way way, time_us now_us)
{
    uint64_t number = sched->copies_last[way] + 1;
    struct sched_copies *copies = copies_of(sched, way, number);
    if (sched->tier.node_max == 0 || number > sched->copies_done[way] + GPU_COPIES_MAX)
        return NULL;
    sched->now_us = now_us;
    copies->plan = (struct gpu_copies){.number = number, .way = way, .copies = copies->copies};
    copies->count = 0;
    copies->seq = NULL;
    copies->behind = CACHE_NONE;
    if (way == GPU_TO_HOST)
        plan_out(sched, copies, now_us);
    else
        sched_fetch_plan(sched, copies, now_us);
    return copies->plan.count > 0 ? &copies->plan : NULL;
}

void sched_copies_submitted(struct sched *sched, enum gpu_way way, time_us now_us)
{
    copies_of(sched, way, ++sched->copies_last[way])->submitted_us = now_us;
}

void sched_copies_complete(struct sched *sched, enum gpu_way way, time_us now_us)
{
    struct sched_copies *copies = copies_of(sched, way, sched->copies_done[way] + 1);
    assert(sched->copies_done[way] < sched->copies_last[way]);
    sched->copies_done[way]++;
    sched->now_us = now_us;
    hist_add(way == GPU_TO_HOST ? &sched->stats->host_out : &sched->stats->host_in,
             now_us - copies->submitted_us);
    if (way == GPU_TO_HOST) {
        sched->stats->host_blocks_out_total += copies->plan.count;
        end_out(sched, copies, true);
        return;
    }
    sched->stats->host_blocks_in_total += copies->plan.count;
    sched_fetch_ended(sched, copies, true);
}

void sched_tier_forget(struct sched *sched)
{
    for (enum gpu_way way = 0; way < GPU_WAYS; way++)
        while (sched->copies_done[way] < sched->copies_last[way]) {
            struct sched_copies *copies = copies_of(sched, way, ++sched->copies_done[way]);
            if (way == GPU_TO_HOST)
                end_out(sched, copies, false);
            else
                sched_fetch_ended(sched, copies, false);
        }
    if (sched->tier.node_max > 0)
        tier_give_up(&sched->tier);
}

static void give_chunk(struct sched *sched)
{
    uint32_t chunk = tier_chunk_spare(&sched->tier);
    if (chunk != TIER_NONE)
        sched->calls.chunk(sched->calls.context, sched->tier.chunks[chunk].group, chunk, false);
}

void sched_tier_give_up(struct sched *sched)
{
    if (sched->tier.node_max == 0)
        return;
    tier_give_up(&sched->tier);
    give_chunk(sched);
}

void sched_chunk_told(struct sched *sched, bool good, time_us now_us)
{
    bool went = sched->tier.chunks[sched->tier.asked].state == TIER_CHUNK_GOING;
    tier_chunk_told(&sched->tier, good);
    sched->stats->host_refused_total += !good;
    if (!good)
        sched->chunk_after_us = now_us + CHUNK_RETRY_US;
    if (went && sched->tier.node_count == 0) /* all of them go */
        give_chunk(sched);
}
