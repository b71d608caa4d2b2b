/* A small scheduler that drives an engine with synthetic:null through random plans and checks every
 * result against the rule: prompts in chunks beside decode rows, slots and blocks used again,
 * blocks moved, slabs grown and given back, two steps in flight. All from a seed.
 *
 * One thread. What is wrong is counted, not asserted, so that a test can expect it.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "gpu/gpu.h"

#define DRIVE_SEQS 12
#define DRIVE_TOKENS 400
#define DRIVE_BLOCKS (DRIVE_TOKENS / 32 + 1)
#define DRIVE_POOL 4096 /* block numbers that are tracked */

struct drive_seq {
    bool live, decoding;
    uint32_t slot, flags, want; /* want: of its prompt rows */
    uint32_t prompt_len, total, logprobs, eos_from;
    uint32_t planned; /* positions given to the device */
    uint32_t blocks;
    uint32_t block[DRIVE_BLOCKS];
    int32_t tokens[DRIVE_TOKENS]; /* prompt, then what the rule says */
    uint64_t states[DRIVE_TOKENS];
    int32_t stop_id; /* -1: none */
};

/* What a step must give. */
struct drive_expected {
    uint64_t step;
    uint32_t samples, scores, embeds;
    struct gpu_sample sample[DRIVE_SEQS];
    uint64_t sample_state[DRIVE_SEQS];
    struct gpu_score score[DRIVE_SEQS * DRIVE_TOKENS];
    uint64_t score_state[DRIVE_SEQS * DRIVE_TOKENS];
    uint32_t score_tops[DRIVE_SEQS * DRIVE_TOKENS]; /* how many of the likeliest */
    float embed[DRIVE_SEQS * DRIVE_TOKENS][8];
};

struct drive {
    struct gpu_engine *engine;
    struct gpu_model model;
    struct gpu_limits limits;
    int wake_fd;
    bool stepping; /* the stepper engine: rig_step is called here */
    bool graphs;   /* mostly steps that can be captured, and captures on */
    bool profiling;
    bool use_ids;         /* decode rows may carry ids instead of the slot's last token */
    uint32_t target_seqs; /* live ones to strive for */
    uint64_t random;
    uint64_t step;    /* submitted */
    uint64_t checked; /* results compared up to here */
    uint32_t slabs;
    bool slab_there[64];
    uint8_t block_used[DRIVE_POOL];
    uint64_t block_free_at[DRIVE_POOL]; /* free once this step was checked */
    struct drive_seq seqs[DRIVE_SEQS];
    struct drive_expected expected[3];
    /* Outcome. */
    uint64_t in_ns, out_ns; /* of all steps */
    uint64_t profiled;      /* steps whose lanes were looked at */
    uint64_t wrong, samples, scores, score_tops, embeds, moves, grown, refused, shrunk, ends;
    bool lost; /* a step never completed */
    struct error error;
};

struct drive_options {
    uint64_t seed;
    bool stepping, graphs, profile;
    uint32_t target_seqs;
    uint64_t kv_max;
    uint32_t slots_max;
};

int drive_open(struct drive *drive, const struct drive_options *options);
/* Plans, submits and checks. Negative code of a submit that failed. */
int drive_steps(struct drive *drive, uint32_t steps);
int drive_finish(struct drive *drive);   /* waits for the steps in flight, checks them */
void drive_end_all(struct drive *drive); /* closes every sequence with the next step */
int drive_shrink(struct drive *drive);   /* gives empty slabs back */
void drive_close(struct drive *drive);
