/* The scheduler of one replica: state and time in, a step's plan out. Pure: no threads, no device,
 * no clock; memory of the device is asked for through two callbacks, ended and progressed sequences
 * are told through two more, so that a test or a simulation can stand in for all of them.
 *
 * One invariant holds between calls: computed <= len. `computed` (seq.num_computed) counts
 * positions whose KV is written by the steps that were submitted; `len` counts tokens that are
 * known or being sampled: prompt, results, and rows in flight that sample. A row takes it nearer to
 * `len`, one that reaches it samples, and `len` grows. So the phases are no more than how far
 * behind a sequence is:
 *  - waiting: computed = 0, nothing in flight;
 *  - prefill: computed < len = what is to be read, which is prompt and all results so far; it
 *    begins with what another sequence of the same prompt has computed;
 *  - decode: computed = len - 1, whether or not the host has seen the last tokens;
 *  - draining: computed is all that will ever be, and the rest is in flight;
 *  - preempted: rows of it are in flight, and then it waits, with computed = 0.
 * sched_check() says whether that is so; the simulation asks after every turn of a worker.
 *
 * A step is made in three calls: sched_plan builds it and changes nothing that matters, then either
 * sched_submitted (it is in flight now) or sched_refused (the device had no scratch memory for it:
 * all is as before, and the next plan will be smaller). sched_complete takes its results, in order.
 *
 * What a plan contains, in this order of claim:
 *  - decode rows: every sequence that has read its prompt, one token each, input GPU_LAST. They
 * need nothing from the host, so step n+1 has them while n runs (shortly before n ends, if it has
 * nothing else: a prompt that comes until then goes first). max_tokens is counted in planned
 * rows: no row is planned after the last. An end token shows only in results; the row that step n+1
 * may have by then is wasted, writes only into blocks that stay the sequence's until n+1 has ended,
 * and its result is not used.
 * On a pipeline the decode rows are shared out over as many steps as there are stages, so that a
 * row's token has come back from the last stage when the first one needs it, and each stage has a
 * step; a row may stand in a step before that where the step would be empty.
 *  - a chunk of each prompt that was not advanced for chunk_every steps, and of the first one that
 *    waits, when none was started for so many;
 *  - chunks of new sequences whose turn is before those of all prompts that are being read, of
 * other prompts, in their turn, and then of other new sequences, as long as the cost model keeps
 * the step within what the targets for first and for further tokens leave (sched_limit.c), never
 * beyond itl_target_us; the first one has its least chunk also where decode rows alone leave no
 * time for it, if it adds little to them. With no decode row in the step there are no such bounds.
 * New sequences start by priority, then as their users' turns are (seq.turn), then in the order in
 * which they came; those preempted keep their places. Nobody overtakes: the first waits for a slot
 * and for blocks for its whole prompt, and those behind it wait too.
 *
 * A constrained sequence (seq.mask) is sampled behind its step, once its mask is there, which a
 * thread beside this one makes from the token before (sched_sampling.c). Its row keeps logits
 * instead of sampling; who has them and no mask when a step is planned sits that out, and nobody
 * waits for it. While a step runs, the one behind it is planned as late as it may be where some
 * mask is missing. On a pipeline a row follows once its token has been told, with its id. Where a
 * mask leaves one token it is taken without being sampled, and those in a row are read by one row.
 *
 * A sequence whose text repeats itself brings guesses of its next tokens along (sched_drafts.c).
 * Its row samples behind each; those that are what was sampled before them stand, and `computed`
 * comes so much further when the step has ended. Until then no further row of it is planned, and
 * where nobody waits to be read no step is: so a step with guesses is followed by a turn of the
 * host. How many come from what stood so far and from the cost model; none while prompts are read.
 *
 * Sequences of one prompt compute it once (sched_share.c): while the first that started reads it,
 * the others are passed over where they wait, and then start with its whole blocks, which are
 * counted and which nobody writes any more.
 *
 * What was computed is kept while nobody needs its memory, and found again (sched_cache.c,
 * cache.h): a sequence begins behind the whole blocks that are there, and waits for one that came
 * before it and is reading what both begin with. Blocks that only the cache holds are taken back
 * when blocks run short, before anybody gives way.
 *
 * A sequence that the loop sent before its turn (seq.owed) is the first that waits. When it cannot
 * start, one of those whom the loop named gives its slot and its blocks up, once, as for KV below.
 *
 * One of a higher priority that waits does not wait for those below: when it lacks a slot or
 * blocks, so many of them give theirs up as it takes, each once (sched_preempt.c).
 *
 * KV: blocks are taken when a step needs them, slabs are asked for when free blocks run out, and
 * one slab ahead of that. When growth is refused, decode rows that need a block make the youngest
 * sequence of the lowest priority give its blocks up (never the last one that has a slot). It keeps
 * what it generated, waits until no step in flight names it, and later reads prompt and generated
 * tokens as one prompt. A slab too many for kv_idle_release_us is emptied (moves in the plan) and
 * given back; when nothing runs for that long, all are.
 *
 * End of a sequence: at once, when it is known. Steps in flight forget it; its slot is closed by
 * the next plan and its blocks are retired (kv.h), so nothing of it is needed any more.
 *
 * One thread. Memory is taken in sched_init by the limits of the engine, none later.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "daemon/base/replica_api.h"
#include "daemon/base/seq.h"
#include "daemon/base/stats.h"
#include "daemon/sched/cache.h"
#include "daemon/sched/cost.h"
#include "daemon/sched/kv.h"
#include "daemon/sched/lookup.h"
#include "daemon/sched/tier.h"
#include "gpu/gpu.h"

#define SCHED_NEVER UINT64_MAX

struct sched_options {
    uint64_t ttft_target_us;     /* for first tokens, see sched_limit.c; 0 = as soon as can be */
    uint64_t itl_target_us;      /* what a step with decode rows may last; 0 = no bound */
    uint32_t chunk_every;        /* steps in which every started prompt advances, >= 1 */
    uint64_t kv_idle_release_us; /* until unused slabs go back */
    bool prefix_cache;
    uint64_t cache_idle_release_us; /* until blocks that only the cache holds count as unused */
    uint32_t drafts_max;            /* guesses of a row, up to GPU_DRAFTS_MAX; 0 = none */
    bool draft_model; /* it makes the guesses; else they are of a sequence's own text */
    bool drafts_always;             /* whatever they cost, and who else waits: for tests */
    uint64_t stall_us;           /* a lone sequence that gets no KV for so long fails */
};

