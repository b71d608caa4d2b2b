/* Sequences and the prefix cache (cache.h): who begins with what was computed before, what of a
 * sequence is kept, who waits for whom.
 *
 * Found. A sequence that starts looks for the names of its blocks, as far as its prompt leaves a
 * token to compute, and begins behind what is there, with a reference to each block. Jobs that give
 * something for every position look for nothing, and leave their blocks all the same.
 *
 * Kept. When a step is submitted, nodes are made of the blocks that it completes; once its results
 * are here the tokens are known, and the nodes are named. So nobody finds a block before its step
 * has ended, and a window's blocks are held before the sequence drops them.
 *
 * Waited for. Who reads a prompt is on `readers` as long as whole blocks of it are to come. A
 * sequence that waits and has the next of those in common with an older one there is passed over
 * until that has computed what both need. It waits for older ones alone, each of which goes on or
 * leaves the list, so that nobody waits for ever; and whoever leaves it lets those that waited go
 * on.
 *
 * Given up. When blocks run short, when a step was refused memory, and cache_idle_release_us after
 * their last use. */
#include <assert.h>

#include "daemon/sched/sched_inner.h"

#define EXPIRE_MOST 4096u  /* nodes given up in one turn */
#define EXPIRE_US 1000000u /* those that are due within a second, or ... */
#define EXPIRE_SHARE 16u   /* ... this part of the time that they stay, go with the first */

static struct cache_names names_of(const struct seq *seq)
{
    return (struct cache_names){
        .prompt = seq->keys, .out = seq->out_keys, .prompt_count = seq->key_count};
}

/* Blocks of its prompt that it computes whole. */
static uint32_t to_read(const struct sched *sched, const struct seq *seq)
{
    return sched_min(seq->key_count, sched_final_len(seq) / sched->kv.block_tokens);
}

void sched_cache_join(struct seq *seq)
{
    seq->cache = (struct seq_cache){.hit_node = CACHE_NONE,
                                    .node = CACHE_NONE,
                                    .made_first = CACHE_NONE,
                                    .made_last = CACHE_NONE,
                                    .names = seq->key_count};
    seq->cached = 0;
}

/* ---- what is there -----------------------------------------------------------------------------
 */

/* Blocks that it may begin with: a token is left to compute, and one plan has to name them all,
 * beside what the decode rows take. */
uint32_t sched_cache_most(const struct sched *sched, const struct seq *seq)
{
    const struct gpu_limits *limits = &sched->limits;
    uint32_t blocks = (seq->prefill_len - 1) / sched->kv.block_tokens;
    uint32_t appends = limits->appends_max / sched->kv.group_count;
    blocks = sched_min(blocks, seq->cache.names);
    blocks = sched_min(blocks, appends - sched_min(appends, sched->slots_max + 1));
    if (sched_counts_tokens(seq))
        blocks = sched_min(blocks, sched_share_ids(sched) / sched->kv.block_tokens);
    if (seq->siblings != NULL)
        blocks = sched_min(blocks, seq->siblings->len / sched->kv.block_tokens);
    return blocks;
}

uint32_t sched_cache_hit(struct sched *sched, struct seq *seq)
{
    struct seq_cache *cache = &seq->cache;
    if (!seq_finds(seq) || sched->cache.node_max == 0)
        return 0;
    if (cache->hit_version != sched->cache.version + 1) {
        struct cache_names names = names_of(seq);
        cache->hit =
            cache_hit(&sched->cache, &names, sched_cache_most(sched, seq), &cache->hit_node);
        cache->hit_version = sched->cache.version + 1;
    }
    return cache->hit;
}

uint32_t sched_cache_saves(struct sched *sched, struct seq *seq, uint32_t g)
{
    uint32_t hit = sched_cache_hit(sched, seq);
    if (hit == 0 || sched->kv.group[g].window != 0)
        return 0; /* of a window's blocks it takes as many as it would without */
    struct cache_names names = names_of(seq);
    return cache_in_use(&sched->cache, &names, hit);
}

