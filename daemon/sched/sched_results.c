/* What a step's results mean for its sequences. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "daemon/sched/sched_inner.h"

/* Where the next result of each kind stands; results run in the order of rows. */
struct cursor {
    const struct gpu_results *results;
    uint32_t sample, score, embed;
    uint32_t guess[GPU_DRAFTS_MAX]; /* of the draft model's */
};

static void answered(struct seq *seq, uint32_t count)
{
    /* Release: the loop reads what stands below out_count. */
    atomic_fetch_add_explicit(&seq->out_count, count, memory_order_release);
}

static void stamp_token(struct sched *sched, struct seq *seq, time_us now_us)
{
    if (seq->stamps.first_token_us == 0) {
        seq->stamps.first_token_us = now_us;
        hist_add(&sched->stats->time_to_first_token, now_us - seq->arrived_us);
        hist_add(&sched->stats->prefill_time, now_us - seq->stamps.scheduled_us);
    } else {
        hist_add(&sched->stats->inter_token_latency, now_us - seq->stamps.last_token_us);
    }
    seq->stamps.last_token_us = now_us;
    sched->stats->generated_tokens_total++;
}

static void stamp_end(struct sched *sched, const struct seq *seq, uint32_t tokens)
{
    uint64_t us = seq->stamps.last_token_us - seq->stamps.first_token_us;
    hist_add(&sched->stats->decode_time, us);
    if (tokens > 1)
        hist_add(&sched->stats->time_per_output_token, us / (tokens - 1));
}

static bool all_finite(const float *values, size_t count)
{
    bool all = true;
    for (size_t i = 0; i < count; i++)
        all &= isfinite(values[i]) != 0;
    return all;
}

/* Something overflowed on the way: whatever followed would mean nothing. */
static bool end_not_finite(struct sched *sched, struct seq *seq, time_us now_us)
{
    const char *dtype = sched->model.dtype;
    struct error error;
    sched_cache_spoiled(sched, seq);
    error_set(&error, ERR_NOT_FINITE, "the model's values overflow, computed in %s%s", dtype,
              strcmp(dtype, "f16") == 0 ? "; the daemon's option --dtype bf16 has more range" : "");
    sched_end_error(sched, seq, &error, now_us);
    return true;
}

bool sched_tell_token(struct sched *sched, struct seq *seq, int32_t token, bool finished,
                      time_us now_us)
{
    uint32_t number = atomic_load_explicit(&seq->out_count, memory_order_relaxed);
    assert(number < seq->sampling.max_tokens);
    seq->out_tokens[number] = token;
    answered(seq, 1);
    stamp_token(sched, seq, now_us);
    bool full = number + 1 == seq->sampling.max_tokens;
    if (!finished && !full)
        return false;
    stamp_end(sched, seq, number + 1);
    sched_end(sched, seq, finished ? FINISH_STOP : FINISH_LENGTH, now_us);
    return true;
}

bool sched_take_token(struct sched *sched, struct seq *seq, const struct gpu_sample *sample,
                      const struct gpu_top *tops, time_us now_us)
{
    uint32_t number = atomic_load_explicit(&seq->out_count, memory_order_relaxed);
    uint32_t top_max = seq->sampling.logprobs > 0 ? (uint32_t)seq->sampling.logprobs : 0;
    assert(number < seq->sampling.max_tokens);
    /* Where nothing that the mask allows has a finite logit, something else may be sampled. */
    if (!isfinite(sample->logprob) || (seq->mask && !seq_mask_allows(seq->mask, sample->token)))
        return end_not_finite(sched, seq, now_us);
    if (seq->sampling.logprobs >= 0)
        seq->out_logprobs[number] = sample->logprob;
    for (uint32_t i = 0; i < top_max; i++)
        seq->out_tops[(size_t)number * top_max + i] =
            i < sample->top_count ? tops[i] : (struct gpu_top){.token = -1};
    return sched_tell_token(sched, seq, sample->token, sample->finished, now_us);
}

