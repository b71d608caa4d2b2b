/* Blocks and slabs of the scheduler: where they come from, and what goes back when there are too
 * many. */
#include <assert.h>

#include "daemon/sched/sched_inner.h"

#define EVICT_MOST 8u /* cached blocks that are given up for one */

/* ---- growth -----------------------------------------------------------------------------------
 */

/* A slab on its way back is the cheapest source of blocks. */
static bool spare_victim(struct sched *sched, uint32_t g)
{
    struct sched_group *group = &sched->group[g];
    if (group->victim == KV_NONE)
        return false;
    kv_slab_open(&sched->kv, g, group->victim);
    group->victim = KV_NONE;
    group->excess_since_us = 0;
    return true;
}

static uint32_t slabs_due(const struct sched *sched, uint32_t g)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < sched->slabs_due_count; i++)
        count += sched->slabs_due[i].group == g;
    return count;
}

/* A plan can tell of so many new slabs; a group that took them all would keep the others, which the
 * same rows need, from growing. */
static bool may_grow(const struct sched *sched, uint32_t g, time_us now_us)
{
    const struct kv_group *group = &sched->kv.group[g];
    return group->slabs < group->slabs_max && now_us >= sched->group[g].grow_after_us &&
           slabs_due(sched, g) < sched->limits.slabs_max / sched->kv.group_count;
}

static bool grow(struct sched *sched, uint32_t g, time_us now_us)
{
    uint32_t slab;
    if (!may_grow(sched, g, now_us))
        return false;
    if (sched->calls.kv_grow(sched->calls.context, g, &slab) < 0) {
        sched->group[g].grow_after_us = now_us + SCHED_RETRY_US;
        sched->stats->kv_refused_total++;
        return false;
    }
    kv_slab_add(&sched->kv, g, slab);
    sched->slabs_due[sched->slabs_due_count++] = (struct gpu_slab){.group = g, .slab = slab};
    sched->stats->kv_grown_total++;
    sched->released = sched->shrunk = false;
    return true;
}

static void shrink(struct sched *sched, uint32_t g, uint32_t slab)
{
    kv_slab_remove(&sched->kv, g, slab);
    /* The device may not have been told of it yet. */
    for (uint32_t i = 0; i < sched->slabs_due_count; i++)
        if (sched->slabs_due[i].group == g && sched->slabs_due[i].slab == slab) {
            sched->slabs_due[i] = sched->slabs_due[--sched->slabs_due_count];
            break;
        }
    sched->calls.kv_shrink(sched->calls.context, g, slab);
    sched->stats->kv_shrunk_total++;
}

/* A block that only the cache holds; the device may have to be done with it first, so a few are
 * given up where the oldest are of use no earlier than those behind them. */
static bool evict(struct sched *sched, uint32_t g)
{
    const struct kv_group *group = &sched->kv.group[g];
    for (uint32_t i = 0; i < EVICT_MOST && group->free == 0; i++)
        if (group->alone == 0 || !sched_cache_evict(sched, g))
            break;
    return group->free > 0;
}

uint32_t sched_take_block(struct sched *sched, uint32_t g, time_us now_us)
{
    uint32_t block = kv_take(&sched->kv, g);
    if (block == KV_NONE && (spare_victim(sched, g) || grow(sched, g, now_us) || evict(sched, g)))
        block = kv_take(&sched->kv, g);
    return block;
}

uint32_t sched_reach(struct sched *sched, struct sched_step *step, struct seq *seq, uint32_t length,
                     time_us now_us)
{
    struct kv_table *table = sched_table(sched, seq);
    uint32_t wanted = sched_blocks_for(sched, length);
    for (;;) {
        /* The group that is behind: when something runs out, all have come equally far. */
        uint32_t behind = 0;
        for (uint32_t g = 1; g < sched->kv.group_count; g++)
            if (table->group[g].end < table->group[behind].end)
                behind = g;
        struct kv_run *run = &table->group[behind];
        if (run->end >= wanted)
            return length;
        uint32_t block = KV_NONE;
        if (step->plan.append_count < sched->limits.appends_max) {
            block = sched_take_block(sched, behind, now_us);
            if (block == KV_NONE)
                block = kv_take_retired(&sched->kv, behind);
        }
        if (block == KV_NONE)
            return sched_min(length, run->end * sched->kv.block_tokens);
        step->appends[step->plan.append_count++] = (struct gpu_append){
            .slot = seq->slot, .group = behind, .index = run->end, .block = block};
        run->blocks[run->end++] = block;
    }
}

/* ---- room ------------------------------------------------------------------------------------
 */