/* Blocks from the first on that both have. */
static uint32_t in_common(const struct seq *a, const struct seq *b, uint32_t count)
{
    uint32_t same = 0, other = sched_min(count, sched_min(a->key_count, b->key_count)) + 1;
    while (other - same > 1) {
        uint32_t middle = same + (other - same) / 2;
        if (prefix_key_same(&a->keys[middle - 1], &b->keys[middle - 1]))
            same = middle;
        else
            other = middle;
    }
    return same;
}

void sched_cache_expect(struct sched *sched, struct seq *seq)
{
    uint32_t blocks = sched_cache_hit(sched, seq);
    if (!seq_finds(seq) || sched->cache.node_max == 0)
        return;
    list_each(link, &sched->readers)
    {
        const struct seq *reader = container_of(link, struct seq, cache.read_link);
        uint32_t same =
            in_common(reader, seq, sched_min(to_read(sched, reader), sched_cache_most(sched, seq)));
        blocks = blocks > same ? blocks : same;
    }
    if (seq->run_link.prev != &sched->waiting) {
        const struct seq *before = container_of(seq->run_link.prev, struct seq, run_link);
        uint32_t same = before->caches ? in_common(before, seq, sched_cache_most(sched, seq)) : 0;
        blocks = blocks > same ? blocks : same;
    }
    seq->cache.expected =
        blocks * sched->kv.block_tokens + sched_fetch_expect(sched, seq, blocks);
}

/* ---- who reads, and who waits for that ---------------------------------------------------------
 */

static void stop_reading(struct sched *sched, struct seq *seq)
{
    if (!seq->cache.reading)
        return;
    list_remove(&seq->cache.read_link);
    seq->cache.reading = false;
    list_each(link, &sched->waiting)
    {
        struct seq *other = container_of(link, struct seq, run_link);
        if (other->cache.waits_for == seq)
            other->cache.waits_for = NULL;
    }
}

bool sched_cache_waits(struct sched *sched, struct seq *seq)
{
    struct seq_cache *cache = &seq->cache;
    if (cache->fetching || sched_fetch_comes(sched, seq))
        return true;
    if (cache->waits_for != NULL && cache->waits_for->cache.done < cache->waits_blocks)
        return true;
    cache->waits_for = NULL;
    if (!seq_finds(seq) || list_empty(&sched->readers))
        return false;
    uint32_t hit = sched_cache_hit(sched, seq);
    uint32_t limit = sched_min(sched_cache_most(sched, seq), seq->key_count);
    list_each(link, &sched->readers)
    {
        const struct seq *reader = container_of(link, struct seq, cache.read_link);
        uint32_t reads = sched_min(to_read(sched, reader), limit);
        if (hit >= reads || !sched_goes_before(reader, seq) ||
            !prefix_key_same(&reader->keys[hit], &seq->keys[hit]))
            continue;
        uint32_t same = in_common(reader, seq, reads);
        if (reader->cache.done >= same)
            continue;
        cache->waits_for = reader;
        cache->waits_blocks = same;
        sched->stats->cache_waits_total++;
        return true;
    }
    return false;
}

/* ---- a start -----------------------------------------------------------------------------------
 */

static void take_block(struct sched *sched, struct sched_step *step, struct seq *seq, uint32_t g,
                       uint32_t index)
{
    struct kv_run *run = &sched_table(sched, seq)->group[g];
    kv_share(&sched->kv, g, run->blocks[index]);
    step->appends[step->plan.append_count++] = (struct gpu_append){
        .slot = seq->slot, .group = g, .index = index, .block = run->blocks[index]};
}

void sched_begin_behind(struct sched *sched, struct sched_step *step, struct seq *seq,
                        uint32_t position)
{
    struct gpu_open *open = &step->opens[step->plan.open_count - 1];
    const struct kv_table *table = sched_table(sched, seq);
    for (uint32_t g = 0; g < sched->kv.group_count; g++)
        for (uint32_t i = table->group[g].first; i < table->group[g].end; i++)
            take_block(sched, step, seq, g, i);
    seq->num_computed = open->first = position;
    open->seen_first = step->plan.id_count;
    for (uint32_t i = 0; i < position && sched_counts_tokens(seq); i++)
        step->ids[step->plan.id_count++] = sched_token_at(seq, i);
}

