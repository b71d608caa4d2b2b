/* Sampling of constrained sequences, behind the steps (gpu.h's sample()): whose masks are there, and
 * what their samples mean. */
#include <assert.h>

#include "daemon/sched/sched_inner.h"

struct sched_sampling *sched_sampling_of(struct sched *sched, uint64_t number)
{
    return &sched->samplings[number % GPU_SAMPLINGS_MAX];
}

/* Its logits are kept, and it waits for its mask: the one that is there may be that of the token
 * before, which is on its way. */
static bool waits(const struct seq *seq)
{
    return seq->kept && (seq->being_sampled || seq_mask_state(seq->mask) == SEQ_MASK_ASKED);
}

bool sched_masks_wanted(const struct sched *sched)
{
    list_each(link, &sched->decode)
    {
        const struct seq *seq = container_of(link, struct seq, run_link);
        if (seq->kept || seq->being_sampled)
            return true;
    }
    return false;
}

bool sched_masks_late(const struct sched *sched)
{
    list_each(link, &sched->decode)
        if (waits(container_of(link, struct seq, run_link)))
            return true;
    return false;
}

/* A mask that allows nothing: the output is whole and the model has no end token, or nothing of the
 * vocabulary can go on. Or there will be no mask. */
static bool ends_by_mask(struct sched *sched, struct seq *seq, time_us now_us)
{
    const struct seq_mask *mask = seq->mask;
    struct error error;
    if (seq_mask_state(mask) == SEQ_MASK_FAILED) {
        error = mask->error;
        sched_end_error(sched, seq, &error, now_us);
        return true;
    }
    if (mask->allowed > 0)
        return false;
    if (mask->ends) {
        sched_end(sched, seq, FINISH_STOP, now_us);
    } else {
        error_set(&error, ERR_UNSUPPORTED,
                  "no token of the model's vocabulary goes on as the constraint asks");
        sched_end_error(sched, seq, &error, now_us);
    }
    return true;
}

/* Tokens that no other could stand for. They are known, so their rows give them by their numbers,
 * several in one; what the row before them kept is not looked at. True: it has ended. */
static bool takes_forced(struct sched *sched, struct seq *seq, time_us now_us)
{
    struct seq_mask *mask = seq->mask;
    uint32_t count = mask->forced_count;
    if (count == 0)
        return false;
    mask->forced_count = 0;
    seq->kept = false;
    for (uint32_t i = 0; i < count; i++) {
        bool finished = mask->forced_end && i + 1 == count;
        sched->stats->tokens_forced_total++;
        if (sched_tell_token(sched, seq, mask->forced[i], finished, now_us))
            return true;
    }
    seq->known_len = seq->prompt_len + atomic_load_explicit(&seq->out_count, memory_order_relaxed);
    if (ends_by_mask(sched, seq, now_us))
        return true;
    sched_taken(sched, seq);
    return false;
}

static void put(struct sched_sampling *sampling, struct seq *seq)
{
    sampling->rows[sampling->plan.count] = (struct gpu_masked){
        .slot = seq->slot, .position = seq->num_computed, .mask = seq->mask->bits};
    sampling->seqs[sampling->plan.count++] = seq;
}

/* It is to be in the sampling. */
static bool is_ready(struct sched *sched, struct seq *seq, time_us now_us)
{
    if (!seq->kept || waits(seq))
        return false;
    if (seq_mask_state(seq->mask) == SEQ_MASK_READY && seq->mask->forced_count > 0) {
        (void)takes_forced(sched, seq, now_us);
        return false;
    }
    return !ends_by_mask(sched, seq, now_us);
}

const struct gpu_sampling *sched_sampling(struct sched *sched, time_us now_us)
{
    if (sched->sampling_last - sched->sampling_done == sched->limits.samplings_max)
        return NULL;
    /* Those whose masks are in the making come along while the step behind is not planned yet. */
    bool gathers = sched_in_flight(sched) == sched->limits.depth || now_us < sched_hold(sched);
    if (gathers && sched_masks_late(sched))
        return NULL;
    struct sched_sampling *sampling = sched_sampling_of(sched, sched->sampling_last + 1);
    sampling->plan =
        (struct gpu_sampling){.number = sched->sampling_last + 1, .rows = sampling->rows};
    for (struct list *link = sched->decode.next, *next; link != &sched->decode; link = next) {
        struct seq *seq = container_of(link, struct seq, run_link);
        next = link->next;
        if (sampling->plan.count < sched->limits.sampling_rows_max && is_ready(sched, seq, now_us))
            put(sampling, seq);
    }
    return sampling->plan.count > 0 ? &sampling->plan : NULL;
}

void sched_sampling_submitted(struct sched *sched)
{
    struct sched_sampling *sampling = sched_sampling_of(sched, ++sched->sampling_last);
    sampling->after = sched->step_last;
    sched->stats->samplings_total++;
    for (uint32_t i = 0; i < sampling->plan.count; i++) {
        struct seq *seq = sampling->seqs[i];
        seq->kept = false;
        seq->being_sampled = true;
        seq->in_flight++;
        if (seq->num_computed == sched_final_len(seq))
            sched_drain(sched, seq);
    }
}

bool sched_sampling_is_next(const struct sched *sched)
{
    uint64_t next = sched->sampling_done + 1;
    return next <= sched->sampling_last &&
           sched->samplings[next % GPU_SAMPLINGS_MAX].after <= sched->step_done;
}

static void take_sample(struct sched *sched, struct seq *seq, const struct gpu_sample *sample,
                        const struct gpu_top *tops, time_us now_us)
{
    seq->being_sampled = false;
    seq->in_flight--;
    if (sched_take_token(sched, seq, sample, tops, now_us))
        return;
    sched->calls.mask(sched->calls.context, seq, sample->token);
    sched_taken(sched, seq);
}

void sched_sampling_complete(struct sched *sched, const struct gpu_results *results, time_us now_us)
{
    struct sched_sampling *sampling = sched_sampling_of(sched, ++sched->sampling_done);
    assert(results->step == sched->sampling_done && results->sample_count == sampling->plan.count);
    assert(sampling->after <= sched->step_done);
    for (uint32_t i = 0; i < sampling->plan.count; i++) {
        struct seq *seq = sampling->seqs[i];
        const struct gpu_top *tops =
            results->tops ? &results->tops[(size_t)i * GPU_LOGPROBS_MAX] : NULL;
        if (seq != NULL)
            take_sample(sched, seq, &results->samples[i], tops, now_us);
        else
            sched->stats->wasted_rows_total++;
    }
}

void sched_count_late(struct sched *sched, const struct sched_step *step)
{
    list_each(link, &sched->decode)
    {
        const struct seq *seq = container_of(link, struct seq, run_link);
        /* It would have stood in this step. */
        if (waits(seq) && seq->num_computed < sched_final_len(seq) &&
            seq->last_scheduled_step + sched->limits.stages <= step->plan.step)
            sched->stats->masks_late_total++;
    }
}
