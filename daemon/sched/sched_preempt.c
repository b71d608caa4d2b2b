/* Who gives its slot and its blocks up, and for whom.
 *
 * For decode rows that lack blocks: the youngest of the lowest priority. For one that the loop sent
 * before its turn: who the loop named. For one of a higher priority that waits and lacks a slot or
 * blocks: those of the lowest priority, of these who stands again the soonest, as many as it takes,
 * and nobody where all of them would not do. Such a one gives way once, so that however many come
 * above it, it goes on; and what users' turns, or the share of lower priorities, gave to somebody
 * is not taken for a priority. While somebody for whom a place was made waits for something else,
 * for copies say, nobody below starts in it. */
#include <assert.h>

#include "daemon/sched/sched_inner.h"

void sched_begin_with(struct seq *seq)
{
    uint32_t answered = atomic_load_explicit(&seq->out_count, memory_order_relaxed);
    if (seq->params.job == JOB_GENERATE)
        seq->prefill_len = seq->prompt_len + answered;
    else if (seq->params.job == JOB_SCORE || seq->params.pooling == POOLING_ALL)
        seq->emit_from = answered;
}

void sched_requeue(struct sched *sched, struct seq *seq)
{
    sched_begin_with(seq);
    seq->num_computed = 0;
    seq->place_made = false;
    sched_wait(sched, seq);
}

static void preempt(struct sched *sched, struct seq *seq)
{
    list_remove(&seq->run_link);
    sched_cache_preempted(sched, seq);
    sched_release_slot(sched, seq);
    seq->kept = false; /* its logits go with the slot, and are computed anew */
    seq->preemptions++;
    sched->stats->preemptions_total++;
    if (seq->in_flight > 0) {
        seq->phase = PHASE_PREEMPTED;
        list_append(&sched->preempted, &seq->run_link);
    } else {
        sched_requeue(sched, seq);
    }
}

/* ---- for blocks, and for who is owed a slot ----------------------------------------------------
 */

static bool gives_way_before(const struct seq *a, const struct seq *b)
{
    if (a->owed != b->owed)
        return b->owed; /* what it was given it keeps */
    if (a->priority != b->priority)
        return a->priority < b->priority;
    return a->gave_way != b->gave_way ? b->gave_way : a->order > b->order;
}

static struct seq *youngest_of_lowest(const struct list *list, struct seq *best)
{
    list_each(link, list)
    {
        struct seq *seq = container_of(link, struct seq, run_link);
        if (best == NULL || gives_way_before(seq, best))
            best = seq;
    }
    return best;
}

bool sched_preempt_youngest(struct sched *sched)
{
    if (sched->slot_count < 2)
        return false;
    preempt(sched, youngest_of_lowest(&sched->decode, youngest_of_lowest(&sched->prefill, NULL)));
    return true;
}

/* Those with a slot that may give it up for `first`; the sink alone, or all of the user's. */
static struct seq *giver(const struct list *list, const struct seq *first, bool sink,
                         struct seq *best)
{
    list_each(link, list)
    {
        struct seq *seq = container_of(link, struct seq, run_link);
        bool meant = sink ? seq->sink == first->way_sink : seq->user_id == first->way_user;
        if (meant && !seq->owed && (best == NULL || gives_way_before(seq, best)))
            best = seq;
    }
    return best;
}

void sched_make_way(struct sched *sched, time_us now_us)
{
    const uint64_t promised[GPU_GROUPS_MAX] = {0};
    struct seq *first = sched_share_next(sched), *seq = NULL;
    if (first == NULL || !first->owed || first->way_made ||
        (sched->slots_free_count > 0 && sched_can_start(sched, first, promised, true, now_us)))
        return;
    first->way_made = true;
    for (int sink = 1; sink >= 0 && !seq; sink--)
        seq = giver(&sched->decode, first, sink, giver(&sched->prefill, first, sink, NULL));
    if (seq)
        preempt(sched, seq);
}

