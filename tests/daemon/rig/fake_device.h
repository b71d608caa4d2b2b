/* A device for tests of scheduler and worker: it keeps slots, block tables and the content of every
 * KV block (the token that was read there), checks each plan against the contract of gpu/gpu.h, and
 * gives answers that depend on every block that a row may see. A block that is lost, shared, given
 * back or overwritten too early therefore shows as a wrong answer or as a fault.
 *
 * Steps and samplings are kept and run when the test says so (fake_run), in order, as late as the
 * test likes.
 * What is wrong is noted, not asserted, since calls may come from a worker's thread: fake_fault()
 * tells.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "daemon/request/request.h"
#include "gpu/gpu.h"

#define FAKE_HIDDEN 4u
#define FAKE_VOCAB 1000
#define FAKE_EOS 7

struct fake_shape {
    uint32_t depth, slots_max, tokens_max, context_max;
    uint32_t block_tokens, group_count, window; /* window: of group 1 */
    uint32_t slab_blocks, slabs_max;
    uint32_t scores_max, embeds_max, moves_max;
    uint32_t stages; /* 0: 1 */
    uint32_t samplings_max, sampling_rows_max; /* 0: as many as there may be */
    uint32_t chunk_blocks, chunks_max;         /* of host memory; 0: there is none */
    bool drafter;                              /* there is a draft model, which makes the guesses */
    bool rereads;                              /* and reads those that stand once more: a head */
};

/* What goes wrong; may be changed at any time. */
struct fake_knobs {
    uint32_t grow_refused;    /* of 100 asked */
    uint32_t chunk_refused;   /* likewise, of host memory */
    uint32_t scratch_refused; /* of 100 submitted */
    uint32_t slabs_max;       /* fewer than the model says: other tenants hold the rest */
    uint64_t fail_step;       /* submit of this step reports a dead device; 0 = none */
    bool dead;                /* the device died: query says so, nothing completes */
    bool keeps_memory;        /* it stops, and does not take back all that it gave */
    uint32_t words;           /* only so many tokens are said, so that texts repeat; 0 = all */
    uint32_t eos_every;       /* one in so many tokens ends a sequence; 0 = none */
    uint64_t step_ns;         /* per token, and 10 times that per step */
    uint32_t guess_wrong_every; /* one in so many of the draft model's guesses is; 0 = none */
    bool at_once;             /* steps run within submit */
    bool weights_come;        /* it has started, and its weights are not there: steps wait for them */
    uint32_t overflow_from;   /* positions from here on give no finite number; 0 = none */
};

struct fake_counts {
    uint64_t submitted, completed, rows, decode_rows, trims, grown, shrunk, queries;
    uint64_t samplings;
    uint32_t slabs;      /* that exist */
    uint32_t chunks;     /* likewise, of host memory */
    uint32_t open_slots; /* as the device knows */
    uint64_t tokens_most;
};

struct gpu_engine *fake_create(const struct fake_shape *shape, uint64_t seed);
void fake_destroy(struct gpu_engine *engine);
const struct gpu_model *fake_model(const struct gpu_engine *engine);
const struct gpu_limits *fake_limits(const struct gpu_engine *engine);
struct fake_knobs *fake_knobs(struct gpu_engine *engine);
struct fake_counts fake_counts(struct gpu_engine *engine);
const char *fake_fault(struct gpu_engine *engine); /* "" when all was right */

/* Runs the oldest submitted step, or sampling; false when there is none. Writes to the wake descriptor. */
bool fake_run(struct gpu_engine *engine);
/* Runs the oldest copies of this way; false when there are none, or those to the host wait for a
 * step. Tells nobody. */
bool fake_run_copies(struct gpu_engine *engine, enum gpu_way way);
uint32_t fake_pending(struct gpu_engine *engine);

extern const struct gpu_api fake_api;

/* ---- sequences and their right answers --------------------------------------------------------
 */

struct fake_options {
    enum job job;
    enum pooling pooling;
    uint32_t prompt_len, max_tokens, min_tokens;
    int32_t priority;
    bool ignore_eos;
    int32_t logprobs;
    uint64_t seed; /* of the prompt */
    uint64_t stem; /* of its first stem_len tokens, where those are another's as well */
    uint32_t stem_len;
    uint32_t n;    /* results of the prompt; 0: 1 */
    uint32_t next; /* of a score: so many tokens that may come behind it */
    bool penalty;
    bool owed;     /* sent before its turn */
    uint64_t turn; /* its user's counter */
};

struct seq *fake_seq(const struct fake_options *options, time_us now_us);
/* It finds what the cache has of those who give this salt, and leaves its own. */
void fake_seq_cache(struct seq *seq, const struct gpu_model *model, const char *salt);
/* It has the prompt of another, as results of one prompt have; that one must be freed later. */
void fake_seq_sibling(struct seq *seq, const struct seq *first);
void fake_seq_free(struct seq *seq);
/* Before it is added: what it says is bound, by a rule of its seed. */
void fake_constrain(struct seq *seq);
/* What a thread does with a mask that was asked for; or it fails. */
void fake_mask_make(struct seq *seq, bool fail);
/* "" when what the sequence got so far is right, and complete if it finished by itself. */
const char *fake_check(const struct gpu_engine *engine, const struct seq *seq);

uint64_t fake_random(uint64_t *state);
/* 0 .. bound - 1 */
uint32_t fake_below(uint64_t *state, uint32_t bound);