/* Blocks that the decode rows of the next step need in a group. */
static uint32_t decode_need(const struct sched *sched, uint32_t g)
{
    uint32_t count = 0;
    list_each(link, &sched->decode)
    {
        const struct seq *seq = container_of(link, struct seq, run_link);
        if (seq->num_computed % sched->kv.block_tokens == 0 &&
            seq->num_computed < sched_final_len(seq)) /* one waits for its last sample */
            count += sched->tables[seq->slot].group[g].end <=
                     seq->num_computed / sched->kv.block_tokens; /* it may have one of guesses */
    }
    return count;
}

static bool evict_one(struct sched *sched, uint32_t g)
{
    const struct kv_group *group = &sched->kv.group[g];
    return group->alone > 0 && sched_cache_evict(sched, g);
}

void sched_make_room(struct sched *sched, time_us now_us)
{
    for (uint32_t g = 0; g < sched->kv.group_count; g++) {
        const struct kv_group *group = &sched->kv.group[g];
        uint32_t need = decode_need(sched, g);
        while (group->free < need && (spare_victim(sched, g) || grow(sched, g, now_us)))
            continue;
        while (group->free < need && evict_one(sched, g))
            continue;
        while (group->free + group->retired < need &&
               (sched_share_reclaim(sched) || sched_preempt_youngest(sched)))
            need = decode_need(sched, g);
    }
}

void sched_promise(const struct sched *sched, const struct seq *seq, uint64_t *promised)
{
    for (uint32_t g = 0; g < sched->kv.group_count; g++) {
        const struct kv_run *run = &sched->tables[seq->slot].group[g];
        uint32_t all = kv_need(&sched->kv, g, seq->prefill_len, sched->limits.tokens_max);
        uint32_t held = run->end - run->first;
        promised[g] += all > held ? all - held : 0;
    }
}

/* Those that go on need a block each, soon. Where one waits above others that yield, nobody has one
 * in reserve: who lacks a block then, above them or below, has that of somebody below who gives way
 * for it, as for any block that decode rows lack. But what they lack for the step that is planned
 * they take before anybody starts. */
static uint32_t soon(const struct sched *sched, const struct seq *seq, uint32_t g)
{
    uint32_t yield, now = decode_need(sched, g);
    (void)sched_below(sched, seq, &yield);
    uint32_t rows = yield > 0 || seq->place_made ? 0 : sched->slot_count;
    return rows > now ? rows : now;
}

uint64_t sched_lacks(struct sched *sched, struct seq *seq, uint32_t g, uint64_t promised,
                     bool retired_too, time_us now_us)
{
    const struct kv_group *group = &sched->kv.group[g];
    uint32_t all = kv_need(&sched->kv, g, seq->prefill_len + 1, sched->limits.tokens_max);
    uint64_t there = group->free + group->alone + (retired_too ? group->retired : 0);
    all -= sched_min(all, sched_share_blocks(sched, seq, g));
    if (may_grow(sched, g, now_us))
        there += (uint64_t)(group->slabs_max - group->slabs) * group->slab_blocks;
    uint64_t need = all + promised + soon(sched, seq, g);
    return need > there ? need - there : 0;
}

bool sched_can_start(struct sched *sched, struct seq *seq, const uint64_t *promised,
                     bool retired_too, time_us now_us)
{
    if (sched->slot_count == 0)
        return true;
    for (uint32_t g = 0; g < sched->kv.group_count; g++)
        if (sched_lacks(sched, seq, g, promised[g], retired_too, now_us) > 0)
            return false;
    return true;
}

/* ---- giving back ------------------------------------------------------------------------------
 */

static void patch(struct sched *sched, struct sched_step *step, const struct seq *seq, uint32_t g,
                  uint32_t index, uint32_t to)
{
    sched->tables[seq->slot].group[g].blocks[index] = to;
    step->appends[step->plan.append_count++] =
        (struct gpu_append){.slot = seq->slot, .group = g, .index = index, .block = to};
}

/* A block that several hold: it is the same one of each. Returns how many of them. */
static uint32_t patch_all(struct sched *sched, struct sched_step *step, uint32_t g, uint32_t index,
                          const struct gpu_move *move)
{
    struct list *lists[] = {&sched->decode, &sched->prefill};
    uint32_t patched = sched_share_patch(sched, move, index);
    patched += cache_moved(&sched->cache, g, move->from, move->to);
    for (int i = 0; i < 2; i++)
        list_each(link, lists[i])
        {
            const struct seq *seq = container_of(link, struct seq, run_link);
            const struct kv_run *run = &sched->tables[seq->slot].group[g];
            if (index < run->first || index >= run->end || run->blocks[index] != move->from)
                continue;
            patch(sched, step, seq, g, index, move->to);
            patched++;
        }
    return patched;
}

