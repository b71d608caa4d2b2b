/* The prefix cache: blocks of KV whose steps have ended, by the names of what is in them
 * (daemon/base/prefix_key.h). Pure: no threads, no device, no clock.
 *
 * A node stands for one block of positions and has the block of each group that holds them. Its
 * parent is the block before it, so that nodes are trees whose ways down are beginnings of
 * sequences. Life of a node:
 *  - made, when a step that completes its block is submitted: it keeps the blocks, and nobody finds
 *    it;
 *  - named, when that step has ended well: found from now on;
 *  - dropped: a node without children that no sequence stands on, the least recently used first. So
 *    chains go tail first, and a parent is never gone before its children.
 * A sequence stands on (pins) the deepest node whose blocks, and whose parents', are in its table.
 *
 * Blocks of a group with a window go by themselves, too, where that group alone runs short: a hit
 * then ends where all blocks are that the next position sees.
 *
 * What leaves here is given up in node_drop() and strip() alone: there a further tier would take
 * it.
 *
 * One thread (the worker's) but for the hint. All memory is taken by cache_init.
 */
#pragma once

#include "daemon/base/prefix_hint.h"
#include "daemon/base/prefix_key.h"
#include "daemon/sched/kv.h"
#include "protocol/base/clock.h"

#define CACHE_NONE UINT32_MAX

struct cache_node {
    struct prefix_key key;
    time_us used_us; /* last pinned, or given up by who pinned it, or a child of it */
    uint32_t parent; /* or CACHE_NONE: the first block of a sequence */
    uint32_t next;   /* in its bucket; made: the maker's next; free: the next that is */
    uint32_t depth;  /* which block of a sequence */
    uint32_t children, users;
    uint32_t heap_at; /* CACHE_NONE: not to be dropped */
    bool named;
};

/* Nodes that have a block of a group with a window, by when they got it. */
struct cache_window {
    uint32_t *newer, *older; /* [node_max] */
    uint32_t oldest, newest;
};

struct cache {
    struct kv *kv; /* borrowed */
    uint32_t node_max, node_count, named_count;
    uint32_t node_free;       /* chain through next */
    struct cache_node *nodes; /* [node_max] */
    uint32_t *blocks;         /* [node_max][group_count], KV_NONE: not there */
    uint32_t *buckets, mask;
    uint32_t *heap, heap_count;      /* what can be dropped: the one to go first on top */
    uint32_t *owner[GPU_GROUPS_MAX]; /* [blocks of the group]: the node that keeps it */
    struct cache_window window[GPU_GROUPS_MAX];
    struct prefix_hint hint;
    uint64_t version;  /* another: something was named or given up since */
    uint64_t evicted;  /* nodes dropped and blocks stripped, since start */
    uint64_t searched; /* names looked for, since start */
};

/* The names of a sequence's blocks: those of its prompt, and those behind. */
struct cache_names {
    const struct prefix_key *prompt, *out;
    uint32_t prompt_count;
};

/* on: false takes no memory, and nothing is ever kept. 0 or -ERR_NO_MEMORY. */
int cache_init(struct cache *cache, struct kv *kv, bool on);
void cache_destroy(struct cache *cache);

static inline uint32_t cache_block(const struct cache *cache, uint32_t node, uint32_t group)
{
    return cache->blocks[(size_t)node * cache->kv->group_count + group];
}

static inline const struct prefix_key *cache_name_of(const struct cache_names *names,
                                                     uint32_t index)
{
    return index < names->prompt_count ? &names->prompt[index]
                                       : &names->out[index - names->prompt_count];
}

/* The named node, or CACHE_NONE. */
uint32_t cache_find(struct cache *cache, const struct prefix_key *key);
/* Of the first `count` blocks of a sequence, how many can be had: all that come before the last of
 * them, as far as the position behind it sees. *ret_node: the last one's. */
uint32_t cache_hit(struct cache *cache, const struct cache_names *names, uint32_t count,
                   uint32_t *ret_node);
/* Of the nodes from the first to this one, how many have blocks of groups without a window that
 * somebody else holds, too; they are the first ones. */
uint32_t cache_in_use(struct cache *cache, const struct cache_names *names, uint32_t count);

/* A node that is not named; CACHE_NONE: there is none, and none to be had. */
uint32_t cache_make(struct cache *cache, uint32_t depth);
/* It keeps this block. */
void cache_keep(struct cache *cache, uint32_t node, uint32_t group, uint32_t block);
/* It can be found behind its parent. Where one of that name is there that one stays, which takes
 * over what it lacks, and blocks that nobody uses are exchanged; the made one is gone then. Returns
 * the one that is there. */
uint32_t cache_name(struct cache *cache, uint32_t node, uint32_t parent,
                    const struct prefix_key *key, time_us now_us);
/* One that was made and not named, or one that can be dropped. */
void cache_drop(struct cache *cache, uint32_t node);

void cache_pin(struct cache *cache, uint32_t node, time_us now_us);
void cache_unpin(struct cache *cache, uint32_t node, time_us now_us);
/* Found: windows' blocks of it, from `first` on in each group, go last again. */
void cache_touch(struct cache *cache, uint32_t node, uint32_t group);

/* The one that would be dropped first goes last. */
void cache_pass(struct cache *cache, time_us now_us);
/* One node, or one block of a group with a window, that nobody uses. False: there is none. */
bool cache_evict(struct cache *cache, uint32_t group);
bool cache_drop_oldest(struct cache *cache);
/* When the one that would be dropped first was used; false: none can be. */
bool cache_oldest_us(const struct cache *cache, time_us *ret_us);
/* Whether the named node can be dropped now. */
bool cache_is_idle(const struct cache *cache, uint32_t node);

/* The block is elsewhere from now on. False: nothing here keeps it. */
bool cache_moved(struct cache *cache, uint32_t group, uint32_t from, uint32_t to);

/* What is wrong with it, in words; "" when nothing is. For tests. */
const char *cache_check(const struct cache *cache);