/* Called from within sched functions; none may call back into the scheduler. */
struct sched_calls {
    void *context;
    /* One more slab of a group: 0, or a negative code and nothing has changed. */
    int (*kv_grow)(void *context, uint32_t group, uint32_t *ret_slab);
    void (*kv_shrink)(void *context, uint32_t group, uint32_t slab);
    void (*progressed)(void *context, struct seq *seq); /* out_count has risen */
    void (*ended)(void *context, struct seq *seq);      /* finish is set; forgotten here */
    /* A chunk of host memory for blocks of the group is to be made, or to go back; one at a time.
     * Its end comes by sched_chunk_told(). NULL: there is no host memory. */
    void (*chunk)(void *context, uint32_t group, uint32_t chunk, bool make);
    /* A mask is wanted: its first with token -1, then the one behind that token. */
    void (*mask)(void *context, struct seq *seq, int32_t token);
};

/* A step that was planned. Lives until `depth` further ones were submitted. */
struct sched_step {
    struct gpu_plan plan;
    struct seq **row_seq; /* [rows]; NULL once the sequence has ended */
    struct seq **opened;  /* [opens]: whom each open is for */
    struct cost_work work;
    double estimate_us;
    time_us submitted_us;
    uint32_t open_id_count;         /* of ids: stop tokens of the opens */
    bool ahead;                     /* submitted while the step before it was in flight */
    uint32_t decode_rows;           /* the first so many rows */
    bool cut;                       /* decode rows were left out: the next plan begins with those */
    bool evacuated[GPU_GROUPS_MAX]; /* nothing is left to move out of the group's victim */
    uint32_t patch_count;           /* of the appends: the first, which re-point moved blocks */
    /* What the plan points to. */
    uint32_t *closes;
    struct gpu_move *moves;
    struct gpu_slab *slabs;
    struct gpu_open *opens;
    struct gpu_append *appends;
    struct gpu_row *rows;
    int32_t *ids;
    struct gpu_bias *bias;
};

