#include "daemon/sched/kv.h"

#include <assert.h>
#include <stdlib.h>

#include "protocol/base/error.h"

static uint32_t map_words(const struct kv_group *group)
{
    return group->slab_blocks / 64 + 1;
}

static int group_init(struct kv_group *group, const struct gpu_group *of)
{
    size_t blocks = (size_t)of->slab_blocks * of->slabs_max;
    *group = (struct kv_group){
        .window = of->window, .slab_blocks = of->slab_blocks, .slabs_max = of->slabs_max};
    group->slab = calloc(of->slabs_max, sizeof(*group->slab));
    group->bucket = malloc((of->slab_blocks + 1u) * sizeof(*group->bucket));
    group->bucket_map = calloc(map_words(group), sizeof(*group->bucket_map));
    group->next = calloc(blocks, sizeof(*group->next));
    group->references = calloc(blocks, sizeof(*group->references));
    group->kept = calloc(blocks, sizeof(*group->kept));
    group->touched = calloc(blocks, sizeof(*group->touched));
    if (!group->slab || !group->bucket || !group->bucket_map || !group->next ||
        !group->references || !group->kept || !group->touched)
        return -ERR_NO_MEMORY;
    for (uint32_t used = 0; used <= of->slab_blocks; used++)
        group->bucket[used] = KV_NONE;
    for (uint32_t i = 0; i < KV_STEPS; i++)
        group->retired_first[i] = KV_NONE;
    return 0;
}

int kv_init(struct kv *kv, const struct gpu_model *model)
{
    *kv = (struct kv){.block_tokens = model->block_tokens, .group_count = model->group_count};
    for (uint32_t g = 0; g < kv->group_count; g++)
        if (group_init(&kv->group[g], &model->groups[g]) < 0) {
            kv_destroy(kv);
            return -ERR_NO_MEMORY;
        }
    return 0;
}

void kv_destroy(struct kv *kv)
{
    for (uint32_t g = 0; g < kv->group_count; g++) {
        struct kv_group *group = &kv->group[g];
        free(group->slab);
        free(group->bucket);
        free(group->bucket_map);
        free(group->next);
        free(group->references);
        free(group->kept);
        free(group->touched);
    }
    *kv = (struct kv){.group_count = 0};
}

/* ---- slabs by how many of their blocks are in use -------------------------------------------- */

static void bucket_insert(struct kv_group *group, uint32_t slab)
{
    struct kv_slab *entry = &group->slab[slab];
    uint32_t *first = &group->bucket[entry->used];
    entry->prev = KV_NONE;
    entry->next = *first;
    if (*first != KV_NONE)
        group->slab[*first].prev = slab;
    *first = slab;
    group->bucket_map[entry->used / 64] |= UINT64_C(1) << (entry->used % 64);
}

static void bucket_remove(struct kv_group *group, uint32_t slab)
{
    struct kv_slab *entry = &group->slab[slab];
    if (entry->next != KV_NONE)
        group->slab[entry->next].prev = entry->prev;
    if (entry->prev != KV_NONE)
        group->slab[entry->prev].next = entry->next;
    else
        group->bucket[entry->used] = entry->next;
    if (group->bucket[entry->used] == KV_NONE)
        group->bucket_map[entry->used / 64] &= ~(UINT64_C(1) << (entry->used % 64));
}

/* Closed slabs are in no bucket, so that nothing is taken from them. */
static void slab_set_used(struct kv_group *group, uint32_t slab, uint32_t used)
{
    struct kv_slab *entry = &group->slab[slab];
    if (!entry->closed)
        bucket_remove(group, slab);
    entry->used = used;
    if (!entry->closed)
        bucket_insert(group, slab);
}

/* The fullest bucket that still has a free block. */
static uint32_t fullest_slab(const struct kv_group *group)
{
    for (uint32_t word = map_words(group); word-- > 0;) {
        uint64_t map = group->bucket_map[word];
        if (word == group->slab_blocks / 64)
            map &= (UINT64_C(1) << (group->slab_blocks % 64)) - 1; /* not the full ones */
        if (map != 0)
            return group->bucket[word * 64 + 63 - (uint32_t)__builtin_clzll(map)];
    }
    return KV_NONE;
}

uint32_t kv_slab_empty(const struct kv *kv, uint32_t group)
{
    return kv->group[group].bucket[0];
}

uint32_t kv_slab_sparsest(const struct kv *kv, uint32_t group)
{
    const struct kv_group *of = &kv->group[group];
    for (uint32_t used = 1; used < of->slab_blocks; used++)
        if (of->bucket[used] != KV_NONE)
            return of->bucket[used];
    return KV_NONE;
}

