/* Guesses of a sequence's next tokens, which a row brings along, or has the draft model make, and
 * the device checks: who has any, how many, and what became of them. */
#include <assert.h>
#include <string.h>

#include "daemon/sched/sched_inner.h"

#define READ_MOST 8192u /* tokens of texts that a turn reads */
#define TURN_US 100.0   /* a step that waits for the results before it begins so much later */
#define RATE_FIRST 0.5  /* of guesses behind what stands, those that stand: before any is known */
#define RATE_SHARE 0.25 /* of what a row tells in that */
#define RATE_DRIFT (1.0 / 256) /* back to that, with each token that nothing was tried for */
#define COST_SHARE 0.125       /* of what a step tells in what a guess costs */
#define PAUSE_FIRST 4u  /* tokens without guesses after a row of which none stood; twice as many */
#define PAUSE_MOST 256u /* each time, up to this */

static struct lookup_text text_of(const struct seq *seq)
{
    uint32_t out = atomic_load_explicit(&seq->out_count, memory_order_relaxed);
    return (struct lookup_text){.prompt = seq->prompt,
                                .out = seq->out_tokens,
                                .prompt_len = seq->prompt_len,
                                .len = seq->prompt_len + out};
}

static bool may_guess(const struct sched *sched, const struct seq *seq)
{
    return sched_guesses(sched) && seq->params.job == JOB_GENERATE && seq->mask == NULL &&
           !seq->params.no_drafts && seq->phase == PHASE_DECODE &&
           (seq->draft.pause == 0 || sched->options.drafts_always);
}

/* Somebody waits to be read: what a step has left is theirs. */
static bool is_loaded(const struct sched *sched)
{
    if (sched->options.drafts_always)
        return false;
    return sched->waiting_count > 0 || !list_empty(&sched->prefill) || !cost_known(&sched->cost);
}

void sched_drafts_begin(struct sched *sched)
{
    sched->lookup_left = READ_MOST;
}

/* As many as pay: the j-th guess stands with rate^j, which is so much of a row's part of the step,
 * and takes what the cost model says, and a row's part of what the draft model takes for it;
 * together they make up for the wait. */
static uint32_t worth(struct sched *sched, const struct seq *seq, uint32_t most)
{
    if (sched->options.drafts_always)
        return most;
    const struct cost_work work = sched_decode_work(sched);
    double before_us = cost_predict_us(&sched->cost, &work),
           share_us = before_us / (double)work.rows;
    double made_us = sched->options.draft_model ? sched->draft_share * share_us : 0;
    double stands = 1, gain_us = 0, best_us = TURN_US;
    uint32_t count = 0;
    for (uint32_t j = 1; j <= most; j++) {
        stands *= seq->draft.rate;
        if (gain_us + stands * share_us * (most - j + 1) <= best_us)
            break; /* nor with all that are left */
        struct cost_work more = work;
        more.tokens += j;
        more.kv += j;
        more.pairs += (uint64_t)j * seq->num_computed;
        double after_us = cost_predict_us(&sched->cost, &more);
        gain_us += stands * share_us - (after_us - before_us) - made_us;
        before_us = after_us;
        if (gain_us > best_us) {
            best_us = gain_us;
            count = j;
        }
    }
    return count;
}

/* Of those found, the most that it may have: its last token is sampled, not guessed. */
static uint32_t most_of(const struct sched *sched, const struct seq *seq)
{
    uint32_t left = sched_final_len(seq) - seq->num_computed;
    return left > 1 ? sched_min(left - 1, sched->options.drafts_max) : 0;
}

/* In its own text, which is read as far as this turn has time for it; 0: nothing, or not yet. */
static uint32_t found_in_text(struct sched *sched, const struct seq *seq, int32_t *ret_guesses)
{
    struct lookup *lookup = &sched->lookups[seq->slot];
    const struct lookup_text text = text_of(seq);
    if (!lookup_read(lookup, &text, &sched->lookup_left))
        return 0;
    return lookup_find(lookup, &text, ret_guesses, most_of(sched, seq));
}

/* How many guesses there may be; the draft model makes any number, from what it can read before. */
static uint32_t found(struct sched *sched, const struct seq *seq, int32_t *ret_guesses)
{
    if (!sched->options.draft_model)
        return found_in_text(sched, seq, ret_guesses);
    return sched_draft_unread(seq) <= sched->limits.unread_max ? most_of(sched, seq) : 0;
}

bool sched_draft_reads(const struct sched *sched, const struct seq *seq)
{
    return sched_guesses(sched) && sched->options.draft_model &&
           (seq->params.job == JOB_GENERATE || seq->caches);
}

