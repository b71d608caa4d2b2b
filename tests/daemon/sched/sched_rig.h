/* A scheduler on a fake device, driven by hand: what the worker does, without mailboxes and
 * threads. */
#pragma once

#include "daemon/sched/sched.h"
#include "tests/daemon/rig/fake_device.h"

#define RIG_SEQS_MAX 400
#define RIG_CACHE_US 5000000u /* cache-idle-release */

struct rig {
    struct gpu_engine *engine;
    struct sched sched;
    struct stats_worker stats;
    time_us now_us;
    struct seq *seqs[RIG_SEQS_MAX]; /* all that were added */
    uint32_t seq_count, ended_count;
    uint32_t ended[RIG_SEQS_MAX]; /* how often each was told to have ended */
    uint32_t trims;
    const char *salt; /* of those that are added; NULL: they leave the cache alone */
    uint64_t random;      /* decides which masks are made when */
    uint32_t masks_late;  /* a mask is made in one of so many tries; 0: at once */
    uint32_t masks_fail;  /* one of so many fails; 0: none */
    bool copies_late;     /* the test runs copies, and makes chunks; else that happens at once */
    bool chunk_asked, chunk_make;
    uint32_t chunk_group, chunk;
};

struct fake_shape rig_shape(void); /* one that is small and has no peculiarity */
void rig_open(struct rig *rig, const struct fake_shape *shape, uint64_t seed);
/* With a prefix cache. */
void rig_open_cached(struct rig *rig, const struct fake_shape *shape, uint64_t seed,
                     const char *salt);
/* With guesses of next tokens, too, up to so many a row. */
void rig_open_guessing(struct rig *rig, const struct fake_shape *shape, uint64_t seed,
                       const char *salt, uint32_t drafts_max);
void rig_close(struct rig *rig);
uint32_t rig_add(struct rig *rig, const struct fake_options *options); /* its index */
/* Such a prompt, and four tokens behind it. */
struct seq *rig_add_prompt(struct rig *rig, uint64_t seed, uint32_t prompt_len);
/* The same, constrained. */
uint32_t rig_add_constrained(struct rig *rig, const struct fake_options *options);
/* A further result of a prompt: `first` was added with `n` above 1. */
uint32_t rig_add_result(struct rig *rig, const struct fake_options *options, uint32_t first);

/* A sequence that generates, of a prompt of its own. */
struct fake_options rig_generate(uint32_t prompt_len, uint32_t max_tokens);
/* Sixteen sequences teach what a step costs: so many us per token, and 10 times that per step. */
void rig_teach(struct rig *rig, uint32_t token_us);
/* The last submitted step's row of the sequence, or NULL. */
const struct gpu_row *rig_row(const struct rig *rig, uint32_t index);

/* Plans and submits one step, if there is something to plan and room for it in flight. */
bool rig_submit(struct rig *rig);
/* Makes some masks of those that were asked for. False: none waits. */
bool rig_masks(struct rig *rig);
/* Plans and submits copies of a way, if there is something to copy. */
bool rig_copy(struct rig *rig, enum gpu_way way);
/* Runs and completes the oldest of them. */
bool rig_copied(struct rig *rig, enum gpu_way way);
/* Makes the chunk that was asked for, or gives it back. */
bool rig_chunk(struct rig *rig);
/* Runs and completes the oldest step or sampling. */
bool rig_complete(struct rig *rig);
void rig_tend(struct rig *rig);
/* Submits and completes, always as many steps in flight as allowed, until nothing is left to do. */
void rig_finish(struct rig *rig);

/* Turns until nothing is due any more: all memory that nobody needs has gone back. */
void rig_rest(struct rig *rig);

/* The blocks of all tables, each held as often as its count says, none lost; "" when so. */
const char *rig_check_kv(const struct rig *rig);
/* What all sequences got, and that each ended at most once (exactly once with `all`). */
const char *rig_check_answers(const struct rig *rig, bool all);