/* Moves what of a table lies in the slab that is being emptied, as far as one plan holds it; for
 * all who hold it. The table is a sequence's, or one of pins. */
static bool move_out(struct sched *sched, struct sched_step *step, uint32_t g,
                     const struct seq *seq, const struct kv_run *run)
{
    struct gpu_plan *plan = &step->plan;
    uint32_t slab_blocks = sched->kv.group[g].slab_blocks, victim = sched->group[g].victim;
    for (uint32_t index = run->first; index < run->end; index++) {
        uint32_t from = run->blocks[index], holders = sched->kv.group[g].references[from];
        if (from / slab_blocks != victim)
            continue;
        if (plan->move_count == sched->limits.moves_max ||
            plan->append_count + holders > sched->limits.appends_max / 2)
            return false;
        struct gpu_move move = {.group = g, .from = from, .to = kv_take(&sched->kv, g)};
        if (move.to == KV_NONE)
            return false;
        step->moves[plan->move_count++] = move;
        kv_move(&sched->kv, g, from, move.to);
        uint32_t patched = 1;
        if (holders == 1 && seq != NULL)
            patch(sched, step, seq, g, index, move.to);
        else
            patched = patch_all(sched, step, g, index, &move);
        assert(patched == holders);
    }
    return true;
}

/* What only the cache holds. */
static bool move_cached(struct sched *sched, struct sched_step *step, uint32_t g)
{
    const struct kv_group *group = &sched->kv.group[g];
    uint32_t first = sched->group[g].victim * group->slab_blocks;
    for (uint32_t from = first; from < first + group->slab_blocks && group->alone > 0; from++) {
        if (!group->kept[from])
            continue;
        struct gpu_move move = {.group = g, .from = from, .to = KV_NONE};
        if (step->plan.move_count < sched->limits.moves_max)
            move.to = kv_take(&sched->kv, g);
        if (move.to == KV_NONE)
            return false;
        step->moves[step->plan.move_count++] = move;
        kv_move(&sched->kv, g, from, move.to);
        (void)cache_moved(&sched->cache, g, from, move.to);
    }
    return true;
}

static bool empty_victim(struct sched *sched, struct sched_step *step, uint32_t g)
{
    struct list *lists[] = {&sched->decode, &sched->prefill};
    for (int i = 0; i < 2; i++)
        list_each(link, lists[i])
        {
            const struct seq *seq = container_of(link, struct seq, run_link);
            if (!move_out(sched, step, g, seq, &sched->tables[seq->slot].group[g]))
                return false;
        }
    list_each(link, &sched->shares)
    {
        const struct sched_share *share = container_of(link, struct sched_share, link);
        if (!move_out(sched, step, g, NULL, &share->pins.group[g]))
            return false;
    }
    return move_cached(sched, step, g);
}

void sched_plan_moves(struct sched *sched, struct sched_step *step)
{
    for (uint32_t g = 0; g < sched->kv.group_count; g++) {
        step->evacuated[g] = false;
        /* A block may only go to a slab that the device knew before this plan, and not while a copy
         * reads or writes it: that has a reference which no table shows. */
        if (sched->group[g].victim == KV_NONE || sched->group[g].victim_evacuated ||
            sched->slabs_due_count > 0 || sched_copies_in_flight(sched) > 0)
            continue;
        step->evacuated[g] = empty_victim(sched, step, g);
    }
    step->patch_count = step->plan.append_count;
}

/* Nothing but moves is left in the plan. */
void sched_undo_moves(struct sched *sched, struct sched_step *step)
{
    const struct gpu_move *moves = step->moves;
    for (uint32_t i = 0, move = 0; i < step->patch_count; i++) {
        const struct gpu_append *append = &step->appends[i];
        while (moves[move].group != append->group || moves[move].to != append->block)
            move++; /* patches stand in the order of moves; pins have none */
        sched->tables[append->slot].group[append->group].blocks[append->index] = moves[move].from;
    }
    while (step->plan.move_count > 0) {
        const struct gpu_move *move = &moves[--step->plan.move_count];
        sched_share_unpatch(sched, move);
        (void)cache_moved(&sched->cache, move->group, move->to, move->from);
        kv_move_back(&sched->kv, move->group, move->from, move->to);
    }
    step->plan.append_count = step->patch_count = 0;
}