/* ---- for higher priorities ---------------------------------------------------------------------
 */

/* Those before the one that is looked at: they start in the same step, if they can. */
struct ahead {
    uint32_t slots;
    uint64_t blocks[GPU_GROUPS_MAX];
};

static bool yields_to(const struct seq *seq, const struct seq *first)
{
    return seq->priority < first->priority && sched_yields(seq);
}

uint32_t sched_below(const struct sched *sched, const struct seq *seq, uint32_t *ret_yield)
{
    uint32_t below = 0;
    *ret_yield = 0;
    for (uint32_t level = 0; level < sched_level(seq); level++) {
        below += sched->level_slots[level];
        *ret_yield += sched->level_yields[level];
    }
    return below;
}

/* What it takes until it stands again where it does, by what steps and copies took so far; where
 * that is unknown, tokens. Its blocks are copied in their order, so what the tier has of them ends
 * somewhere. */
static double return_us(const struct sched *sched, const struct seq *seq)
{
    struct cache_names names = {
        .prompt = seq->keys, .out = seq->out_keys, .prompt_count = seq->key_count};
    uint64_t token_ns = cost_token_ns(&sched->cost, sched->limits.tokens_max);
    uint32_t there = 0, end = 1;
    if (token_ns == 0)
        return seq->num_computed;
    if (seq_finds(seq) && sched->tier.node_count > 0)
        end += sched_min(seq->cache.named, sched_blocks_for(sched, seq->num_computed));
    while (end - there > 1) {
        uint32_t middle = there + (end - there) / 2;
        if (tier_has(&sched->tier, cache_name_of(&names, middle - 1)))
            there = middle;
        else
            end = middle;
    }
    double block_us = (double)token_ns * sched->kv.block_tokens / 1000;
    double copy_us = sched->copy_us < block_us ? sched->copy_us : block_us;
    return (double)token_ns * seq->num_computed / 1000 - there * (block_us - copy_us);
}

struct victim {
    struct seq *seq;
    double us;
};

static bool is_cheaper(const struct victim *a, const struct victim *b)
{
    if (a->seq->priority != b->seq->priority)
        return a->seq->priority < b->seq->priority;
    return a->us != b->us ? a->us < b->us : a->seq->order > b->seq->order;
}

/* NULL: nobody who has a slot yields to it. */
static struct seq *cheapest(struct sched *sched, const struct seq *first)
{
    struct list *lists[] = {&sched->decode, &sched->prefill};
    struct victim best = {.seq = NULL};
    for (int i = 0; i < 2; i++)
        list_each(link, lists[i])
        {
            struct victim one = {.seq = container_of(link, struct seq, run_link)};
            if (!yields_to(one.seq, first) ||
                (best.seq != NULL && one.seq->priority > best.seq->priority))
                continue;
            one.us = return_us(sched, one.seq);
            if (best.seq == NULL || is_cheaper(&one, &best))
                best = one;
        }
    return best.seq;
}

static void promised_to(const struct sched *sched, const struct ahead *ahead, uint64_t *promised)
{
    for (uint32_t g = 0; g < sched->kv.group_count; g++)
        promised[g] = ahead->blocks[g] + ahead->slots;
    list_each(link, &sched->prefill)
        sched_promise(sched, container_of(link, struct seq, run_link), promised);
}

/* Blocks that it lacks, those not counted that come back when the steps in flight have ended; true
 * when it lacks nothing, a slot neither. */
static bool has_place(struct sched *sched, struct seq *seq, const struct ahead *ahead,
                      uint64_t *lacks, time_us now_us)
{
    uint64_t promised[GPU_GROUPS_MAX];
    bool place = sched->slots_free_count > ahead->slots;
    promised_to(sched, ahead, promised);
    for (uint32_t g = 0; g < sched->kv.group_count; g++) {
        lacks[g] = sched_lacks(sched, seq, g, promised[g], true, now_us);
        place = place && (lacks[g] == 0 || sched->slot_count + ahead->slots == 0);
    }
    return place;
}