void sched_draft_start(struct sched *sched, struct seq *seq)
{
    seq->draft = (struct seq_draft){.rate = seq->draft.pause_next ? seq->draft.rate : RATE_FIRST,
                                    .pause_next = PAUSE_FIRST};
    if (sched->lookups != NULL)
        lookup_clear(&sched->lookups[seq->slot]);
}

bool sched_drafts_awaited(const struct sched *sched)
{
    if (!sched_guesses(sched) || is_loaded(sched))
        return false;
    list_each(link, &sched->decode)
    {
        if (sched_draft_awaits(sched, container_of(link, struct seq, run_link)))
            return true;
    }
    return false;
}

void sched_draft_guess(struct sched *sched, struct seq *seq)
{
    seq->draft.next = 0;
    if (seq->in_flight > 0 || !may_guess(sched, seq) || is_loaded(sched))
        return;
    assert(text_of(seq).len == seq->num_computed + 1);
    uint32_t most = found(sched, seq, seq->draft.ids);
    seq->draft.next = most > 0 ? worth(sched, seq, most) : 0;
}

void sched_draft_submitted(struct sched *sched, struct seq *seq, const struct gpu_row *row)
{
    if (seq->draft.waits && row->drafts == 0)
        seq->draft.pause = PAUSE_FIRST; /* it waited for nothing */
    seq->draft.in_flight = row->drafts;
    seq->draft.by_ids = row->drafts > 0;
    seq->draft.uncounted = 0;
    seq->draft.waits = false;
    if (row->want & GPU_DRAFT && row->drafts == 0)
        seq->draft.read = row->position + row->q_len;
    sched->stats->tokens_drafted_total += row->drafts;
}

/* Its next row waits for its tokens where they may be guessed then. */
void sched_draft_told(struct sched *sched, struct seq *seq, bool drafted)
{
    int32_t guesses[GPU_DRAFTS_MAX];
    struct seq_draft *draft = &seq->draft;
    if (!sched_guesses(sched) || seq->phase != PHASE_DECODE)
        return;
    if (!drafted) {
        draft->pause -= draft->pause > 0;
        draft->rate += RATE_DRIFT * (RATE_FIRST - draft->rate);
    }
    if (!may_guess(sched, seq) || is_loaded(sched))
        return;
    uint32_t most = found(sched, seq, guesses);
    draft->waits = most > 0 && worth(sched, seq, most) > 0;
}

/* Those behind the first that fell say nothing. */
static void learn(struct seq_draft *draft, uint32_t drafted, uint32_t stood)
{
    draft->rate += RATE_SHARE * ((double)stood / sched_min(drafted, stood + 1) - draft->rate);
    if (stood > 0) {
        draft->pause_next = PAUSE_FIRST;
        return;
    }
    draft->pause = draft->pause_next;
    draft->pause_next = sched_min(2 * draft->pause_next, PAUSE_MOST);
}

void sched_draft_stands(struct sched *sched, struct seq *seq, const struct gpu_row *row,
                        uint32_t stood)
{
    sched->stats->tokens_accepted_total++;
    seq->accepted++;
    if (seq->phase == PHASE_DECODE) { /* else it starts anew */
        sched_compute(sched, seq, 1);
        sched_cache_computed(sched, seq);
    }
    sched_cache_done(sched, seq, row->position + row->q_len - row->drafts + stood);
}

/* The draft model has read its guesses but the last, of which it made no further one; what is a head
 * reads those that stand once more. */
void sched_draft_taken(const struct sched *sched, struct seq *seq, const struct gpu_row *row,
                       uint32_t stood)
{
    uint32_t drafted = row->drafts;
    uint32_t known = sched->model.draft_rereads ? 0 : sched_min(stood, drafted - 1);
    if (row->want & GPU_DRAFT && seq->phase == PHASE_DECODE)
        seq->draft.read = row->position + 1 + known;
    seq->draft.in_flight = 0;
    seq->draft.uncounted = sched_counts_tokens(seq) ? stood : 0;
    learn(&seq->draft, drafted, stood);
}

/* A guess of every row is a step of the draft model, as long as its longest row has some. */
void sched_draft_learn(struct sched *sched, const struct sched_step *step, uint64_t guesses_ns)
{
    struct cost_work work = {.rows = 0};
    uint32_t most = 0;
    for (uint32_t i = 0; i < step->plan.row_count; i++) {
        const struct gpu_row *row = &step->rows[i];
        if (!(row->want & GPU_DRAFT) || row->drafts == 0)
            continue;
        cost_add_row(&work, row->position, 1);
        most = row->drafts > most ? row->drafts : most;
    }
    double step_us = cost_known(&sched->cost) ? cost_predict_us(&sched->cost, &work) : 0;
    if (step_us <= 0)
        return;
    double share = (double)guesses_ns / 1000.0 / most / step_us;
    sched->draft_share += COST_SHARE * (share - sched->draft_share);
}