/* The blocks that were found, from the last one on up to the parents. */
static void fill_table(struct sched *sched, struct seq *seq, uint32_t blocks)
{
    struct kv_table *table = sched_table(sched, seq);
    uint32_t node = seq->cache.hit_node;
    for (uint32_t g = 0; g < sched->kv.group_count; g++) {
        table->group[g].end = blocks;
        table->group[g].first = kv_first_seen(&sched->kv, g, blocks * sched->kv.block_tokens);
    }
    for (uint32_t i = blocks; i-- > 0; node = sched->cache.nodes[node].parent) {
        assert(sched->cache.nodes[node].depth == i);
        for (uint32_t g = 0; g < sched->kv.group_count; g++) {
            if (i < table->group[g].first)
                continue;
            table->group[g].blocks[i] = cache_block(&sched->cache, node, g);
            assert(table->group[g].blocks[i] != KV_NONE);
            cache_touch(&sched->cache, node, g);
        }
    }
}

void sched_cache_begin(struct sched *sched, struct sched_step *step, struct seq *seq)
{
    struct seq_cache *cache = &seq->cache;
    uint32_t hit = sched_cache_hit(sched, seq);
    cache->found = hit;
    if (hit == 0)
        return;
    fill_table(sched, seq, hit);
    sched_begin_behind(sched, step, seq, hit * sched->kv.block_tokens);
    cache->node = cache->hit_node;
    cache_pin(&sched->cache, cache->node, sched->now_us);
}

void sched_cache_started(struct sched *sched, struct seq *seq)
{
    struct seq_cache *cache = &seq->cache;
    assert(cache->made_first == CACHE_NONE && !cache->reading);
    cache->waits_for = NULL;
    cache->named = cache->made = cache->done = seq->num_computed / sched->kv.block_tokens;
    cache->stopped = !seq->caches || sched->cache.node_max == 0;
    cache->reading = !cache->stopped && cache->done < to_read(sched, seq);
    if (cache->reading)
        list_append(&sched->readers, &cache->read_link);
}

void sched_cache_released(struct sched *sched, struct seq *seq)
{
    if (seq->cache.node != CACHE_NONE)
        cache_unpin(&sched->cache, seq->cache.node, sched->now_us);
    seq->cache.node = CACHE_NONE;
}

void sched_cache_undo(struct sched *sched, struct seq *seq)
{
    sched_cache_released(sched, seq);
    stop_reading(sched, seq);
    seq->cache.found = 0;
}

/* ---- what a sequence leaves --------------------------------------------------------------------
 */

static void make_node(struct sched *sched, struct seq *seq)
{
    struct seq_cache *cache = &seq->cache;
    const struct kv_table *table = sched_table(sched, seq);
    uint32_t node = cache_make(&sched->cache, cache->made);
    if (node == CACHE_NONE) {
        cache->stopped = true;
        return;
    }
    for (uint32_t g = 0; g < sched->kv.group_count; g++) {
        const struct kv_run *run = &table->group[g];
        if (cache->made >= run->first && cache->made < run->end)
            cache_keep(&sched->cache, node, g, run->blocks[cache->made]);
    }
    if (cache->made_first == CACHE_NONE)
        cache->made_first = node;
    else
        sched->cache.nodes[cache->made_last].next = node;
    cache->made_last = node;
    cache->made++;
}

void sched_cache_computed(struct sched *sched, struct seq *seq)
{
    uint32_t blocks = seq->num_computed / sched->kv.block_tokens;
    while (!seq->cache.stopped && seq->cache.made < blocks)
        make_node(sched, seq);
}

static uint32_t take_made(struct sched *sched, struct seq_cache *cache)
{
    uint32_t node = cache->made_first;
    cache->made_first = sched->cache.nodes[node].next;
    return node;
}

static void drop_made(struct sched *sched, struct seq_cache *cache)
{
    while (cache->made_first != CACHE_NONE)
        cache_drop(&sched->cache, take_made(sched, cache));
    cache->stopped = true;
}

static uint32_t told_len(const struct seq *seq)
{
    return seq->prompt_len + atomic_load_explicit(&seq->out_count, memory_order_relaxed);
}

