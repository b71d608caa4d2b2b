/* Sequences of one prompt, the n results that a request asks for, compute it once.
 *
 * The first of them that starts, the leader, reads the prompt; those that wait are passed over
 * meanwhile. Once the steps that are submitted write all whole blocks below the prompt's last
 * token, a table of their own, the pins, holds a reference to each, so that they outlive the
 * leader; the others start with them, and compute the rest, which is at least a token. Steps run
 * in order on every device of a replica, so a step submitted later may read these blocks.
 *
 * Whoever becomes leader and does not come so far (ended, cancelled, preempted, its plan taken
 * back) leaves the place to the next that starts. Pins are given up when the last sequence of the
 * prompt has gone, or when their memory is needed; as long as one that runs has the blocks in its
 * table they can be pinned anew. With a window the blocks that the position behind them sees are
 * what counts; those before need not be there any more. */
#include <assert.h>
#include <string.h>

#include "daemon/sched/sched_inner.h"

/* The block of a group from which on the first position that is computed sees. */
static uint32_t first_seen(const struct sched *sched, const struct sched_share *share, uint32_t g)
{
    return kv_first_seen(&sched->kv, g, share->len);
}

static uint32_t end_block(const struct sched *sched, const struct sched_share *share)
{
    return share->len / sched->kv.block_tokens;
}

/* ---- who has a prompt in common ----------------------------------------------------------------
 */

/* Ids that a plan needs for a sequence beside those of what it has from others: stop tokens, and
 * the rest of its prompt, or a part of that. */
static uint32_t other_ids(const struct sched *sched)
{
    return GPU_STOP_IDS_MAX + sched->kv.block_tokens + 2;
}

uint32_t sched_share_ids(const struct sched *sched)
{
    uint32_t others = other_ids(sched) + sched->limits.unread_max;
    return sched->limits.ids_max - sched_min(sched->limits.ids_max, others);
}

/* Positions that a sequence need not compute when another has: 0 when it shares nothing. */
static uint32_t shareable(const struct sched *sched, const struct seq *seq)
{
    const struct gpu_limits *limits = &sched->limits;
    uint32_t groups = sched->kv.group_count;
    uint32_t blocks = (seq->prompt_len - 1) / sched->kv.block_tokens;
    if (seq->params.job != JOB_GENERATE || seq->sampling.n < 2)
        return 0;
    /* One plan has to name them all, beside what the decode rows take. */
    if ((uint64_t)groups * (blocks + 1u + sched->slots_max) > limits->appends_max)
        return 0;
    if (sched_counts_tokens(seq))
        blocks = sched_min(blocks, sched_share_ids(sched) / sched->kv.block_tokens);
    return blocks * sched->kv.block_tokens;
}

static struct sched_share *find(struct sched *sched, const struct seq *seq)
{
    list_each(link, &sched->shares)
    {
        struct sched_share *share = container_of(link, struct sched_share, link);
        if (share->prompt == seq->prompt)
            return share;
    }
    return NULL;
}

void sched_share_join(struct sched *sched, struct seq *seq)
{
    uint32_t len = shareable(sched, seq);
    seq->siblings = NULL;
    if (len == 0)
        return;
    struct sched_share *share = find(sched, seq);
    if (share == NULL) {
        struct list *link = list_take(&sched->shares_free);
        if (link == NULL) /* it computes its prompt alone */
            return;
        share = container_of(link, struct sched_share, link);
        share->prompt = seq->prompt;
        share->len = len;
        share->expected = share->cached = 0;
        list_append(&sched->shares, link);
    }
    assert(share->len == len);
    share->members++;
    seq->siblings = share;
}

static void unpin(struct sched *sched, struct sched_share *share)
{
    kv_table_clear(&sched->kv, &share->pins, sched->step_last);
    share->pinned = false;
}

void sched_share_leave(struct sched *sched, struct seq *seq)
{
    struct sched_share *share = seq->siblings;
    if (share == NULL)
        return;
    seq->siblings = NULL;
    if (--share->members > 0)
        return;
    assert(share->leader == NULL && share->waiting == 0);
    unpin(sched, share);
    list_remove(&share->link);
    list_append(&sched->shares_free, &share->link);
}

