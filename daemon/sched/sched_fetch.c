/* What a sequence finds in the host tier comes back before it starts: it is passed over while it is
 * copied, and then finds it in the prefix cache. */
#include "daemon/sched/sched_inner.h"

#define RATE_WEIGHT 0.25     /* of the newest measurement */
#define FORGET_FACTOR 0.9375 /* of the measured time, each time that it is too long */

static const struct prefix_key *key_of(const struct seq *seq, uint32_t index)
{
    struct cache_names names = {
        .prompt = seq->keys, .out = seq->out_keys, .prompt_count = seq->key_count};
    return cache_name_of(&names, index);
}

/* Whether a block of the sequence will be there in a group, here or once it is fetched. */
static bool will_have(struct sched *sched, const struct seq *seq, uint32_t g, uint32_t index)
{
    uint32_t node = cache_find(&sched->cache, key_of(seq, index));
    if (node != CACHE_NONE && cache_block(&sched->cache, node, g) != KV_NONE)
        return true;
    uint32_t tier = tier_find(&sched->tier, key_of(seq, index));
    return tier != TIER_NONE && tier_place(&sched->tier, tier, g) != TIER_NONE;
}

/* Blocks from `hit` on that one call can bring, so far that all is there then that the position
 * behind them sees. What comes before `hit` was found, windows and all. */
static uint32_t run_of(struct sched *sched, const struct seq *seq, uint32_t hit)
{
    uint32_t lacks[GPU_GROUPS_MAX] = {0}; /* of each group, past the last one that will lack */
    uint32_t room = sched->copies_max / sched->kv.group_count, run = 0;
    uint32_t end = sched_min(sched_cache_most(sched, seq), hit + room);
    for (uint32_t i = hit; i < end; i++) {
        bool whole = true;
        if (tier_find(&sched->tier, key_of(seq, i)) == TIER_NONE)
            break;
        for (uint32_t g = 0; g < sched->kv.group_count; g++) {
            if (!will_have(sched, seq, g, i))
                lacks[g] = i + 1;
            whole =
                whole && lacks[g] <= kv_first_seen(&sched->kv, g, (i + 1) * sched->kv.block_tokens);
        }
        if (whole)
            run = i + 1 - hit;
    }
    return run;
}

#define COPY_SHARE 8.0 /* of a computed block's time, that a copied one takes while that is unknown */

/* The part of a block's time that is spared where it is copied. */
static double spared(const struct sched *sched)
{
    uint64_t token_ns = cost_token_ns(&sched->cost, sched->limits.tokens_max);
    double compute_us = (double)sched->kv.block_tokens * (double)token_ns / 1000;
    if (token_ns == 0 || sched->copy_us == 0)
        return 1 - 1 / COPY_SHARE;
    return sched->copy_us < compute_us ? 1 - sched->copy_us / compute_us : 0;
}

uint32_t sched_fetch_expect(struct sched *sched, struct seq *seq, uint32_t hit)
{
    uint32_t there = hit, end = sched_cache_most(sched, seq) + 1;
    if (sched->tier.node_count == 0 || !seq_finds(seq) || end <= hit)
        return 0;
    while (end - there > 1) { /* as hints do: a block goes before the one that it stands behind */
        uint32_t middle = there + (end - there) / 2;
        if (tier_find(&sched->tier, key_of(seq, middle - 1)) != TIER_NONE)
            there = middle;
        else
            end = middle;
    }
    return (uint32_t)((there - hit) * sched->kv.block_tokens * spared(sched));
}

/* By what copies and steps took so far; unknown: to be seen. What is not tried for long is tried
 * again, since one late turn may have made the measured time. */
static bool pays(struct sched *sched, uint32_t blocks)
{
    uint64_t token_ns = cost_token_ns(&sched->cost, sched->limits.tokens_max);
    double compute_us = (double)blocks * sched->kv.block_tokens * (double)token_ns / 1000;
    bool good = token_ns == 0 || sched->copy_us == 0 || blocks * sched->copy_us < compute_us;
    if (!good)
        sched->copy_us *= FORGET_FACTOR;
    return good;
}

/* A node with blocks to copy to. False: there is no memory. */
static bool read_in(struct sched *sched, struct sched_copies *copies, const struct seq *seq,
                    uint32_t index, uint32_t end, time_us now_us)
{
    uint32_t tier = tier_find(&sched->tier, key_of(seq, index)), first = copies->plan.count;
    uint32_t node = cache_make(&sched->cache, index);
    bool good = node != CACHE_NONE;
    for (uint32_t g = 0; good && g < sched->kv.group_count; g++) {
        uint32_t place = tier_place(&sched->tier, tier, g), block;
        if (place == TIER_NONE ||
            index < kv_first_seen(&sched->kv, g, end * sched->kv.block_tokens))
            continue;
        good = (block = sched_take_block(sched, g, now_us)) != KV_NONE;
        if (!good)
            break;
        cache_keep(&sched->cache, node, g, block);
        copies->copies[copies->plan.count++] =
            (struct gpu_copy){.group = g, .block = block, .place = place};
    }
    if (good) {
        tier_read(&sched->tier, tier);
        copies->copied[copies->count++] =
            (struct sched_copied){.tier = tier, .node = node, .key = *key_of(seq, index)};
        return true;
    }
    if (node != CACHE_NONE)
        cache_drop(&sched->cache, node);
    while (copies->plan.count > first) {
        const struct gpu_copy *copy = &copies->copies[--copies->plan.count];
        kv_put_back(&sched->kv, copy->group, copy->block);
    }
    return false;
}