void kv_slab_add(struct kv *kv, uint32_t group, uint32_t slab)
{
    struct kv_group *of = &kv->group[group];
    struct kv_slab *entry = &of->slab[slab];
    uint32_t first = slab * of->slab_blocks;
    assert(slab < of->slabs_max && !entry->exists);
    *entry = (struct kv_slab){.exists = true, .free_first = first};
    for (uint32_t i = 0; i < of->slab_blocks; i++)
        of->next[first + i] = i + 1 < of->slab_blocks ? first + i + 1 : KV_NONE;
    bucket_insert(of, slab);
    of->slabs++;
    of->free += of->slab_blocks;
}

void kv_slab_remove(struct kv *kv, uint32_t group, uint32_t slab)
{
    struct kv_group *of = &kv->group[group];
    assert(of->slab[slab].exists && of->slab[slab].used == 0);
    kv_slab_open(kv, group, slab);
    bucket_remove(of, slab);
    of->slab[slab].exists = false;
    of->slabs--;
    of->free -= of->slab_blocks;
}

void kv_slab_close(struct kv *kv, uint32_t group, uint32_t slab)
{
    struct kv_group *of = &kv->group[group];
    struct kv_slab *entry = &of->slab[slab];
    assert(entry->exists && !entry->closed);
    bucket_remove(of, slab);
    entry->closed = true;
    of->free -= of->slab_blocks - entry->used;
}

void kv_slab_open(struct kv *kv, uint32_t group, uint32_t slab)
{
    struct kv_group *of = &kv->group[group];
    struct kv_slab *entry = &of->slab[slab];
    assert(entry->exists);
    if (!entry->closed)
        return;
    entry->closed = false;
    bucket_insert(of, slab);
    of->free += of->slab_blocks - entry->used;
}

/* ---- blocks -----------------------------------------------------------------------------------
 */

uint32_t kv_take(struct kv *kv, uint32_t group)
{
    struct kv_group *of = &kv->group[group];
    uint32_t slab = fullest_slab(of);
    if (slab == KV_NONE)
        return KV_NONE;
    struct kv_slab *entry = &of->slab[slab];
    uint32_t block = entry->free_first;
    entry->free_first = of->next[block];
    slab_set_used(of, slab, entry->used + 1);
    assert(of->references[block] == 0);
    of->references[block] = 1;
    of->used++;
    of->free--;
    return block;
}

static void block_free(struct kv_group *group, uint32_t block)
{
    uint32_t slab = block / group->slab_blocks;
    struct kv_slab *entry = &group->slab[slab];
    assert(entry->exists && entry->used > 0 && group->references[block] == 0);
    group->next[block] = entry->free_first;
    entry->free_first = block;
    slab_set_used(group, slab, entry->used - 1);
    group->used--;
    if (!entry->closed)
        group->free++;
}

static void retire(struct kv *kv, struct kv_group *group, uint32_t block)
{
    uint64_t step = group->touched[block];
    assert(step - kv->completed < KV_STEPS);
    uint32_t *first = &group->retired_first[step % KV_STEPS];
    group->next[block] = *first;
    *first = block;
    group->retired++;
}

/* Those of slabs that are being emptied stay where they are. */
static uint32_t *retired_open(struct kv_group *group, uint64_t step)
{
    uint32_t *at = &group->retired_first[step % KV_STEPS];
    while (*at != KV_NONE && group->slab[*at / group->slab_blocks].closed)
        at = &group->next[*at];
    return at;
}

uint32_t kv_take_retired(struct kv *kv, uint32_t group)
{
    struct kv_group *of = &kv->group[group];
    for (uint64_t step = kv->completed + 1; of->retired > 0 && step < kv->completed + KV_STEPS;
         step++) {
        uint32_t *at = retired_open(of, step), block = *at;
        if (block == KV_NONE)
            continue;
        *at = of->next[block];
        of->retired--;
        of->references[block] = 1;
        return block;
    }
    return KV_NONE;
}

/* One reference more, or less, of a block that has so many then. */
static void count_alone(struct kv_group *group, uint32_t block, int change)
{
    if (!group->kept[block])
        return;
    group->alone += change < 0 && group->references[block] == 1;
    group->alone -= change > 0 && group->references[block] == 2;
}

void kv_share(struct kv *kv, uint32_t group, uint32_t block)
{
    uint16_t *references = &kv->group[group].references[block];
    assert(*references > 0 && *references < UINT16_MAX);
    ++*references;
    count_alone(&kv->group[group], block, 1);
}

void kv_keep(struct kv *kv, uint32_t group, uint32_t block)
{
    assert(!kv->group[group].kept[block]);
    kv_share(kv, group, block);
    kv->group[group].kept[block] = 1;
}

void kv_put_back(struct kv *kv, uint32_t group, uint32_t block)
{
    struct kv_group *of = &kv->group[group];
    assert(of->references[block] > 0);
    if (--of->references[block] > 0)
        count_alone(of, block, -1);
    else if (of->touched[block] > kv->completed) /* it was taken before it was free */
        retire(kv, of, block);
    else
        block_free(of, block);
}