/* tops: NULL where the row asked for none. */
static bool take_scores(struct sched *sched, struct seq *seq, const struct gpu_score *scores,
                        const struct gpu_top *tops, uint32_t count, time_us now_us)
{
    uint32_t top_max = seq->sampling.logprobs > 1 ? (uint32_t)seq->sampling.logprobs : 0;
    uint32_t number = atomic_load_explicit(&seq->out_count, memory_order_relaxed);
    assert(number + count <= seq_score_count(seq));
    for (uint32_t i = 0; i < count; i++)
        if (!isfinite(scores[i].logprob))
            return end_not_finite(sched, seq, now_us);
    for (uint32_t i = 0; i < count; i++)
        seq->out_scores[number + i] = (struct message_score){.logprob = scores[i].logprob,
                                                             .top_token = scores[i].top_token,
                                                             .top_logprob = scores[i].top_logprob};
    for (uint32_t i = 0; i < count && top_max > 0; i++)
        memcpy(seq->out_tops + (size_t)(number + i) * top_max, tops + (size_t)i * GPU_LOGPROBS_MAX,
               top_max * sizeof(*tops));
    answered(seq, count);
    sched->stats->scored_tokens_total += count;
    if (number + count < seq_score_count(seq))
        return false;
    sched_end(sched, seq, FINISH_STOP, now_us);
    return true;
}

static bool take_rows(struct sched *sched, struct seq *seq, const float *rows, uint32_t count,
                      time_us now_us)
{
    uint32_t number = atomic_load_explicit(&seq->out_count, memory_order_relaxed);
    uint32_t all = seq->params.pooling == POOLING_ALL ? seq->prompt_len : 1;
    size_t hidden = sched->model.hidden;
    assert(number + count <= all);
    if (!all_finite(rows, count * hidden))
        return end_not_finite(sched, seq, now_us);
    memcpy(seq->out_rows + number * hidden, rows, count * hidden * sizeof(*rows));
    answered(seq, count);
    sched->stats->embedding_rows_total += count;
    if (number + count < all)
        return false;
    sched_end(sched, seq, FINISH_STOP, now_us);
    return true;
}

static void requeue_preempted(struct sched *sched, struct seq *seq)
{
    if (seq->phase == PHASE_PREEMPTED && seq->in_flight == 0) {
        list_remove(&seq->run_link);
        sched_requeue(sched, seq);
    }
}

void sched_taken(struct sched *sched, struct seq *seq)
{
    sched->calls.progressed(sched->calls.context, seq);
    requeue_preempted(sched, seq);
}

/* What the row's guesses were: the plan's, or what the draft model drew. */
static void take_guesses(struct cursor *cursor, const struct sched_step *step,
                         const struct gpu_row *row, int32_t guesses[GPU_DRAFTS_MAX])
{
    const int32_t *ids = step->ids + row->ids + row->q_len - row->drafts;
    for (uint32_t j = 0; j < row->drafts; j++)
        guesses[j] =
            row->want & GPU_DRAFT ? cursor->results->guesses[j][cursor->guess[j]++].token : ids[j];
}

/* Each of its samples stands while the guess behind the one before is what that was. *ret_stood:
 * the guesses that do. True: it has ended. */
static bool take_drafts(struct sched *sched, struct seq *seq, const struct gpu_row *row,
                        const int32_t *guesses, const struct gpu_results *results, uint32_t sample,
                        time_us now_us, uint32_t *ret_stood)
{
    uint32_t stood = 0;
    seq->drafted += row->drafts;
    for (;;) {
        const struct gpu_sample *of = &results->samples[sample + stood];
        if (sched_take_token(sched, seq, of,
                             &results->tops[(size_t)(sample + stood) * GPU_LOGPROBS_MAX], now_us))
            return true;
        if (stood == row->drafts || of->token != guesses[stood])
            break;
        sched_draft_stands(sched, seq, row, ++stood);
    }
    *ret_stood = stood;
    return false;
}