/* Lives until samplings_max further ones were submitted. */
struct sched_sampling {
    uint64_t after; /* the step that it was submitted behind */
    struct gpu_sampling plan;
    struct gpu_masked rows[GPU_SAMPLING_ROWS_MAX];
    struct seq *seqs[GPU_SAMPLING_ROWS_MAX]; /* NULL once the sequence has ended */
};

/* Copies to host memory or from it, one call of a device. Lives until GPU_COPIES_MAX further ones
 * of its way were submitted. */
struct sched_copies {
    struct gpu_copies plan;
    struct gpu_copy *copies;     /* [copies_max], node by node */
    struct sched_copied *copied; /* [copies_max] */
    uint32_t count;              /* nodes */
    struct seq *seq;             /* from the host: for whom; NULL once it has ended */
    uint32_t behind;             /* likewise: the cache's node before the first, pinned */
    time_us submitted_us;
};

struct sched_copied {
    uint32_t tier, node; /* node: the cache's, made and not named; to the host: none */
    struct prefix_key key;
};

/* Where those wait whose blocks are given up last: to be sent here, as the loop says, and here. */
enum sched_waits { SCHED_WAITS_TO_COME, SCHED_WAITS_HERE, SCHED_WAITS };

/* Of the ring of blocks that were named and are not in host memory. */
struct sched_unwritten {
    struct prefix_key key;
    uint32_t node;
};

/* A group's slabs: when to ask for more, and which one is on its way back. */
struct sched_group {
    time_us grow_after_us;   /* growth was refused: not asked again before */
    time_us excess_since_us; /* more slabs than needed since; 0 = not */
    uint32_t victim;         /* slab that is being emptied, or KV_NONE */
    bool victim_evacuated;   /* all that was in it is moved or on its way out */
};

/* Sequences here that have one prompt, and what of it they have in common (sched_share.c). */
struct sched_share {
    struct list link;
    const int32_t *prompt;     /* their request's; as long as one of them is here */
    uint32_t len;              /* positions: the whole blocks below the prompt's last token */
    uint32_t members, waiting; /* all of them; those that wait */
    struct seq *leader;        /* has a slot, and reads what all need; or NULL */
    bool pinned;               /* `pins` has the blocks, with a reference to each */
    struct kv_table pins;
    uint32_t expected, cached; /* of the prompt: thought to be in the cache; found there */
};

struct sched {
    struct gpu_model model;
    struct gpu_limits limits;
    struct sched_options options;
    struct sched_calls calls;
    struct stats_worker *stats; /* borrowed */
    struct kv kv;
    struct cache cache;
    struct cost cost;
    time_us now_us; /* of the call that is under way, or was the last */

    /* Sequences, by phase; a sequence is on one list. */
    struct list waiting; /* as sched_goes_before() says */
    struct list prefill; /* likewise */
    struct list decode;  /* who was left out last comes first */
    struct list last;
    struct list preempted;
    struct list readers; /* seq.cache.read_link: others may wait for their prompts' blocks */
    uint32_t waiting_count, slot_count; /* on `waiting`; on `prefill` and `decode` */
    uint32_t decode_count;              /* on `decode`, */
    uint64_t decode_computed;           /* and what of those is computed */
    uint32_t gave_way_count, gave_way_waiting; /* to a higher priority: all, and those that wait */
    uint32_t level_slots[WAITING_LEVELS];  /* of slot_count, by priority; */
    uint32_t level_yields[WAITING_LEVELS]; /* those that give way to higher ones */
    uint64_t waiting_tokens; /* prefill_len of those waiting, less what others compute for them */
    uint64_t order_next;