/* ---- the leader --------------------------------------------------------------------------------
 */

static void pin(struct sched *sched, struct sched_share *share, const struct kv_table *table)
{
    for (uint32_t g = 0; g < sched->kv.group_count; g++) {
        struct kv_run *run = &share->pins.group[g];
        run->first = first_seen(sched, share, g);
        run->end = end_block(sched, share);
        for (uint32_t i = run->first; i < run->end; i++) {
            run->blocks[i] = table->group[g].blocks[i];
            kv_share(&sched->kv, g, run->blocks[i]);
        }
    }
    share->pinned = true;
}

static bool covers(const struct sched *sched, const struct sched_share *share,
                   const struct seq *seq)
{
    const struct kv_table *table = &sched->tables[seq->slot];
    if (seq->siblings != share || seq->num_computed < share->len)
        return false;
    for (uint32_t g = 0; g < sched->kv.group_count; g++)
        if (table->group[g].first > first_seen(sched, share, g) ||
            table->group[g].end < end_block(sched, share))
            return false;
    return true;
}

void sched_share_computed(struct sched *sched, struct seq *seq)
{
    struct sched_share *share = seq->siblings;
    if (share == NULL || share->leader != seq || seq->num_computed < share->len)
        return;
    share->leader = NULL;
    assert(covers(sched, share, seq) && !share->pinned);
    pin(sched, share, sched_table(sched, seq));
}

void sched_share_released(struct seq *seq)
{
    if (seq->siblings != NULL && seq->siblings->leader == seq)
        seq->siblings->leader = NULL;
}

/* Pins were given up, or never made, and somebody still has the blocks. */
static bool pin_again(struct sched *sched, struct sched_share *share)
{
    struct list *lists[] = {&sched->decode, &sched->prefill};
    for (int i = 0; i < 2 && !share->pinned; i++)
        list_each(link, lists[i])
        {
            struct seq *seq = container_of(link, struct seq, run_link);
            if (covers(sched, share, seq)) {
                pin(sched, share, sched_table(sched, seq));
                break;
            }
        }
    return share->pinned;
}

/* ---- the others --------------------------------------------------------------------------------
 */

bool sched_share_passes(struct sched *sched, struct seq *seq)
{
    struct sched_share *share = seq->siblings;
    if (share != NULL && share->leader != NULL)
        return true;
    bool pinned = share != NULL && (share->pinned || pin_again(sched, share));
    return !pinned && sched_cache_waits(sched, seq);
}

struct seq *sched_share_next(struct sched *sched)
{
    list_each(link, &sched->waiting)
    {
        struct seq *seq = container_of(link, struct seq, run_link);
        if (!sched_share_passes(sched, seq))
            return seq;
    }
    return NULL;
}

static bool has_pins(const struct seq *seq)
{
    return seq->siblings != NULL && seq->siblings->pinned;
}

uint32_t sched_share_blocks(struct sched *sched, struct seq *seq, uint32_t g)
{
    if (!has_pins(seq))
        return sched_cache_saves(sched, seq, g);
    return end_block(sched, seq->siblings) - first_seen(sched, seq->siblings, g);
}

/* Positions that it would not compute. */
static uint32_t begins_at(struct sched *sched, struct seq *seq)
{
    return has_pins(seq) ? seq->siblings->len
                         : sched_cache_hit(sched, seq) * sched->kv.block_tokens;
}

bool sched_share_fits(struct sched *sched, const struct sched_step *step, struct seq *seq)
{
    uint32_t position = begins_at(sched, seq), blocks = position / sched->kv.block_tokens;
    uint32_t need = sched->kv.group_count; /* and a block of its own */
    for (uint32_t g = 0; g < sched->kv.group_count; g++)
        need += blocks - kv_first_seen(&sched->kv, g, position);
    if (blocks == 0)
        return true;
    uint32_t ids = sched_counts_tokens(seq) ? position + other_ids(sched) : 0;
    return step->plan.append_count + need <= sched->limits.appends_max &&
           step->plan.id_count + ids <= sched->limits.ids_max;
}

/* It begins with what is cached; the others wait for it, if only until its first row is submitted.
 */