void kv_move(struct kv *kv, uint32_t group, uint32_t from, uint32_t to)
{
    struct kv_group *of = &kv->group[group];
    assert(of->references[from] > 0 && of->references[to] == 1);
    of->alone -= of->kept[from] && of->references[from] == 1;
    of->references[to] = (uint16_t)(of->references[from] + 1);
    of->references[from] = 1;
    of->kept[to] = of->kept[from];
    of->kept[from] = 0;
}

void kv_move_back(struct kv *kv, uint32_t group, uint32_t from, uint32_t to)
{
    struct kv_group *of = &kv->group[group];
    uint16_t holders = (uint16_t)(of->references[to] - 1);
    of->kept[from] = of->kept[to];
    of->kept[to] = 0;
    of->references[to] = 1;
    kv_put_back(kv, group, to);
    if (holders == 0) { /* the cache has given it up meanwhile */
        kv_put_back(kv, group, from);
        return;
    }
    of->references[from] = holders;
    of->alone += of->kept[from] && holders == 1;
}

void kv_retire(struct kv *kv, uint32_t group, uint32_t block, uint64_t step)
{
    struct kv_group *of = &kv->group[group];
    assert(of->references[block] > 0);
    if (step > of->touched[block])
        of->touched[block] = step;
    if (--of->references[block] > 0) {
        count_alone(of, block, -1);
        return;
    }
    if (of->touched[block] <= kv->completed)
        block_free(of, block);
    else
        retire(kv, of, block);
}

void kv_moved(struct kv *kv, uint32_t group, uint32_t from, uint32_t to, uint64_t step)
{
    kv_retire(kv, group, to, step);
    kv_retire(kv, group, from, step);
}

void kv_keep_end(struct kv *kv, uint32_t group, uint32_t block)
{
    struct kv_group *of = &kv->group[group];
    assert(of->kept[block]);
    of->alone -= of->references[block] == 1;
    of->kept[block] = 0;
    kv_retire(kv, group, block, 0);
}

void kv_completed(struct kv *kv, uint64_t step)
{
    assert(step == kv->completed + 1);
    kv->completed = step;
    for (uint32_t g = 0; g < kv->group_count; g++) {
        struct kv_group *group = &kv->group[g];
        uint32_t block = group->retired_first[step % KV_STEPS];
        group->retired_first[step % KV_STEPS] = KV_NONE;
        while (block != KV_NONE) {
            uint32_t next = group->next[block];
            block_free(group, block);
            group->retired--;
            block = next;
        }
    }
}

/* ---- sequences --------------------------------------------------------------------------------
 */

static uint32_t blocks_for(uint32_t block_tokens, uint64_t positions)
{
    return (uint32_t)((positions + block_tokens - 1) / block_tokens);
}

/* A window's positions and a chunk's lie anywhere in their blocks: one more than they fill. */
static uint32_t need(uint32_t block_tokens, uint32_t window, uint32_t length, uint32_t chunk)
{
    uint32_t all = blocks_for(block_tokens, length);
    if (window == 0)
        return all;
    uint32_t seen = blocks_for(block_tokens, (uint64_t)window + chunk) + 1;
    return seen < all ? seen : all;
}

uint32_t kv_first_seen(const struct kv *kv, uint32_t group, uint32_t length)
{
    uint32_t window = kv->group[group].window;
    return window == 0 || length < window ? 0 : (length - window + 1) / kv->block_tokens;
}

uint32_t kv_need(const struct kv *kv, uint32_t group, uint32_t length, uint32_t chunk)
{
    return need(kv->block_tokens, kv->group[group].window, length, chunk);
}

uint64_t kv_length_max(const struct gpu_model *model, const struct gpu_limits *limits)
{
    uint64_t length = limits->context_max;
    for (uint32_t g = 0; g < model->group_count; g++) {
        const struct gpu_group *group = &model->groups[g];
        uint64_t blocks = (uint64_t)group->slab_blocks * group->slabs_max;
        /* A window that fits holds for any length; the chunk may be made smaller. */
        if (group->window != 0 &&
            need(model->block_tokens, group->window, limits->context_max, 1) <= blocks)
            continue;
        if (blocks * model->block_tokens < length)
            length = blocks * model->block_tokens;
    }
    return length;
}

void kv_table_drop(struct kv *kv, struct kv_table *table, uint32_t position, uint64_t step)
{
    for (uint32_t g = 0; g < kv->group_count; g++) {
        struct kv_run *run = &table->group[g];
        uint32_t window = kv->group[g].window;
        if (window == 0)
            continue;
        while (run->first < run->end &&
               (uint64_t)(run->first + 1) * kv->block_tokens + window - 1 <= position)
            kv_retire(kv, g, run->blocks[run->first++], step);
    }
}

void kv_table_clear(struct kv *kv, struct kv_table *table, uint64_t step)
{
    for (uint32_t g = 0; g < kv->group_count; g++) {
        struct kv_run *run = &table->group[g];
        while (run->first < run->end)
            kv_retire(kv, g, run->blocks[run->first++], step);
        run->first = run->end = 0;
    }
}