/* Blocks of a group that go when the sequence gives way. */
static uint32_t held_alone(const struct sched *sched, const struct seq *seq, uint32_t g)
{
    const struct kv_run *run = &sched->tables[seq->slot].group[g];
    const struct kv_group *group = &sched->kv.group[g];
    uint32_t count = 0;
    for (uint32_t i = run->first; i < run->end; i++)
        count += group->references[run->blocks[i]] == 1 + group->kept[run->blocks[i]];
    return count;
}

/* Whether there would be a place if all gave way who yield to it. */
static bool can_have_place(const struct sched *sched, const struct seq *seq,
                           const struct ahead *ahead, const uint64_t *lacks)
{
    const struct list *lists[] = {&sched->decode, &sched->prefill};
    uint64_t gain[GPU_GROUPS_MAX] = {0};
    uint32_t slots = sched->slots_free_count;
    for (int i = 0; i < 2; i++)
        list_each(link, lists[i])
        {
            const struct seq *one = container_of(link, struct seq, run_link);
            if (!yields_to(one, seq))
                continue;
            slots++;
            for (uint32_t g = 0; g < sched->kv.group_count; g++)
                gain[g] += held_alone(sched, one, g);
        }
    bool place = slots > ahead->slots;
    for (uint32_t g = 0; g < sched->kv.group_count; g++)
        place = place && gain[g] >= lacks[g];
    return place;
}

/* False: it has none, and nobody behind it is looked at. */
static bool make_place(struct sched *sched, struct seq *seq, const struct ahead *ahead,
                       time_us now_us)
{
    uint64_t lacks[GPU_GROUPS_MAX];
    if (has_place(sched, seq, ahead, lacks, now_us))
        return true;
    if (!can_have_place(sched, seq, ahead, lacks))
        return false;
    do {
        struct seq *victim = cheapest(sched, seq);
        if (victim == NULL)
            return false;
        sched->level_yields[sched_level(victim)]--;
        victim->gave_way = true;
        sched->gave_way_count++;
        sched->stats->preemptions_priority_total++;
        preempt(sched, victim);
        seq->place_made = true;
    } while (!has_place(sched, seq, ahead, lacks, now_us));
    return true;
}

static void add_ahead(struct sched *sched, struct seq *seq, struct ahead *ahead)
{
    ahead->slots++;
    for (uint32_t g = 0; g < sched->kv.group_count; g++) {
        uint32_t all = kv_need(&sched->kv, g, seq->prefill_len + 1, sched->limits.tokens_max);
        ahead->blocks[g] += all - sched_min(all, sched_share_blocks(sched, seq, g));
    }
}

void sched_make_places(struct sched *sched, time_us now_us)
{
    struct ahead ahead = {.slots = 0};
    const struct sched_share *share = NULL;
    list_each(link, &sched->waiting)
    {
        struct seq *seq = container_of(link, struct seq, run_link);
        bool result = seq->siblings != NULL && seq->siblings == share && !share->pinned;
        uint32_t yield;
        share = seq->siblings;
        (void)sched_below(sched, seq, &yield);
        if (ahead.slots == sched->limits.opens_max || (!seq->owed && yield == 0))
            return;
        if (result || sched_share_passes(sched, seq)) /* another reads first what it needs */
            continue;
        if (!make_place(sched, seq, &ahead, now_us))
            return;
        add_ahead(sched, seq, &ahead);
    }
}

bool sched_place_is_taken(const struct sched *sched, const struct seq *seq)
{
    list_each(link, &sched->waiting)
    {
        const struct seq *other = container_of(link, struct seq, run_link);
        if (other == seq)
            return false;
        if (other->place_made && other->priority > seq->priority)
            return true;
    }
    return false;
}
