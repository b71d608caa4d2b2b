/* Between the files of the scheduler: sched.c (sequences), sched_plan.c, sched_decode.c (a step),
 * sched_memory.c (blocks and slabs), sched_preempt.c (who gives way), sched_share.c (prompts in
 * common), sched_cache.c (what was computed before), sched_tier.c, sched_fetch.c (what of that is
 * in host memory), sched_sampling.c (constrained ones), sched_drafts.c (guesses), sched_flight.c
 * (what becomes of the plan), sched_results.c. Nobody else includes this but tests. */
#pragma once

#include "daemon/sched/sched.h"

#define SCHED_RETRY_US 100000u   /* until the device is asked again for memory that it refused */
#define SCHED_ABOVE_US 10000000u /* so long one that came above others makes the next likely */

static inline struct sched_step *sched_step_of(struct sched *sched, uint64_t step)
{
    return &sched->steps[step % (sched->limits.depth + 1)];
}

static inline struct kv_table *sched_table(struct sched *sched, const struct seq *seq)
{
    return &sched->tables[seq->slot];
}

/* Positions whose KV is written when the last row of the sequence has run. */
static inline uint32_t sched_final_len(const struct seq *seq)
{
    switch (seq->params.job) {
    case JOB_GENERATE:
        return seq->prompt_len + seq->sampling.max_tokens - 1;
    case JOB_SCORE:
        /* the last token has no successor to score, but where several are asked for */
        return seq->next_count > 0 ? seq->prompt_len : seq->prompt_len - 1;
    case JOB_EMBED:
    case JOB_PROGRAM: /* never comes here */
        break;
    }
    return seq->prompt_len;
}

/* What users' turns, or the share of lower priorities, gave it keeps; and it gives way once. */
static inline bool sched_yields(const struct seq *seq)
{
    return !seq->owed && !seq->low && !seq->gave_way;
}

static inline uint32_t sched_level(const struct seq *seq)
{
    return (uint32_t)(seq->priority - WAITING_PRIORITY_MIN);
}

