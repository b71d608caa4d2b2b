/* The host tier's book: which blocks of KV are in host memory, by the names of what is in them
 * (daemon/base/prefix_key.h), and in which places. Pure: no threads, no device, no clock.
 * README.md has the whole.
 *
 * A node stands for one block of positions and has a place for each group that had a block. Life of
 * a node:
 *  - leaving, when a copy to its places is asked for: nobody finds it;
 *  - there, when that has ended: found from now on; while it is read it is not given up;
 *  - dropped, the least recently used first, when its places are needed; not for others while
 *    somebody waits who wants it.
 * Nodes know no parents: who uses one uses those before it, and touches them later, so that chains
 * go tail first. One whose parents are gone is of no use until they are there again, and grows old.
 * What turns out to be no KV at all is spoiled: nobody finds it, and it goes when no copy is at it.
 *
 * Places come in chunks, which are asked for one at a time, lowest number first. Each group may
 * have so many chunks that all have about as many places: a node wants one of each.
 *
 * One thread (the worker's) but for the hint. All memory is taken by tier_init; pages never used
 * cost nothing.
 */
#pragma once

#include "daemon/base/prefix_hint.h"
#include "daemon/base/prefix_key.h"
#include "gpu/gpu.h"

#define TIER_NONE UINT32_MAX
#define TIER_NODES_MAX (1u << 20)

struct tier_node {
    struct prefix_key key;
    uint32_t next;         /* in its bucket, or of the free ones */
    uint32_t newer, older; /* of all that are there or leaving */
    uint32_t readers;      /* copies in flight from it */
    uint64_t turn;         /* of the caller, when it was used last */
    bool leaving, spoiled;
};

enum tier_chunk_state { TIER_CHUNK_NONE, TIER_CHUNK_ASKED, TIER_CHUNK_THERE, TIER_CHUNK_GOING };

struct tier_chunk {
    enum tier_chunk_state state;
    uint32_t group;
    uint32_t used, fresh; /* places in use; places from here on were never used */
    uint32_t free_first;  /* chain of places that were */
};

struct tier {
    uint32_t group_count, chunks_max, node_max, node_count, used_places;
    uint32_t chunk_blocks[GPU_GROUPS_MAX];
    uint32_t chunk_most[GPU_GROUPS_MAX], chunk_count[GPU_GROUPS_MAX]; /* asked for ones count */
    uint32_t first_free[GPU_GROUPS_MAX]; /* chunks before have no place for the group */
    uint32_t asked;            /* the chunk that is on its way, here or back; or TIER_NONE */
    struct tier_chunk *chunks; /* [chunks_max] */
    uint32_t *place_next[GPU_GROUPS_MAX]; /* [chunks_max * chunk_blocks], by place */
    struct tier_node *nodes;              /* [node_max] */
    uint32_t *places;                     /* [node_max][group_count], TIER_NONE: not there */
    uint32_t *buckets, mask, node_free, newest, oldest;
    uint64_t turn;
    struct prefix_hint hint; /* what is there, for the loop */
    const struct prefix_wants *wants; /* [want_count], borrowed: not given up for others */
    uint32_t want_count, passed;      /* so many of those were passed over in this turn */
    uint64_t evicted; /* nodes given up for others, since start */
};

/* No chunk exists afterwards. Of a model without chunks, or with fewer than it has groups, nothing
 * is ever kept. 0 or -ERR_NO_MEMORY. */
int tier_init(struct tier *tier, const struct gpu_model *model, uint32_t chunks_max);
void tier_destroy(struct tier *tier);

static inline uint32_t tier_place(const struct tier *tier, uint32_t node, uint32_t group)
{
    return tier->places[(size_t)node * tier->group_count + group];
}

/* One that is there, or TIER_NONE. */
uint32_t tier_find(const struct tier *tier, const struct prefix_key *key);
/* The same, or one that is leaving. */
bool tier_has(const struct tier *tier, const struct prefix_key *key);
void tier_touch(struct tier *tier, uint32_t node);

/* Of the groups of the mask, the first without a free place; TIER_NONE: none. */
uint32_t tier_lacks(struct tier *tier, uint32_t groups);
/* A turn of the caller's: what it uses in one is given up in none for what else it uses there. */
void tier_turn(struct tier *tier);
/* A leaving node with a place for each group of the mask; others are given up for it. TIER_NONE:
 * there are no places, or none now. */
uint32_t tier_put(struct tier *tier, const struct prefix_key *key, uint32_t groups);
/* The copy to it has ended; or never will. */
void tier_put_ended(struct tier *tier, uint32_t node, bool good);
/* A copy from it begins, which uses it, and ends. */
void tier_read(struct tier *tier, uint32_t node);
void tier_read_ended(struct tier *tier, uint32_t node);
/* What has this name is no KV. */
void tier_spoil(struct tier *tier, const struct prefix_key *key);
/* A node that no copy is at. */
void tier_drop(struct tier *tier, uint32_t node);
/* All that can be. */
void tier_give_up(struct tier *tier);

/* The chunk that is to be made for the group, or one without a place in use, that is to go back;
 * TIER_NONE: none, or one is on its way. That is told before another is asked for. */
uint32_t tier_chunk_ask(struct tier *tier, uint32_t group);
uint32_t tier_chunk_spare(struct tier *tier);
/* It is there, or gone; or was refused. */
void tier_chunk_told(struct tier *tier, bool good);

/* What is wrong with it, in words; "" when nothing is. For tests. */
const char *tier_check(const struct tier *tier);
