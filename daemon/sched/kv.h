/* KV blocks: which exist, which are free, and which sequence holds which. Numbers only; the engine
 * knows where a block lies. Pure: no threads, no device, no clock.
 *
 * Blocks come in slabs, which exist or not. A new block is taken from the fullest slab that has
 * one, so that others run empty and can be given back; a slab that is being emptied gives none.
 *
 * Life of a block: free -> held (references >= 1) -> retired, when the last reference goes while a
 * step that may touch it is in flight -> free. Retired blocks are chained per step and become free
 * when that step has ended; a step behind that one may write to them before, as steps run in order.
 * Each table that names a block has a reference: sequences of one prompt
 * hold its blocks together (sched_share.c), and the prefix cache (cache.h) keeps blocks when nobody
 * else does. A block with several is not written: it lies wholly below what all of them have
 * computed. Who gives a block up may have a step in flight that touches it; the block remembers the
 * last such step, so that it is not free before that has ended, whoever gives it up last.
 *
 * One thread (the worker's). All memory is taken by kv_init; pages never used cost nothing.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "gpu/gpu.h"

#define KV_NONE UINT32_MAX
#define KV_STEPS 16 /* steps in flight and one more, at most; a power of two */

struct kv_slab {
    uint32_t next, prev; /* slabs with as many blocks in use */
    uint32_t used;       /* held and retired blocks */
    uint32_t free_first; /* chain of free blocks through kv_group.next */
    bool exists;
    bool closed; /* being emptied: gives no blocks */
};

struct kv_group {
    uint32_t window, slab_blocks, slabs_max;
    uint32_t slabs, used, free; /* slabs that exist; blocks held or retired; blocks free to take */
    uint32_t retired;           /* of used: free as soon as the steps in flight have ended */
    struct kv_slab *slab;       /* [slabs_max] */
    uint32_t *bucket;           /* [slab_blocks + 1]: first open slab with that many in use */
    uint64_t *bucket_map;       /* which buckets are not empty */
    uint32_t *next;             /* [blocks]: chains of free and of retired blocks */
    uint16_t *references;       /* [blocks] */
    uint8_t *kept;              /* [blocks]: one of the references is the cache's */
    uint64_t *touched;          /* [blocks]: step of the last reference that was given up */
    uint32_t alone;             /* of used: blocks that nobody but the cache holds */
    uint32_t retired_first[KV_STEPS];
};

struct kv {
    uint32_t block_tokens, group_count;
    uint64_t completed; /* last step that has ended */
    struct kv_group group[GPU_GROUPS_MAX];
};

/* The blocks of one sequence, by logical number: positions index * block_tokens and on. Groups with
 * a window drop the blocks before `first`. The arrays belong to whoever made the table (the
 * scheduler: one table per slot, room for context_max positions). */
struct kv_run {
    uint32_t first, end;
    uint32_t *blocks; /* valid in [first, end) */
};
struct kv_table {
    struct kv_run group[GPU_GROUPS_MAX];
};

/* 0 or -ERR_NO_MEMORY. No slab exists afterwards. */
int kv_init(struct kv *kv, const struct gpu_model *model);
void kv_destroy(struct kv *kv);

/* A block with one reference, or KV_NONE. */
uint32_t kv_take(struct kv *kv, uint32_t group);
/* One that is retired: for steps alone, which come behind those that touch it, not for copies. */
uint32_t kv_take_retired(struct kv *kv, uint32_t group);
/* One more reference to a block that is held. */
void kv_share(struct kv *kv, uint32_t group, uint32_t block);
/* A reference for the cache, which has at most one to a block; and it gives that up. */
void kv_keep(struct kv *kv, uint32_t group, uint32_t block);
void kv_keep_end(struct kv *kv, uint32_t group, uint32_t block);
/* Undoes a kv_take or a kv_share that no step has seen. */
void kv_put_back(struct kv *kv, uint32_t group, uint32_t block);
/* All references to `from` but one go over to `to`, which was just taken: whoever names the one
 * names the other from now on. The one left is for the step that copies, as is the one that `to`
 * had, so that it stays whoever gives it up until then. kv_move_back() undoes it and puts `to`
 * back. */
void kv_move(struct kv *kv, uint32_t group, uint32_t from, uint32_t to);
void kv_move_back(struct kv *kv, uint32_t group, uint32_t from, uint32_t to);
/* The step that copies was submitted, which gives both of its references up. */
void kv_moved(struct kv *kv, uint32_t group, uint32_t from, uint32_t to, uint64_t step);
/* Gives up one reference; the block is free when `step` has ended, at once when it already has. */
void kv_retire(struct kv *kv, uint32_t group, uint32_t block, uint64_t step);
/* Steps up to this one have ended. Steps may not be skipped. */
void kv_completed(struct kv *kv, uint64_t step);

/* A slab that now exists, all blocks free. */
void kv_slab_add(struct kv *kv, uint32_t group, uint32_t slab);
/* Of an empty slab. */
void kv_slab_remove(struct kv *kv, uint32_t group, uint32_t slab);
/* An existing slab without blocks in use, or KV_NONE. */
uint32_t kv_slab_empty(const struct kv *kv, uint32_t group);
/* The slab with the fewest blocks in use, none excepted but empty and full ones, or KV_NONE. */
uint32_t kv_slab_sparsest(const struct kv *kv, uint32_t group);
/* Closed slabs give no blocks; what they hold stays valid. */
void kv_slab_close(struct kv *kv, uint32_t group, uint32_t slab);
void kv_slab_open(struct kv *kv, uint32_t group, uint32_t slab);

/* The first block that the position behind `length` ones sees in a group. */
uint32_t kv_first_seen(const struct kv *kv, uint32_t group, uint32_t length);

/* Blocks that a sequence needs at most at a time to hold `length` positions when it is read in
 * chunks of at most `chunk` tokens. */
uint32_t kv_need(const struct kv *kv, uint32_t group, uint32_t length, uint32_t chunk);

/* Positions that one sequence can hold when it is alone, from what the model's groups may grow to;
 * what is longer is refused at admission. Any thread. */
uint64_t kv_length_max(const struct gpu_model *model, const struct gpu_limits *limits);

/* Blocks of the table that no position from `position` on can see: given up from the front. */
void kv_table_drop(struct kv *kv, struct kv_table *table, uint32_t position, uint64_t step);
/* Gives up everything. */
void kv_table_clear(struct kv *kv, struct kv_table *table, uint64_t step);