static inline uint32_t sched_min(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static inline uint32_t sched_blocks_for(const struct sched *sched, uint32_t positions)
{
    return (positions + sched->kv.block_tokens - 1) / sched->kv.block_tokens;
}

/* It has a penalty: the device counts the tokens that it has seen. */
static inline bool sched_counts_tokens(const struct seq *seq)
{
    const struct sampler *sampler = &seq->sampling.sampler;
    return seq->params.job == JOB_GENERATE &&
           (sampler->repetition_penalty != 1 || sampler->presence_penalty != 0 ||
            sampler->frequency_penalty != 0);
}

static inline int32_t sched_token_at(const struct seq *seq, uint32_t position)
{
    return position < seq->prompt_len ? seq->prompt[position]
                                      : seq->out_tokens[position - seq->prompt_len];
}

/* Who comes above those that run waits for steps that were sent, and for no others. */
static inline bool sched_expects_above(const struct sched *sched)
{
    return sched->above_us != 0 && sched->now_us <= sched->above_us + SCHED_ABOVE_US;
}

/* Of a row of one token for each that decodes. */
static inline struct cost_work sched_decode_work(const struct sched *sched)
{
    const uint64_t rows = sched->decode_count, sees = sched->decode_computed + rows;
    return (struct cost_work){.rows = rows, .tokens = rows, .kv = sees, .pairs = sees};
}

/* sched.c */
/* Who starts first: who was sent before its turn, then whose turn is earlier; which alone says
 * whose prompt is read first. */
bool sched_goes_before(const struct seq *a, const struct seq *b);
bool sched_is_read_before(const struct seq *a, const struct seq *b);
void sched_wait(struct sched *sched, struct seq *seq); /* onto `waiting` */
void sched_unwait(struct sched *sched, struct seq *seq);
/* Prompt tokens that are to be read, of started sequences and of those that wait here. */
uint64_t sched_backlog(const struct sched *sched);
void sched_release_slot(struct sched *sched, struct seq *seq);
void sched_count_slot(struct sched *sched, const struct seq *seq, bool has); /* it has, or had */
void sched_compute(struct sched *sched, struct seq *seq, uint32_t tokens); /* more of it is */
void sched_end(struct sched *sched, struct seq *seq, enum finish finish, time_us now_us);
void sched_end_error(struct sched *sched, struct seq *seq, const struct error *error,
                     time_us now_us);

/* sched_memory.c */
/* A block for the group, from wherever one can be had, or KV_NONE. */
uint32_t sched_take_block(struct sched *sched, uint32_t g, time_us now_us);
/* The device lacks memory: what is cached goes, with the slabs that are empty then. */
void sched_yield_cache(struct sched *sched);
/* Blocks for positions below `length`: takes what is missing and writes appends, as far as there
 * are blocks; returns how many positions now have theirs. */
uint32_t sched_reach(struct sched *sched, struct sched_step *step, struct seq *seq, uint32_t length,
                     time_us now_us);
/* Preempts until the decode rows of the next step have their blocks, or will when the steps in
 * flight have ended. */
void sched_make_room(struct sched *sched, time_us now_us);
/* Adds the blocks per group that the rest of a started prompt will take. */
void sched_promise(const struct sched *sched, const struct seq *seq, uint64_t *promised);
/* Blocks of a group that a whole prompt lacks, beside what is promised to others; those that steps
 * in flight still hold are there or not. */
uint64_t sched_lacks(struct sched *sched, struct seq *seq, uint32_t g, uint64_t promised,
                     bool retired_too, time_us now_us);
/* Whether there are blocks for the whole prompt, beside what is promised to others; retired ones
 * among them, or free ones alone, as copies want them. */
bool sched_can_start(struct sched *sched, struct seq *seq, const uint64_t *promised,
                     bool retired_too, time_us now_us);
void sched_plan_moves(struct sched *sched, struct sched_step *step);
void sched_undo_moves(struct sched *sched, struct sched_step *step);

/* sched_preempt.c */
bool sched_preempt_youngest(struct sched *sched); /* false when only one has a slot */
/* The first that waits was sent before its turn: whoever is to make way for it does, once. */
void sched_make_way(struct sched *sched, time_us now_us);
/* Those that wait for slots and blocks which lower priorities have get them, as they come. */
void sched_make_places(struct sched *sched, time_us now_us);
/* Of those that run, how many are below it: all, and those that yield to it. */
uint32_t sched_below(const struct sched *sched, const struct seq *seq, uint32_t *ret_yield);
/* Whoever is free to start would do so in a place that was made for one above it. */
bool sched_place_is_taken(const struct sched *sched, const struct seq *seq);
/* After preemption, when no step in flight names the sequence. */
void sched_requeue(struct sched *sched, struct seq *seq);
/* What of it is to be read: its prompt, and what it has said or answered before. */
void sched_begin_with(struct seq *seq);

/* sched_share.c */
/* A sequence comes, and goes: with its prompt's others. */
void sched_share_join(struct sched *sched, struct seq *seq);
void sched_share_leave(struct sched *sched, struct seq *seq);
/* The first that waits and need not wait for another to read its prompt, or a part of it; or NULL.
 */
struct seq *sched_share_next(struct sched *sched);
/* It does wait for that. */
bool sched_share_passes(struct sched *sched, struct seq *seq);
/* Blocks that it would start with, now, and that others hold as well. */
uint32_t sched_share_blocks(struct sched *sched, struct seq *seq, uint32_t g);
/* Whether the plan can still name all that it would start with. */
bool sched_share_fits(struct sched *sched, const struct sched_step *step, struct seq *seq);
/* Of the tokens that a plan can name, how many a sequence's that it does not compute may be. */
uint32_t sched_share_ids(const struct sched *sched);
/* The plan opens it: it starts with these blocks, or is the one that reads the prompt. */
void sched_share_begin(struct sched *sched, struct sched_step *step, struct seq *seq);
void sched_share_undo(struct sched *sched, struct seq *seq); /* its appends are undone */
/* A row of it was submitted. */
void sched_share_computed(struct sched *sched, struct seq *seq);
/* It gives its slot up. */
void sched_share_released(struct seq *seq);
/* Gives up the pins of one prompt, which alone hold some memory. False: none do. */
bool sched_share_reclaim(struct sched *sched);
/* Pins of a block that is moved; returns how many. */
uint32_t sched_share_patch(struct sched *sched, const struct gpu_move *move, uint32_t index);
void sched_share_unpatch(struct sched *sched, const struct gpu_move *move);
/* Prompt tokens that are to be read for all of those that wait for them, and by nobody yet. */
uint64_t sched_share_backlog(const struct sched *sched);

/* Of prefill_len, what a sequence that waits leaves to others, or will find. */
static inline uint32_t sched_share_part(const struct seq *seq)
{
    return seq->siblings != NULL ? seq->siblings->len : seq->cache.expected;
}

/* sched_cache.c */
void sched_cache_join(struct seq *seq); /* it comes */
/* It waits from now on: how much it may find is guessed. */
void sched_cache_expect(struct sched *sched, struct seq *seq);
/* One that was here first computes what it would need next. */
bool sched_cache_waits(struct sched *sched, struct seq *seq);
/* Blocks that it would begin with, now; and how many of them are held anyway. */
uint32_t sched_cache_hit(struct sched *sched, struct seq *seq);
uint32_t sched_cache_saves(struct sched *sched, struct seq *seq, uint32_t g);
uint32_t sched_cache_most(const struct sched *sched,
                          const struct seq *seq); /* that it may begin with */
/* The plan opens it: it begins with what was found, if anything was. */
void sched_cache_begin(struct sched *sched, struct sched_step *step, struct seq *seq);
/* Likewise, with the blocks that its table names by now. */
void sched_begin_behind(struct sched *sched, struct sched_step *step, struct seq *seq,
                        uint32_t position);
void sched_cache_started(struct sched *sched, struct seq *seq); /* where it begins is known */
void sched_cache_undo(struct sched *sched, struct seq *seq);
/* A row of it was submitted; its results, up to this position, were taken. */
void sched_cache_computed(struct sched *sched, struct seq *seq);
void sched_cache_done(struct sched *sched, struct seq *seq, uint32_t position);
/* It waits here from now on, or no more: its prompt's blocks are given up after others. */
int sched_wants_init(struct sched *sched);
void sched_want(struct sched *sched, struct seq *seq);
void sched_unwant(struct sched *sched, struct seq *seq);
/* A block of the group is given up that only the cache holds, of those nobody waits for if that can
 * be seen soon. */
bool sched_cache_evict(struct sched *sched, uint32_t group);
/* It gives its slot up; it is to start again; it ends; what it computed is no number. */
void sched_cache_released(struct sched *sched, struct seq *seq);
void sched_cache_preempted(struct sched *sched, struct seq *seq);
void sched_cache_leave(struct sched *sched, struct seq *seq);
void sched_cache_spoiled(struct sched *sched, struct seq *seq);
/* What nobody has used for long goes; when the next does; all of it goes. */
void sched_cache_expire(struct sched *sched, time_us now_us);
time_us sched_cache_due_us(const struct sched *sched);
void sched_cache_give_up(struct sched *sched);

/* sched_tier.c */
int sched_tier_init(struct sched *sched);
void sched_tier_destroy(struct sched *sched);
/* A block was named; it may leave later. */
void sched_tier_named(struct sched *sched, uint32_t node);
/* Blocks are about to leave that are not in host memory yet, but will be soon. */
bool sched_tier_is_writing(const struct sched *sched);
/* Whether the cached node may leave, as nobody needs its memory: the tier has it, or takes none. */
bool sched_tier_lets_go(const struct sched *sched, uint32_t node);
/* All idle memory goes back. The device failed or stops: no copy's end is told any more. */
void sched_tier_give_up(struct sched *sched);
void sched_tier_forget(struct sched *sched);

/* sched_fetch.c */
/* For the next one that waits: what comes back for it, if anything does; and it has, or never will.
 */
void sched_fetch_plan(struct sched *sched, struct sched_copies *copies, time_us now_us);
void sched_fetch_ended(struct sched *sched, struct sched_copies *copies, bool good);
/* Of what it would not find by now, positions that a copy spares it, each less what it takes beside
 * one that is computed. */
uint32_t sched_fetch_expect(struct sched *sched, struct seq *seq, uint32_t hit);
/* Whether it is still to be seen if anything is copied for it. */
bool sched_fetch_may(const struct sched *sched, const struct seq *seq);
/* It is not seen yet whether what the tier has of it is copied: it does not start before. */
bool sched_fetch_awaited(struct sched *sched, struct seq *seq);
/* What it would need next is being copied for another. */
bool sched_fetch_comes(struct sched *sched, struct seq *seq);
void sched_fetch_leave(struct sched *sched, const struct seq *seq); /* it ends */

#define SCHED_TILE_TOKENS 64u /* that products compute at a time */
#define SCHED_TILES_FROM 256u /* in a smaller step the rest of a tile is too much of it */

/* sched_sampling.c */
struct sched_sampling *sched_sampling_of(struct sched *sched, uint64_t number);
/* Some sequence goes on once it has its mask, or its token; some mask is in the making. */
bool sched_masks_wanted(const struct sched *sched);
bool sched_masks_late(const struct sched *sched);
/* Those that sit a step out: it was submitted. */
void sched_count_late(struct sched *sched, const struct sched_step *step);

/* sched_drafts.c */
/* Next tokens are guessed at all. */
static inline bool sched_guesses(const struct sched *sched)
{
    return sched->options.drafts_max > 0;
}
/* It has a slot from now on. */
void sched_draft_start(struct sched *sched, struct seq *seq);
/* Its next row waits for tokens that are on their way; so does the next step, for someone's. */
static inline bool sched_draft_awaits(const struct sched *sched, const struct seq *seq)
{
    return sched_guesses(sched) && seq->in_flight > 0 &&
           (seq->draft.in_flight > 0 || seq->draft.waits);
}
bool sched_drafts_awaited(const struct sched *sched);
/* Sets draft.next and draft.ids, for the step that is planned. */
void sched_draft_guess(struct sched *sched, struct seq *seq);
void sched_draft_submitted(struct sched *sched, struct seq *seq, const struct gpu_row *row);
/* Of its row's guesses the first so many stand, and the tokens before them were told. */
void sched_draft_stands(struct sched *sched, struct seq *seq, const struct gpu_row *row,
                        uint32_t stood);
/* All results of a row with guesses, so many of which stand, were told; those of any row were. */
void sched_draft_taken(const struct sched *sched, struct seq *seq, const struct gpu_row *row,
                       uint32_t stood);
void sched_draft_told(struct sched *sched, struct seq *seq, bool drafted);
/* Tokens that the draft model has not read, before those of its next row. */
static inline uint32_t sched_draft_unread(const struct seq *seq)
{
    return seq->num_computed - sched_min(seq->draft.read, seq->num_computed);
}
/* Whether the draft model reads the row of a prompt: guesses may follow it, here or where it is
 * found again. */
bool sched_draft_reads(const struct sched *sched, const struct seq *seq);
/* What the draft model took for a step's guesses. */
void sched_draft_learn(struct sched *sched, const struct sched_step *step, uint64_t guesses_ns);
/* A turn begins: others decode than in the one before, and texts are read again. */
void sched_drafts_begin(struct sched *sched);

/* sched_results.c */
/* True when the sequence has ended. */
bool sched_take_token(struct sched *sched, struct seq *seq, const struct gpu_sample *sample,
                      const struct gpu_top *tops, time_us now_us);
/* Of a token that was neither sampled nor computed. */
bool sched_tell_token(struct sched *sched, struct seq *seq, int32_t token, bool finished,
                      time_us now_us);
/* It has had results, and goes on. */
void sched_taken(struct sched *sched, struct seq *seq);

/* sched_flight.c */
/* All of it is planned: its slot is given up. */
void sched_drain(struct sched *sched, struct seq *seq);

/* sched_limit.c */
/* For a step of these decode rows and up to tokens_max prompt tokens: what it may last, and the
 * prompt tokens that are enough. */
struct sched_limit {
    double us;
    uint32_t tokens;
};
struct sched_limit sched_limit(const struct sched *sched, const struct cost_work *work,
                               uint32_t tokens_max, time_us now_us);
/* Where they alone last so long already: whether so many tokens more add little to them. */
bool sched_chunk_is_sure(const struct sched *sched, const struct cost_work *work, uint32_t position,
                         uint32_t tokens);
/* Prompt tokens that are to be here: of a few steps beside the decode rows that there are, so that
 * one is planned while another runs. Whose turn comes later is behind them, whoever they are, so
 * more would be a wait that the order of users does not know of. */
uint64_t sched_prompts_ahead(const struct sched *sched);

/* sched_plan.c */
/* When the step behind the one that runs is to be planned at the earliest; 0 = now. */
time_us sched_hold(const struct sched *sched);
/* All that a plan did is taken back. */
void sched_undo(struct sched *sched, struct sched_step *step);
/* Nothing can run, and no step's end will change that: there is no KV. Someone gives way, or the
 * only one waits for the device to have memory again, for so long. False: a later turn may. */
bool sched_unstall(struct sched *sched, time_us now_us);