    uint32_t slots_max;   /* sequences that have a slot at a time */
    uint32_t *slots_free; /* stack */
    uint32_t slots_free_count;
    uint32_t *closes_due; /* slots that the device has open and no sequence has */
    uint32_t closes_due_count;
    struct kv_table *tables; /* [slots_max], by slot */
    uint32_t *table_memory;
    struct lookup *lookups;           /* [slots_max], by slot; NULL: no guess comes from texts */
    double draft_share;               /* of a step of single tokens, what a guess of all its rows
                                         takes the draft model; as measured */
    uint32_t lookup_left;             /* tokens that this turn may still read for it */
    struct sched_share *share_memory; /* [slots_max] */
    struct list shares, shares_free;

    struct gpu_slab *slabs_due; /* grown since the last submitted plan */
    uint32_t slabs_due_count;

    struct prefix_wants wants[SCHED_WAITS];               /* what those need who wait */
    struct tier tier;                                     /* sched_tier.c */
    struct sched_copies copies[GPU_WAYS][GPU_COPIES_MAX]; /* by number */
    uint64_t copies_last[GPU_WAYS], copies_done[GPU_WAYS];
    uint32_t copies_max;               /* blocks of one call */
    double copy_us;                    /* of one block from the host, as measured; 0: never was */
    time_us fetched_us;                /* when the last ones from there had come */
    time_us chunk_after_us;            /* a chunk was refused: none is asked for before */
    bool tier_full;                    /* it took nothing when it was last asked */
    struct sched_unwritten *unwritten; /* ring of cache.node_max */
    uint32_t unwritten_first, unwritten_count;

    struct sched_sampling samplings[GPU_SAMPLINGS_MAX]; /* by number */
    uint64_t sampling_last, sampling_done;
    struct sched_step *steps;      /* [depth + 1], by step number */
    uint64_t step_last, step_done; /* numbers of the last submitted and the last completed step */
    uint64_t start_step;           /* last step that opened a sequence */
    uint32_t chunk_min;            /* tokens of the chunk that a prompt is sure of */
    uint32_t prefill_max;          /* prompts that are read at a time */
    uint32_t tokens_cap;           /* <= tokens_max; less after scratch was refused */
    time_us retry_us;              /* memory was refused: no plan before; 0 = not so */
    time_us running_since_us;      /* the device has been at its present step */
    time_us above_us;              /* when one came last that was above some that ran, and its */
    uint32_t above_level;          /* level: of late none was higher */
    time_us hold_us;               /* a step that only decodes is not planned before; 0 = not so */
    uint64_t device_end_ns;        /* end of the last completed step */

    struct sched_group group[GPU_GROUPS_MAX];
    time_us idle_since_us; /* nothing at all here; 0 = not idle */
    bool released;         /* everything has been given back since, */
    bool shrunk;           /* or all that holds nothing cached */
    bool trim_wanted;
    bool yield_wanted;        /* others lack memory */
    time_us stalled_since_us; /* a lone sequence gets no KV; 0 = not */
};

/* 0, -ERR_NO_MEMORY, or -ERR_BAD_CONFIG when the limits make no sense together. */
int sched_init(struct sched *sched, const struct gpu_model *model, const struct gpu_limits *limits,
               const struct sched_options *options, const struct sched_calls *calls,
               struct stats_worker *stats, struct error *error);
void sched_destroy(struct sched *sched); /* no sequence is left */

/* A sequence was sent here, with what it has, if it was handed back before: that is read like its
 * prompt. It may end within the call (nothing to compute). */
