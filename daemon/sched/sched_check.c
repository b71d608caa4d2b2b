/* The scheduler's one invariant (sched.h), and who holds which block, looked at by tests. */
#include "daemon/sched/sched_inner.h"

struct rows {
    uint32_t all, sampled; /* of a sequence, in flight */
};

static struct rows rows_of(const struct sched *sched, const struct seq *seq)
{
    struct rows rows = {.all = 0};
    for (uint64_t number = sched->step_done + 1; number <= sched->step_last; number++) {
        const struct sched_step *step = &sched->steps[number % (sched->limits.depth + 1)];
        for (uint32_t i = 0; i < step->plan.row_count; i++) {
            rows.all += step->row_seq[i] == seq;
            rows.sampled += step->row_seq[i] == seq &&
                            (step->rows[i].want & (GPU_SAMPLE | GPU_KEEP)) == GPU_SAMPLE;
        }
    }
    for (uint64_t number = sched->sampling_done + 1; number <= sched->sampling_last; number++) {
        const struct sched_sampling *sampling = &sched->samplings[number % GPU_SAMPLINGS_MAX];
        for (uint32_t i = 0; i < sampling->plan.count; i++) {
            rows.all += sampling->seqs[i] == seq;
            rows.sampled += sampling->seqs[i] == seq;
        }
    }
    rows.sampled += seq->kept;
    return rows;
}

/* Every position that is written has its block. */
static bool has_blocks(const struct sched *sched, const struct seq *seq)
{
    const struct kv_table *table = &sched->tables[seq->slot];
    for (uint32_t g = 0; g < sched->kv.group_count; g++)
        if ((uint64_t)table->group[g].end * sched->kv.block_tokens < seq->num_computed)
            return false;
    return true;
}

static const char *check_phase(const struct sched *sched, const struct seq *seq, uint32_t len)
{
    uint32_t computed = seq->num_computed, end = sched_final_len(seq);
    switch (seq->phase) {
    case PHASE_WAITING:
        return computed > 0 || seq->in_flight > 0 ? "one that waits has begun" : "";
    case PHASE_PREFILL:
        if (computed >= seq->prefill_len || len != seq->prefill_len)
            return "a prompt is read, and its sequence does not go on";
        return has_blocks(sched, seq) ? "" : "a prompt is read to where no block is";
    case PHASE_DECODE:
        if (computed < seq->known_len ? len != seq->known_len : computed + 1 != len)
            return "one that decodes does not know its token";
        if (computed < seq->prefill_len || computed >= end + seq->kept)
            return "one that decodes is not one token behind";
        return has_blocks(sched, seq) ? "" : "one decodes where no block is";
    case PHASE_DRAINING:
        return computed != end || seq->in_flight == 0 ? "one drains before its end" : "";
    case PHASE_PREEMPTED:
        return seq->in_flight == 0 ? "one that was preempted does not wait again" : "";
    }
    return "a phase that is none";
}

static const char *check_seq(const struct sched *sched, const struct seq *seq)
{
    struct rows rows = rows_of(sched, seq);
    uint32_t out = atomic_load_explicit(&seq->out_count, memory_order_relaxed);
    uint32_t len =
        seq->params.job == JOB_GENERATE ? seq->prompt_len + out + rows.sampled : seq->prefill_len;
    if (seq->num_computed > len)
        return "more is computed than there is";
    if (seq->in_flight != rows.all)
        return "rows in flight are miscounted";
    return check_phase(sched, seq, len);
}

/* ---- blocks that several hold ------------------------------------------------------------------
 */

/* Who holds a block, told so that the parts of all its holders come to one. */
static double parts_of(const struct kv_group *group, const struct kv_run *run)
{
    double parts = 0;
    for (uint32_t i = run->first; i < run->end; i++)
        parts += 1.0 / group->references[run->blocks[i]];
    return parts;
}

/* A block that several hold lies wholly below what the sequence has computed: nobody writes it any
 * more. What sequences have of each other, and not by way of the cache, lies below the last token
 * of the prompt. */
static bool writes_none(const struct sched *sched, const struct seq *seq, uint32_t g)
{
    const struct kv_run *run = &sched->tables[seq->slot].group[g];
    for (uint32_t i = run->first; i < run->end; i++) {
        uint64_t end = (i + 1ull) * sched->kv.block_tokens;
        if (sched->kv.group[g].references[run->blocks[i]] > 1 &&
            (end > seq->num_computed ||
             (!sched->kv.group[g].kept[run->blocks[i]] && end >= seq->prompt_len)))
            return false;
    }
    return true;
}