/* Its names up to this block are known, as its tokens are. */
static void reach_names(struct sched *sched, struct seq *seq, uint32_t blocks)
{
    const uint32_t size = sched->kv.block_tokens;
    struct cache_names names = names_of(seq);
    assert(blocks <= told_len(seq) / size);
    for (; seq->cache.names < blocks; seq->cache.names++) {
        uint32_t index = seq->cache.names, from = index * size;
        uint32_t prompt = from < seq->prompt_len ? seq->prompt_len - from : 0;
        struct prefix_key before = index > 0 ? *cache_name_of(&names, index - 1) : seq->key_root;
        assert(index - seq->key_count < seq->out_key_count && prompt < size);
        seq->out_keys[index - seq->key_count] =
            prefix_key_next(before, seq->prompt + from, prompt,
                            seq->out_tokens + (from + prompt - seq->prompt_len), size - prompt);
    }
}

/* Whether the node's blocks are those that the sequence computes with. */
static bool is_own(struct sched *sched, const struct seq *seq, uint32_t node, uint32_t index)
{
    const struct kv_table *table = sched_table(sched, seq);
    for (uint32_t g = 0; g < sched->kv.group_count; g++)
        if (sched->kv.group[g].window == 0 &&
            cache_block(&sched->cache, node, g) != table->group[g].blocks[index])
            return false;
    return true;
}

/* It stands on the node that it just named; on none where another has named it before and both
 * compute with blocks of their own: then what follows would keep blocks that it does not use. */
static void stand_on(struct sched *sched, struct seq *seq, uint32_t node, uint32_t index)
{
    if (seq->phase != PHASE_PREFILL && seq->phase != PHASE_DECODE)
        return; /* it has no table any more */
    if (!is_own(sched, seq, node, index)) {
        drop_made(sched, &seq->cache);
        return;
    }
    cache_pin(&sched->cache, node, sched->now_us);
    sched_cache_released(sched, seq);
    seq->cache.node = node;
}

/* Whether it may name a block behind the parent. Who stands on nothing began with pins, whose nodes
 * may have been given up and made again by others, of blocks of theirs. */
static bool may_follow(struct sched *sched, const struct seq *seq, uint32_t parent, uint32_t index)
{
    if (seq->cache.node != CACHE_NONE ||
        (seq->phase != PHASE_PREFILL && seq->phase != PHASE_DECODE))
        return true;
    for (uint32_t node = parent; node != CACHE_NONE; node = sched->cache.nodes[node].parent)
        if (!is_own(sched, seq, node, --index))
            return false;
    return true;
}

static void name_next(struct sched *sched, struct seq *seq)
{
    struct seq_cache *cache = &seq->cache;
    struct cache_names names = names_of(seq);
    uint32_t index = cache->named, parent = CACHE_NONE;
    reach_names(sched, seq, index + 1);
    if (index > 0)
        parent = cache_find(&sched->cache, cache_name_of(&names, index - 1));
    if (index > 0 && (parent == CACHE_NONE || !may_follow(sched, seq, parent, index))) {
        drop_made(sched, cache);
        return;
    }
    cache->named++;
    uint32_t node = cache_name(&sched->cache, take_made(sched, cache), parent,
                               cache_name_of(&names, index), sched->now_us);
    sched_tier_named(sched, node);
    stand_on(sched, seq, node, index);
}

void sched_cache_done(struct sched *sched, struct seq *seq, uint32_t position)
{
    struct seq_cache *cache = &seq->cache;
    uint32_t blocks = position / sched->kv.block_tokens;
    while (cache->made_first != CACHE_NONE && cache->named < blocks)
        name_next(sched, seq);
    if (seq->phase == PHASE_PREEMPTED)
        return; /* it starts anew */
    cache->done = blocks;
    if (cache->reading && cache->done >= to_read(sched, seq))
        stop_reading(sched, seq);
}

void sched_cache_leave(struct sched *sched, struct seq *seq)
{
    drop_made(sched, &seq->cache);
    stop_reading(sched, seq);
    sched_fetch_leave(sched, seq);
}

void sched_cache_preempted(struct sched *sched, struct seq *seq)
{
    stop_reading(sched, seq);
}

