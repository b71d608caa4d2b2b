/* What becomes of a plan: it is in flight, was refused, or is dropped. */
#include "daemon/sched/sched_inner.h"

void sched_drain(struct sched *sched, struct seq *seq)
{
    list_remove(&seq->run_link);
    sched_release_slot(sched, seq);
    seq->phase = PHASE_DRAINING;
    list_append(&sched->last, &seq->run_link);
}

static void advance(struct sched *sched, struct sched_step *step, uint32_t number, time_us now_us)
{
    struct seq *seq = step->row_seq[number];
    const struct gpu_row *row = &step->rows[number];
    sched_compute(sched, seq, row->q_len - row->drafts);
    if (sched_guesses(sched))
        sched_draft_submitted(sched, seq, row);
    sched_share_computed(sched, seq);
    sched_cache_computed(sched, seq);
    seq->last_scheduled_step = step->plan.step;
    seq->in_flight++;
    if (seq->stamps.scheduled_us == 0) {
        seq->stamps.scheduled_us = now_us;
        /* The loop may have read its clock after the worker's turn began, and pushed before it
         * looked. */
        hist_add(&sched->stats->queue_time,
                 now_us > seq->arrived_us ? now_us - seq->arrived_us : 0);
    }
    seq->kept = row->want & GPU_KEEP;
    if (seq->num_computed == sched_final_len(seq) && !seq->kept) {
        sched_drain(sched, seq);
    } else if (seq->phase == PHASE_PREFILL && seq->num_computed == seq->prefill_len) {
        list_remove(&seq->run_link);
        seq->phase = PHASE_DECODE;
        sched->decode_count++;
        sched->decode_computed += seq->num_computed;
        list_append(&sched->decode, &seq->run_link);
    } else if (seq->phase == PHASE_DECODE && step->cut) {
        list_remove(&seq->run_link);
        list_append(&sched->decode, &seq->run_link);
    }
}

/* What it begins with, from whom. */
static void count_open(struct sched *sched, struct seq *seq)
{
    struct stats_worker *stats = sched->stats;
    uint32_t found = seq->cache.found * sched->kv.block_tokens;
    bool shares = found == 0 && seq->num_computed > 0;
    if (shares)
        stats->prompt_tokens_shared_total += seq->num_computed;
    else if (seq_finds(seq) && sched->cache.node_max > 0) {
        stats->prompt_tokens_cached_total += found;
        stats->cache_hits_total += found > 0;
        stats->cache_misses_total += found == 0;
    }
    if (seq->stamps.scheduled_us == 0)
        seq->cached = shares ? seq->siblings->cached : found;
}

void sched_submitted(struct sched *sched, time_us now_us)
{
    struct sched_step *step = sched_step_of(sched, sched->step_last + 1);
    step->ahead = sched_in_flight(sched) > 0;
    step->submitted_us = now_us;
    if (!step->ahead)
        sched->running_since_us = now_us;
    sched->stats->steps_ahead_total += step->ahead;
    sched->step_last++;
    if (step->plan.open_count > 0)
        sched->start_step = sched->step_last;
    sched->closes_due_count = 0;
    sched->slabs_due_count = 0;
    for (uint32_t i = 0; i < step->plan.move_count; i++)
        kv_moved(&sched->kv, step->moves[i].group, step->moves[i].from, step->moves[i].to,
                 sched->step_last);
    sched->stats->kv_moved_total += step->plan.move_count;
    for (uint32_t g = 0; g < sched->kv.group_count; g++)
        sched->group[g].victim_evacuated |= step->evacuated[g];
    for (uint32_t i = 0; i < step->plan.open_count; i++)
        count_open(sched, step->opened[i]);
    for (uint32_t i = 0; i < step->plan.row_count; i++)
        advance(sched, step, i, now_us);
    sched_count_late(sched, step);
    sched->tokens_cap = sched_min(sched->limits.tokens_max, 2 * sched->tokens_cap);
    sched->retry_us = sched->stalled_since_us = 0;
    sched->released = sched->shrunk = false;
}

void sched_refused(struct sched *sched, time_us now_us)
{
    struct sched_step *step = sched_step_of(sched, sched->step_last + 1);
    uint32_t tokens = step->plan.token_count;
    sched_undo(sched, step);
    sched->stats->scratch_refused_total++;
    sched_yield_cache(sched);
    sched->tokens_cap = tokens > 1 ? tokens / 2 : 1;
    if (tokens > 1 || sched_in_flight(sched) > 0)
        return;
    if (sched_unstall(sched, now_us))
        sched->retry_us = now_us + SCHED_RETRY_US;
}

void sched_dropped(struct sched *sched)
{
    sched_undo(sched, sched_step_of(sched, sched->step_last + 1));
}
