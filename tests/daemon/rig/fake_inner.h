/* What the files of the fake device share; see fake_device.h. Calls hold the engine's lock. */
#pragma once

#include <pthread.h>

#include "tests/daemon/rig/fake_device.h"

#define FAKE_RING (GPU_DEPTH_MAX + 1)
#define FAKE_POISON (-77) /* a position of a block that nobody wrote since the block was taken */

struct fake_slot {
    bool open;
    struct gpu_open settings;
    int32_t stop_ids[GPU_STOP_IDS_MAX];
    int32_t last; /* sampled token */
    uint64_t full, window; /* kept for a sampling, as logits are */
    bool has_last;
    uint32_t counted; /* positions below it were told to be seen, as penalties have it */
    uint32_t *table[GPU_GROUPS_MAX]; /* logical block -> block, KV_NONE */
    float pool[FAKE_HIDDEN];
    uint32_t pool_count;
    uint32_t read; /* positions below it the draft model has read; */
    uint32_t guessed_at,
        guessed; /* the last row's guesses, which tell more of that with the next */
};

struct fake_step {
    struct gpu_plan plan;
    struct gpu_sample *samples;
    struct gpu_top *tops;
    struct gpu_score *scores;
    struct gpu_top *score_tops; /* [scores_max][GPU_LOGPROBS_MAX] */
    float *rows;
    struct gpu_sample *guesses[GPU_DRAFTS_MAX]; /* [slots_max]; of the draft model */
    uint32_t guess_count[GPU_DRAFTS_MAX];
    uint32_t sample_count, score_count, row_count;
    uint64_t guesses_ns;
    uint64_t start_ns, end_ns;
};

struct fake_sampling {
    uint64_t after; /* step that it is enqueued behind */
    uint32_t count;
    struct gpu_masked rows[GPU_SAMPLING_ROWS_MAX];
    uint32_t masks[GPU_SAMPLING_ROWS_MAX][(FAKE_VOCAB + 31) / 32];
    struct gpu_sample samples[GPU_SAMPLING_ROWS_MAX];
    struct gpu_top tops[GPU_SAMPLING_ROWS_MAX * GPU_LOGPROBS_MAX];
};

#define FAKE_COPIES_MAX 256u

struct fake_copies {
    uint64_t after; /* step that they are enqueued behind */
    uint32_t count;
    struct gpu_copy copies[FAKE_COPIES_MAX];
};

struct chunk_state {
    bool there;
    uint32_t group;
};

struct fake_told { /* of a slot, as plans have it */
    bool masked;
    uint32_t kept; /* position of the token after its last row, with GPU_KEEP; else 0 */
};

struct slab_state {
    bool exists, announced;
    uint64_t gone_after; /* step that may still use it */
};

struct gpu_engine {
    struct fake_shape shape;
    struct gpu_model model;
    struct gpu_limits limits;
    struct fake_knobs knobs;
    struct fake_counts counts;
    pthread_mutex_t lock;
    uint64_t random;
    struct fake_slot *slots;
    bool *open_told;                   /* as plans have it, ahead of what ran */
    uint32_t **told[GPU_GROUPS_MAX];   /* [slot][index]: block tables as plans have them */
    uint64_t *touched[GPU_GROUPS_MAX]; /* [block]: last step whose rows or moves touch it */
    int32_t *
        content[GPU_GROUPS_MAX]; /* [block * block_tokens] token at each position, or FAKE_POISON */
    struct slab_state *slabs[GPU_GROUPS_MAX];
    struct chunk_state *chunks;
    int32_t *hosted[GPU_GROUPS_MAX]; /* [place * block_tokens], as content */
    struct fake_copies copies[GPU_WAYS][GPU_COPIES_MAX];
    uint64_t copying[GPU_WAYS], copied[GPU_WAYS];
    struct fake_step steps[FAKE_RING];
    struct fake_sampling samplings[GPU_SAMPLINGS_MAX];
    uint64_t sampling_last, sampling_done;
    struct fake_told *told_kept; /* [slot] */
    uint64_t submitted, completed, now_ns;
    int wake_fd;
    char fault[256];
};

/* Notes what is wrong with a plan; the first note stays. */
void fake_fail(struct gpu_engine *engine, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* fake_rule.c: the answers, made from all that a row sees. Contexts are hashed token by token. */
uint64_t fake_mix(uint64_t hash, int32_t token);
/* The token after a context whose full hash and window hash are these, at position `position`. */
int32_t fake_rule(uint64_t full, uint64_t window, const struct gpu_open *settings,
                  uint32_t position, const struct fake_knobs *knobs);
float fake_score(uint64_t full, int32_t target);
float fake_embed(uint64_t full, uint32_t dimension);

/* fake_plan.c: a plan against the contract of gpu/gpu.h, and a copy of it until the step runs. */
void fake_check_bounds(struct gpu_engine *engine, const struct gpu_plan *plan);
void fake_check_deltas(struct gpu_engine *engine, const struct gpu_plan *plan);
void fake_check_rows(struct gpu_engine *engine, const struct gpu_plan *plan);
void fake_keep_step(struct gpu_engine *engine, const struct gpu_plan *plan);
void fake_step_free(struct fake_step *step);

/* fake_mask.c. What the sequence may say behind its first `count` tokens: how many there are. */
uint32_t fake_allowed(const struct seq *seq, uint32_t count, uint32_t *bits, bool *ret_ends);
/* The one of them that such a context has. */
int32_t fake_pick(uint64_t full, uint64_t window, const struct gpu_open *settings,
                  uint32_t position, const uint32_t *bits);
bool fake_is_constrained(const struct seq *seq);
void fake_check_kept(struct gpu_engine *engine, const struct gpu_plan *plan);
int fake_sample(struct gpu_engine *engine, uint32_t rank, const struct gpu_sampling *sampling,
                struct error *error);
uint64_t fake_sampled(const struct gpu_engine *engine, uint32_t rank);
void fake_sampling_results(struct gpu_engine *engine, uint64_t number, struct gpu_results *ret);
bool fake_sampling_is_next(const struct gpu_engine *engine);
void fake_run_sampling(struct gpu_engine *engine);

/* fake_copy.c. A plan names the block to write it, or only to read. */
void fake_check_block_copied(struct gpu_engine *engine, uint32_t group, uint32_t block, bool read);
bool fake_is_copying(const struct gpu_engine *engine);
int fake_copy(struct gpu_engine *engine, uint32_t rank, const struct gpu_copies *copies,
              struct error *error);
uint64_t fake_copied(const struct gpu_engine *engine, uint32_t rank, enum gpu_way way);
int fake_chunk_make(struct gpu_engine *engine, uint32_t group, uint32_t chunk, struct error *error);
void fake_chunk_drop(struct gpu_engine *engine, uint32_t chunk);

/* fake_run.c */
void fake_poison(struct gpu_engine *engine, uint32_t group, uint32_t slab);
void fake_run_locked(struct gpu_engine *engine);
bool fake_is_busy(const struct gpu_engine *engine);