void sched_cache_spoiled(struct sched *sched, struct seq *seq)
{
    struct cache_names names = names_of(seq);
    uint32_t node = CACHE_NONE;
    if (seq->caches && seq->cache.named > 0)
        node = cache_find(&sched->cache, cache_name_of(&names, seq->cache.named - 1));
    for (uint32_t i = 0; seq->caches && i < seq->cache.named; i++)
        tier_spoil(&sched->tier, cache_name_of(&names, i));
    sched_cache_released(sched, seq);
    while (node != CACHE_NONE && cache_is_idle(&sched->cache, node)) {
        uint32_t parent = sched->cache.nodes[node].parent;
        cache_drop(&sched->cache, node);
        node = parent;
    }
}

/* ---- what those need who wait ------------------------------------------------------------------
 */

#define PASSES_MOST 8u         /* for one that is given up */
#define MARKS_MOST (1u << 15) /* a quarter of a MiB; a million tokens in blocks of 32 */

int sched_wants_init(struct sched *sched)
{
    uint64_t blocks = (uint64_t)sched->cache.node_max + sched->tier.node_max;
    uint32_t marks = blocks < MARKS_MOST ? (uint32_t)blocks : MARKS_MOST;
    int rc = 0;
    for (uint32_t i = 0; i < SCHED_WAITS && rc == 0 && sched->cache.node_max > 0; i++)
        rc = prefix_wants_init(&sched->wants[i], marks);
    sched->tier.wants = sched->wants;
    sched->tier.want_count = SCHED_WAITS;
    return rc;
}

void sched_want(struct sched *sched, struct seq *seq)
{
    seq->cache.wanted = seq_finds(seq) && prefix_wants_add(&sched->wants[SCHED_WAITS_HERE],
                                                           seq->keys, seq->key_count);
}

void sched_unwant(struct sched *sched, struct seq *seq)
{
    if (seq->cache.wanted)
        prefix_wants_drop(&sched->wants[SCHED_WAITS_HERE], seq->keys, seq->key_count);
    seq->cache.wanted = false;
}

/* Whether it would have to be computed again for somebody who waits. */
static bool is_kept(const struct sched *sched, uint32_t node)
{
    const struct prefix_key *key = &sched->cache.nodes[node].key;
    return prefix_wants_any(sched->wants, SCHED_WAITS, key) && !tier_has(&sched->tier, key);
}

/* In a queue those who used theirs the longest ago come next: of what they wait for the oldest
 * would go shortly before it is used. So all of them lose some, and none loses all. */
bool sched_cache_evict(struct sched *sched, uint32_t group)
{
    struct cache *cache = &sched->cache;
    bool ends = sched->kv.group[group].window == 0; /* what goes is the end of some chain */
    for (uint32_t i = 0; ends && i < PASSES_MOST && cache->heap_count > 1; i++) {
        if (!is_kept(sched, cache->heap[0]))
            break;
        cache_pass(cache, sched->now_us);
    }
    return cache_evict(cache, group);
}

/* ---- what goes back ----------------------------------------------------------------------------
 */

static time_us early_us(const struct sched *sched)
{
    uint64_t share = sched->options.cache_idle_release_us / EXPIRE_SHARE;
    return share < EXPIRE_US ? share : EXPIRE_US;
}

time_us sched_cache_due_us(const struct sched *sched)
{
    time_us oldest;
    if (!cache_oldest_us(&sched->cache, &oldest))
        return SCHED_NEVER;
    return oldest + sched->options.cache_idle_release_us;
}

void sched_cache_expire(struct sched *sched, time_us now_us)
{
    if (now_us < sched_cache_due_us(sched) || sched_tier_is_writing(sched))
        return;
    for (uint32_t i = 0; i < EXPIRE_MOST; i++)
        if (sched_cache_due_us(sched) == SCHED_NEVER ||
            sched_cache_due_us(sched) > now_us + early_us(sched) ||
            !sched_tier_lets_go(sched, sched->cache.heap[0]) || !cache_drop_oldest(&sched->cache))
            return;
}

void sched_cache_give_up(struct sched *sched)
{
    while (cache_drop_oldest(&sched->cache))
        continue;
}