void sched_add(struct sched *sched, struct seq *seq, time_us now_us);
/* Ends a sequence that has not ended, with this reason. */
void sched_cancel(struct sched *sched, struct seq *seq, enum finish reason, time_us now_us);
/* Ends every sequence that has no row in flight as one that is handed back. */
void sched_hand_back(struct sched *sched, time_us now_us);
/* Ends every sequence with FINISH_ERROR and this error, or with `finish` when error is NULL. Steps
 * in flight are forgotten: only for a device that failed or was stopped. */
void sched_end_all(struct sched *sched, enum finish finish, const struct error *error,
                   time_us now_us);

/* The next step, or NULL: nothing to do, or not now (sched_due_us says when by itself). At most
 * limits.depth steps may be in flight. The plan stays valid until `depth` further ones were
 * submitted. */
const struct gpu_plan *sched_plan(struct sched *sched, time_us now_us);
void sched_submitted(struct sched *sched, time_us now_us);
void sched_refused(struct sched *sched, time_us now_us);
/* Others lack the device's memory: what is only cached goes, and slabs that hold nothing then. */
void sched_give_back(struct sched *sched);
/* The device failed before it took the plan: what the plan changed is taken back. */
void sched_dropped(struct sched *sched);

/* Results of step step_done + 1. */
void sched_complete(struct sched *sched, const struct gpu_results *results, time_us now_us);

/* What is to be sampled now, or NULL; asked before each plan, and again until it says NULL. Stays
 * valid until samplings_max further ones were submitted. */
const struct gpu_sampling *sched_sampling(struct sched *sched, time_us now_us);
void sched_sampling_submitted(struct sched *sched);
/* What ends next is a sampling: steps behind it are completed after it, since they read its tokens. */
bool sched_sampling_is_next(const struct sched *sched);
/* Results of sampling sampling_done + 1. */
void sched_sampling_complete(struct sched *sched, const struct gpu_results *results,
                             time_us now_us);

/* What is to be copied now, or NULL; asked once a turn, before plans, for each way. Stays valid
 * until GPU_COPIES_MAX further ones of the way were submitted. */
const struct gpu_copies *sched_copies(struct sched *sched, enum gpu_way way, time_us now_us);
void sched_copies_submitted(struct sched *sched, enum gpu_way way, time_us now_us);
/* Copies copies_done[way] + 1 have ended. */
void sched_copies_complete(struct sched *sched, enum gpu_way way, time_us now_us);
/* The chunk that was asked for is there, or gone; or was refused. */
void sched_chunk_told(struct sched *sched, bool good, time_us now_us);

/* Housekeeping, after the plans of a turn: one slab ahead, slabs too many, all of them when idle.
 * Returns true when memory went back because nothing runs: then the engine is to be trimmed. */
bool sched_housekeep(struct sched *sched, time_us now_us);

/* Unused memory goes back at the next housekeeping that finds nothing running. */
void sched_trim(struct sched *sched);

/* What can be added now. */
struct replica_room sched_room(const struct sched *sched, time_us now_us);

/* When something is due although no step ends and no message comes, or SCHED_NEVER. */
time_us sched_due_us(const struct sched *sched);

static inline uint32_t sched_in_flight(const struct sched *sched)
{
    return (uint32_t)(sched->step_last - sched->step_done);
}

static inline uint32_t sched_samplings_in_flight(const struct sched *sched)
{
    return (uint32_t)(sched->sampling_last - sched->sampling_done);
}

static inline uint32_t sched_copies_in_flight(const struct sched *sched)
{
    return (uint32_t)(sched->copies_last[GPU_TO_HOST] - sched->copies_done[GPU_TO_HOST] +
                      sched->copies_last[GPU_FROM_HOST] - sched->copies_done[GPU_FROM_HOST]);
}

/* Microseconds that the steps in flight should take together. */
double sched_estimate_us(const struct sched *sched);

/* What is wrong with the invariant above, in words; "" when it holds. For tests, between calls. */
const char *sched_check(const struct sched *sched);
