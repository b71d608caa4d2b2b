/* The scheduler's one invariant (sched.h), looked at by tests. */
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
            rows.sampled += step->row_seq[i] == seq && (step->rows[i].want & GPU_SAMPLE);
        }
    }
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
        if (computed + 1 != len || computed < seq->prefill_len || computed >= end)
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
            waiting_tokens += phase == PHASE_WAITING ? seq->prefill_len : 0;
        }
    if (counts[PHASE_WAITING] != sched->waiting_count || waiting_tokens != sched->waiting_tokens)
        return "those that wait are miscounted";
    if (counts[PHASE_PREFILL] + counts[PHASE_DECODE] != sched->slot_count ||
        sched->slot_count + sched->slots_free_count != sched->slots_max)
        return "slots are miscounted";
    return "";
}