/* More slabs than the blocks in use fill, one more, and an eighth. */
static bool excess(const struct kv_group *group)
{
    uint32_t filled = (group->used + group->slab_blocks - 1) / group->slab_blocks;
    return group->slabs > filled + 1 + filled / 8;
}

static void choose_victim(struct sched *sched, uint32_t g)
{
    const struct kv_group *group = &sched->kv.group[g];
    uint32_t slab = kv_slab_sparsest(&sched->kv, g);
    if (slab == KV_NONE || sched->limits.moves_max == 0)
        return;
    kv_slab_close(&sched->kv, g, slab);
    sched->group[g].victim = slab;
    sched->group[g].victim_evacuated = false;
    /* What is in it must fit elsewhere, and still leave a slab's worth free. */
    if (group->free < group->slab[slab].used + group->slab_blocks)
        spare_victim(sched, g);
}

static void tend_group(struct sched *sched, uint32_t g, time_us now_us)
{
    struct sched_group *state = &sched->group[g];
    struct kv_group *group = &sched->kv.group[g];
    if (!excess(group)) {
        spare_victim(sched, g);
        state->excess_since_us = 0;
        if (group->free < group->slab_blocks && sched->slot_count > 0)
            grow(sched, g, now_us);
        return;
    }
    if (state->excess_since_us == 0)
        state->excess_since_us = now_us;
    if (now_us - state->excess_since_us < sched->options.kv_idle_release_us)
        return;
    uint32_t empty = kv_slab_empty(&sched->kv, g);
    if (state->victim != KV_NONE && group->slab[state->victim].used == 0) {
        empty = state->victim;
        state->victim = KV_NONE;
    }
    if (empty != KV_NONE)
        shrink(sched, g, empty);
    else if (state->victim == KV_NONE)
        choose_victim(sched, g);
}

static void shrink_empty(struct sched *sched)
{
    for (uint32_t g = 0; g < sched->kv.group_count; g++) {
        uint32_t slab;
        spare_victim(sched, g);
        while ((slab = kv_slab_empty(&sched->kv, g)) != KV_NONE)
            shrink(sched, g, slab);
        sched->group[g].excess_since_us = 0;
    }
}

void sched_yield_cache(struct sched *sched)
{
    if (sched->cache.named_count == 0)
        return;
    sched_cache_give_up(sched);
    shrink_empty(sched);
}

void sched_give_back(struct sched *sched)
{
    sched->yield_wanted = !sched->released;
}

/* Beside steps. Host memory is nobody else's. */
static void yield(struct sched *sched)
{
    if (!sched->yield_wanted || sched_copies_in_flight(sched) > 0)
        return;
    sched_cache_give_up(sched);
    shrink_empty(sched);
    sched->yield_wanted = false;
}

/* Nothing runs: all slabs, or those that hold nothing cached. */
static void release_all(struct sched *sched)
{
    shrink_empty(sched);
    sched->shrunk = true;
    sched->released = sched->cache.named_count == 0;
    for (uint32_t g = 0; g < sched->kv.group_count && sched->released; g++)
        assert(sched->kv.group[g].used == 0);
    sched->trim_wanted = sched->yield_wanted = false;
}

void sched_trim(struct sched *sched)
{
    sched->trim_wanted = true;
}

bool sched_housekeep(struct sched *sched, time_us now_us)
{
    sched->now_us = now_us;
    if (sched->trim_wanted) {
        sched_cache_give_up(sched);
        sched_tier_give_up(sched);
    } else if (!sched->yield_wanted) {
        sched_cache_expire(sched, now_us);
    }
    sched->stats->cache_evictions_total = sched->cache.evicted;
    sched->stats->host_evictions_total = sched->tier.evicted;
    if (sched->slot_count > 0 || sched->waiting_count > 0 || sched_in_flight(sched) > 0 ||
        sched_samplings_in_flight(sched) > 0) {
        sched->idle_since_us = 0;
        yield(sched);
        for (uint32_t g = 0; g < sched->kv.group_count; g++)
            tend_group(sched, g, now_us);
        return false;
    }
    sched->stalled_since_us = 0; /* whoever got no memory has gone */
    if (sched->idle_since_us == 0)
        sched->idle_since_us = now_us;
    if (sched_copies_in_flight(sched) > 0)
        return false; /* their memory stays */
    bool due = now_us - sched->idle_since_us >= sched->options.kv_idle_release_us;
    bool done = sched->shrunk && sched->cache.named_count > 0;
    if (!sched->trim_wanted && !sched->yield_wanted && (sched->released || done || !due))
        return false;
    if (sched->yield_wanted)
        sched_cache_give_up(sched);
    release_all(sched);
    return true;
}