/* Those of copies in flight. */
static double parts_of_copies(const struct sched *sched, uint32_t g)
{
    double parts = 0;
    for (enum gpu_way way = 0; way < GPU_WAYS; way++)
        for (uint64_t i = sched->copies_done[way] + 1; i <= sched->copies_last[way]; i++) {
            const struct gpu_copies *plan = &sched->copies[way][i % GPU_COPIES_MAX].plan;
            for (uint32_t c = 0; c < plan->count; c++)
                if (plan->copies[c].group == g)
                    parts += 1.0 / sched->kv.group[g].references[plan->copies[c].block];
        }
    return parts;
}

static const char *check_group(const struct sched *sched, uint32_t g)
{
    const struct list *lists[] = {&sched->prefill, &sched->decode};
    const struct kv_group *group = &sched->kv.group[g];
    double parts = 0;
    for (int i = 0; i < 2; i++)
        list_each(link, lists[i])
        {
            const struct seq *seq = container_of(link, struct seq, run_link);
            parts += parts_of(group, &sched->tables[seq->slot].group[g]);
            if (!writes_none(sched, seq, g))
                return "a block that others hold is to be written";
        }
    list_each(link, &sched->shares)
    {
        const struct sched_share *share = container_of(link, struct sched_share, link);
        parts += parts_of(group, &share->pins.group[g]);
    }
    for (uint32_t block = 0; block < group->slab_blocks * group->slabs_max; block++)
        parts += group->kept[block] ? 1.0 / group->references[block] : 0;
    parts += parts_of_copies(sched, g);
    double held = group->used - group->retired;
    return parts > held - 0.01 && parts < held + 0.01 ? "" : "a block's holders are miscounted";
}

/* Who waits for another waits for an older one that still reads what it needs. */
static const char *check_reading(const struct sched *sched)
{
    list_each(link, &sched->readers)
    {
        const struct seq *seq = container_of(link, struct seq, cache.read_link);
        bool runs = seq->phase == PHASE_PREFILL || seq->phase == PHASE_DECODE ||
                    seq->phase == PHASE_DRAINING;
        if (!seq->cache.reading || !runs)
            return "one that reads for others does not run";
        if (seq->cache.done * sched->kv.block_tokens > seq->num_computed)
            return "blocks count as read that are not computed";
    }
    list_each(link, &sched->waiting)
    {
        const struct seq *seq = container_of(link, struct seq, run_link);
        const struct seq *reader = seq->cache.waits_for;
        if (reader != NULL && (!reader->cache.reading || !sched_goes_before(reader, seq)))
            return "one waits for another that reads nothing for it";
    }
    return "";
}

/* Who waits wants, as far as there was room for marks, and nobody else does. */
static const char *check_wants(const struct sched *sched)
{
    const struct list *lists[] = {&sched->prefill, &sched->decode, &sched->last, &sched->preempted};
    const struct prefix_wants *wants = &sched->wants[SCHED_WAITS_HERE];
    uint64_t marks = 0;
    list_each(link, &sched->waiting)
    {
        const struct seq *seq = container_of(link, struct seq, run_link);
        marks += seq->cache.wanted ? seq->key_count : 0;
    }
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
        list_each(link, lists[i])
        {
            const struct seq *seq = container_of(link, struct seq, run_link);
            if (seq->cache.wanted)
                return "one that has begun wants what it begins with";
        }
    return marks == wants->most - wants->room ? "" : "marks of those that wait are miscounted";
}

/* Else what nobody computes with could not be given up, since the sequence stands behind it. */
static bool holds_what_it_stands_on(const struct sched *sched, const struct seq *seq)
{
    const struct kv_table *table = &sched->tables[seq->slot];
    for (uint32_t node = seq->cache.node; node != CACHE_NONE; node = sched->cache.nodes[node].parent)
        for (uint32_t g = 0; g < sched->kv.group_count; g++)
            if (sched->kv.group[g].window == 0 &&
                cache_block(&sched->cache, node, g) !=
                    table->group[g].blocks[sched->cache.nodes[node].depth])
                return false;
    return true;
}

static const char *check_cached(const struct sched *sched)
{
    const struct list *lists[] = {&sched->prefill, &sched->decode};
    for (int i = 0; i < 2; i++)
        list_each(link, lists[i])
        {
            const struct seq *seq = container_of(link, struct seq, run_link);
            uint32_t node = seq->cache.node;
            if (node != CACHE_NONE && sched->cache.nodes[node].users == 0)
                return "a sequence stands on a cached block that may be dropped";
            if (!holds_what_it_stands_on(sched, seq))
                return "a sequence stands on cached blocks that it does not hold";
            if (seq->cache.found * sched->kv.block_tokens >= seq->prefill_len)
                return "a sequence computes nothing";
        }
    if (sched->tier.node_max > 0 && *tier_check(&sched->tier))
        return tier_check(&sched->tier);
    return cache_check(&sched->cache);
}