static void take_row(struct sched *sched, struct cursor *cursor, const struct sched_step *step,
                     uint32_t number, time_us now_us)
{
    const struct gpu_row *row = &step->rows[number];
    struct seq *seq = step->row_seq[number];
    const struct gpu_results *results = cursor->results;
    uint32_t sample = cursor->sample, score = cursor->score, embed = cursor->embed;
    uint32_t embed_count = row->want & GPU_EMBED_ALL                     ? row->q_len
                           : row->want & (GPU_EMBED_LAST | GPU_POOL_OUT) ? 1
                                                                         : 0;
    cursor->sample += row->want & GPU_SAMPLE ? 1 + row->drafts : 0;
    cursor->score += row->score_count;
    cursor->embed += embed_count;
    int32_t guesses[GPU_DRAFTS_MAX];
    take_guesses(cursor, step, row, guesses);
    if (number >= step->decode_rows)
        sched->stats->prompt_tokens_total += row->q_len;
    if (seq == NULL) {
        sched->stats->wasted_rows_total++;
        return;
    }
    seq->in_flight--;
    sched_cache_done(sched, seq, row->position + row->q_len - row->drafts);
    bool ended = false;
    bool gives = (row->want & (GPU_SAMPLE | GPU_KEEP)) == GPU_SAMPLE;
    uint32_t stood = 0;
    if (row->drafts > 0)
        ended = take_drafts(sched, seq, row, guesses, results, sample, now_us, &stood);
    else if (gives)
        ended = sched_take_token(sched, seq, &results->samples[sample],
                           &results->tops[(size_t)sample * GPU_LOGPROBS_MAX], now_us);
    else if (row->score_count > 0)
        ended = take_scores(sched, seq, &results->scores[score],
                            row->want & GPU_LOGPROBS
                                ? &results->score_tops[(size_t)score * GPU_LOGPROBS_MAX]
                                : NULL,
                            row->score_count, now_us);
    else if (embed_count > 0)
        ended = take_rows(sched, seq, &results->embeddings[(size_t)embed * sched->model.hidden],
                          embed_count, now_us);
    if (ended)
        return;
    if (row->drafts > 0)
        sched_draft_taken(sched, seq, row, stood);
    if (gives)
        sched_draft_told(sched, seq, row->drafts > 0);
    if (gives || row->score_count > 0 || embed_count > 0)
        sched_taken(sched, seq);
    else
        requeue_preempted(sched, seq);
}

static void learn(struct sched *sched, const struct sched_step *step,
                  const struct gpu_results *results, time_us now_us)
{
    struct stats_worker *stats = sched->stats;
    stats->steps_total++;
    if (results->waited) {
        sched->device_end_ns = results->end_ns;
        return;
    }
    hist_add(&stats->step_time, now_us - step->submitted_us);
    if (results->in_ns > 0)
        hist_add(&stats->step_in, results->in_ns / 1000);
    if (results->out_ns > 0)
        hist_add(&stats->step_out, results->out_ns / 1000);
    if (results->end_ns < results->start_ns || results->end_ns == 0)
        return;
    double us = (double)(results->end_ns - results->start_ns) / 1000.0;
    uint64_t begin_ns = results->start_ns - results->guesses_ns;
    hist_add(&stats->step_compute, (results->end_ns - begin_ns) / 1000);
    cost_learn(&sched->cost, &step->work, us);
    if (results->guesses_ns > 0)
        sched_draft_learn(sched, step, results->guesses_ns);
    if (step->ahead && begin_ns >= sched->device_end_ns)
        hist_add(&stats->step_gap, (begin_ns - sched->device_end_ns) / 1000);
    sched->device_end_ns = results->end_ns;
}

void sched_complete(struct sched *sched, const struct gpu_results *results, time_us now_us)
{
    struct sched_step *step = sched_step_of(sched, sched->step_done + 1);
    assert(sched_in_flight(sched) > 0 && results->step == step->plan.step);
    assert(!sched_sampling_is_next(sched));
    sched->step_done++;
    sched->running_since_us = sched->now_us = now_us;
    kv_completed(&sched->kv, sched->step_done);
    learn(sched, step, results, now_us);
    sched_drafts_begin(sched);
    struct cursor cursor = {.results = results};
    for (uint32_t i = 0; i < step->plan.row_count; i++)
        take_row(sched, &cursor, step, i, now_us);
}