static void begin_alone(struct sched *sched, struct sched_step *step, struct seq *seq)
{
    struct sched_share *share = seq->siblings;
    sched_cache_begin(sched, step, seq);
    if (share == NULL)
        return;
    share->cached = seq->num_computed;
    share->leader = seq;
}

void sched_share_begin(struct sched *sched, struct sched_step *step, struct seq *seq)
{
    struct sched_share *share = seq->siblings;
    seq->cache.found = 0;
    if (!has_pins(seq)) {
        begin_alone(sched, step, seq);
        return;
    }
    for (uint32_t g = 0; g < sched->kv.group_count; g++) {
        const struct kv_run *from = &share->pins.group[g];
        struct kv_run *run = &sched_table(sched, seq)->group[g];
        run->first = from->first;
        run->end = from->end;
        for (uint32_t i = from->first; i < from->end; i++)
            run->blocks[i] = from->blocks[i];
    }
    sched_begin_behind(sched, step, seq, share->len);
}

void sched_share_undo(struct sched *sched, struct seq *seq)
{
    struct kv_table *table = sched_table(sched, seq);
    sched_share_released(seq);
    sched_cache_undo(sched, seq);
    seq->num_computed = 0;
    for (uint32_t g = 0; g < sched->kv.group_count; g++) {
        assert(table->group[g].first == table->group[g].end);
        table->group[g].first = table->group[g].end = 0;
    }
}

/* ---- its memory --------------------------------------------------------------------------------
 */

/* Prompts that begin alike have pins at the same blocks, which the first had from the cache. */
static uint32_t pins_at(const struct sched *sched, uint32_t g, uint32_t index, uint32_t block)
{
    uint32_t count = 0;
    list_each(link, &sched->shares)
    {
        const struct kv_run *run = &container_of(link, struct sched_share, link)->pins.group[g];
        count += index >= run->first && index < run->end && run->blocks[index] == block;
    }
    return count;
}

/* Memory that nobody but pins holds, or the cache. */
static bool holds_alone(const struct sched *sched, const struct sched_share *share)
{
    for (uint32_t g = 0; g < sched->kv.group_count; g++) {
        const struct kv_run *run = &share->pins.group[g];
        for (uint32_t i = run->first; i < run->end; i++) {
            uint32_t block = run->blocks[i], kept = sched->kv.group[g].kept[block];
            uint32_t references = sched->kv.group[g].references[block];
            if (references == 1 + kept || references == pins_at(sched, g, i, block) + kept)
                return true;
        }
    }
    return false;
}

bool sched_share_reclaim(struct sched *sched)
{
    list_each(link, &sched->shares)
    {
        struct sched_share *share = container_of(link, struct sched_share, link);
        if (!share->pinned || !holds_alone(sched, share))
            continue;
        unpin(sched, share);
        return true;
    }
    return false;
}

uint32_t sched_share_patch(struct sched *sched, const struct gpu_move *move, uint32_t index)
{
    uint32_t patched = 0;
    list_each(link, &sched->shares)
    {
        struct sched_share *share = container_of(link, struct sched_share, link);
        struct kv_run *run = &share->pins.group[move->group];
        if (index < run->first || index >= run->end || run->blocks[index] != move->from)
            continue;
        run->blocks[index] = move->to;
        patched++;
    }
    return patched;
}

void sched_share_unpatch(struct sched *sched, const struct gpu_move *move)
{
    list_each(link, &sched->shares)
    {
        struct sched_share *share = container_of(link, struct sched_share, link);
        struct kv_run *run = &share->pins.group[move->group];
        for (uint32_t i = run->first; i < run->end; i++)
            if (run->blocks[i] == move->to)
                run->blocks[i] = move->from;
    }
}

/* ---- what it makes of the queue ----------------------------------------------------------------
 */

uint64_t sched_share_backlog(const struct sched *sched)
{
    uint64_t left = 0;
    list_each(link, &sched->shares)
    {
        const struct sched_share *share = container_of(link, struct sched_share, link);
        if (share->waiting > 0 && share->leader == NULL && !share->pinned)
            left += share->len - sched_min(share->len, share->expected);
    }
    return left;
}