static bool blocks_come(const struct sched *sched)
{
    bool come = false;
    for (uint32_t g = 0; g < sched->kv.group_count; g++)
        come = come || sched->kv.group[g].retired > 0;
    return come;
}

void sched_fetch_plan(struct sched *sched, struct sched_copies *copies, time_us now_us)
{
    const uint64_t promised[GPU_GROUPS_MAX] = {0};
    if (sched->tier.node_count > 0)
        sched_make_places(sched, now_us); /* else it would start at once, and compute it all */
    struct seq *seq = sched->tier.node_count > 0 ? sched_share_next(sched) : NULL;
    if (seq == NULL || seq->cache.fetched || !seq_finds(seq) || sched->slots_free_count == 0 ||
        !sched_can_start(sched, seq, promised, true, now_us))
        return;
    uint32_t hit = sched_cache_hit(sched, seq), run = run_of(sched, seq, hit);
    if (run == 0 || hit < seq->cache.fetch_end || !pays(sched, run)) {
        seq->cache.fetched = true;
        return;
    }
    if (!sched_can_start(sched, seq, promised, false, now_us))
        return; /* copies do not wait for steps in flight */
    copies->behind = seq->cache.hit_node;
    if (copies->behind != CACHE_NONE)
        cache_pin(&sched->cache, copies->behind, now_us);
    for (uint32_t i = 0; i < run; i++)
        if (!read_in(sched, copies, seq, hit + i, hit + run, now_us))
            break;
    /* No memory: with what there is then, but for blocks that steps in flight will have left. */
    seq->cache.fetched = copies->count < run && !blocks_come(sched);
    if (copies->count > 0) {
        seq->cache.fetching = true;
        seq->cache.fetch_end = hit + copies->count;
        copies->seq = seq;
    } else if (copies->behind != CACHE_NONE) {
        cache_unpin(&sched->cache, copies->behind, now_us);
    }
}

/* What was copied is found from now on, behind the node that was found; or is dropped, as is what
 * stands behind a block that turned out to be none. */
static void name_all(struct sched *sched, struct sched_copies *copies, bool good)
{
    uint32_t parent = copies->behind;
    for (uint32_t i = 0; i < copies->count; i++) {
        const struct sched_copied *copied = &copies->copied[i];
        good = good && !sched->tier.nodes[copied->tier].spoiled;
        if (good)
            parent = cache_name(&sched->cache, copied->node, parent, &copied->key, sched->now_us);
        else
            cache_drop(&sched->cache, copied->node);
    }
}

/* From when those before them had come: a few behind many would seem slow, and be computed. */
static void measure(struct sched *sched, const struct sched_copies *copies)
{
    bool alone = copies->submitted_us > sched->fetched_us;
    time_us from = alone ? copies->submitted_us : sched->fetched_us;
    double us = (double)(sched->now_us - from) / copies->count;
    bool first = sched->copy_us == 0;
    sched->copy_us = first ? us : sched->copy_us + RATE_WEIGHT * (us - sched->copy_us);
}

void sched_fetch_ended(struct sched *sched, struct sched_copies *copies, bool good)
{
    name_all(sched, copies, good);
    if (good)
        measure(sched, copies);
    sched->fetched_us = sched->now_us;
    for (uint32_t i = 0; i < copies->plan.count; i++)
        kv_retire(&sched->kv, copies->copies[i].group, copies->copies[i].block, 0);
    for (uint32_t i = copies->count; i-- > 0;) { /* so that chains go tail first */
        tier_touch(&sched->tier, copies->copied[i].tier);
        tier_read_ended(&sched->tier, copies->copied[i].tier);
    }
    if (copies->behind != CACHE_NONE)
        cache_unpin(&sched->cache, copies->behind, sched->now_us);
    if (copies->seq != NULL)
        copies->seq->cache.fetching = false;
    copies->seq = NULL;
}

bool sched_fetch_may(const struct sched *sched, const struct seq *seq)
{
    return sched->tier.node_count > 0 && seq_finds(seq) && !seq->cache.fetched;
}

bool sched_fetch_awaited(struct sched *sched, struct seq *seq)
{
    if (!sched_fetch_may(sched, seq))
        return false;
    uint32_t hit = sched_cache_hit(sched, seq);
    return hit >= seq->cache.fetch_end && hit < sched_cache_most(sched, seq) &&
           tier_find(&sched->tier, key_of(seq, hit)) != TIER_NONE;
}

bool sched_fetch_comes(struct sched *sched, struct seq *seq)
{
    const enum gpu_way way = GPU_FROM_HOST;
    uint64_t last = seq_finds(seq) ? sched->copies_last[way] : 0;
    for (uint64_t i = sched->copies_done[way] + 1; i <= last; i++) {
        const struct sched_copies *copies = &sched->copies[way][i % GPU_COPIES_MAX];
        uint32_t hit = sched_cache_hit(sched, seq);
        if (hit < sched_cache_most(sched, seq) &&
            prefix_key_same(&copies->copied[0].key, key_of(seq, hit)))
            return true;
    }
    return false;
}

void sched_fetch_leave(struct sched *sched, const struct seq *seq)
{
    for (uint32_t i = 0; seq->cache.fetching && i < GPU_COPIES_MAX; i++)
        if (sched->copies[GPU_FROM_HOST][i].seq == seq)
            sched->copies[GPU_FROM_HOST][i].seq = NULL;
}