static const char *check_share(const struct sched *sched, const struct sched_share *share,
                               const struct list *lists[], uint32_t count)
{
    uint32_t members = 0, waiting = 0;
    for (uint32_t i = 0; i < count; i++)
        list_each(link, lists[i])
        {
            const struct seq *seq = container_of(link, struct seq, run_link);
            members += seq->siblings == share;
            waiting += seq->siblings == share && seq->phase == PHASE_WAITING;
        }
    const struct seq *leader = share->leader;
    if (members != share->members || waiting != share->waiting || members == 0)
        return "sequences of one prompt are miscounted";
    if (leader != NULL && (share->pinned || leader->siblings != share ||
                           leader->phase != PHASE_PREFILL || leader->num_computed >= share->len))
        return "sequences of one prompt wait for one that reads nothing for them";
    for (uint32_t g = 0; g < sched->kv.group_count; g++)
        if (!share->pinned && share->pins.group[g].first != share->pins.group[g].end)
            return "pins that are none hold blocks";
    return "";
}

static const char *check_levels(const struct sched *sched)
{
    const struct list *lists[] = {&sched->prefill, &sched->decode};
    uint32_t slots[WAITING_LEVELS] = {0}, yields[WAITING_LEVELS] = {0};
    for (int i = 0; i < 2; i++)
        list_each(link, lists[i])
        {
            const struct seq *seq = container_of(link, struct seq, run_link);
            slots[sched_level(seq)]++;
            yields[sched_level(seq)] += sched_yields(seq);
        }
    for (uint32_t level = 0; level < WAITING_LEVELS; level++)
        if (slots[level] != sched->level_slots[level] || yields[level] != sched->level_yields[level])
            return "slots of a priority are miscounted";
    return "";
}

/* Each did so once, and is counted once. */
static const char *check_gave_way(const struct sched *sched, const struct list *const *lists,
                                  size_t count)
{
    uint32_t all = 0, waiting = 0;
    for (size_t i = 0; i < count; i++)
        list_each(link, lists[i])
        {
            const struct seq *seq = container_of(link, struct seq, run_link);
            all += seq->gave_way;
            waiting += seq->gave_way && seq->phase == PHASE_WAITING;
            if (seq->gave_way && (seq->preemptions == 0 || seq->owed || seq->low))
                return "a sequence gave way to a priority that does not";
        }
    return all == sched->gave_way_count && waiting == sched->gave_way_waiting
               ? ""
               : "those that gave way to priorities are miscounted";
}

static bool are_decodes_counted(const struct sched *sched)
{
    uint32_t count = 0;
    uint64_t computed = 0;
    list_each(link, &sched->decode)
    {
        count++;
        computed += container_of(link, struct seq, run_link)->num_computed;
    }
    return count == sched->decode_count && computed == sched->decode_computed;
}

const char *sched_check(const struct sched *sched)
{
    const struct list *lists[] = {[PHASE_WAITING] = &sched->waiting,
                                  [PHASE_PREFILL] = &sched->prefill,
                                  [PHASE_DECODE] = &sched->decode,
                                  [PHASE_DRAINING] = &sched->last,
                                  [PHASE_PREEMPTED] = &sched->preempted};
    uint32_t counts[sizeof(lists) / sizeof(lists[0])] = {0};
    uint64_t waiting_tokens = 0;
    for (uint32_t phase = 0; phase < sizeof(lists) / sizeof(lists[0]); phase++)
        list_each(link, lists[phase])
        {
            const struct seq *seq = container_of(link, struct seq, run_link);
            const char *wrong = seq->phase == phase ? check_seq(sched, seq) : "on another list";
            if (*wrong)
                return wrong;
            counts[phase]++;
            if (phase == PHASE_WAITING)
                waiting_tokens += seq->prefill_len - sched_share_part(seq);
        }
    for (uint32_t g = 0; g < sched->kv.group_count; g++)
        if (*check_group(sched, g))
            return check_group(sched, g);
    list_each(link, &sched->shares)
    {
        const char *wrong = check_share(sched, container_of(link, struct sched_share, link), lists,
                                        sizeof(lists) / sizeof(lists[0]));
        if (*wrong)
            return wrong;
    }
    const char *gave_way = check_gave_way(sched, lists, sizeof(lists) / sizeof(lists[0]));
    if (*gave_way)
        return gave_way;
    if (*check_levels(sched))
        return check_levels(sched);
    if (*check_reading(sched))
        return check_reading(sched);
    if (*check_wants(sched))
        return check_wants(sched);
    if (*check_cached(sched))
        return check_cached(sched);
    if (counts[PHASE_WAITING] != sched->waiting_count || waiting_tokens != sched->waiting_tokens)
        return "those that wait are miscounted";
    if (!are_decodes_counted(sched))
        return "those that decode are miscounted";
    if (counts[PHASE_PREFILL] + counts[PHASE_DECODE] != sched->slot_count ||
        sched->slot_count + sched->slots_free_count != sched->slots_max)
        return "slots are miscounted";
    return "";
}
