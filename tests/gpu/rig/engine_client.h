/* Runs jobs on an engine of any model: a plain continuous batch, one step at a time, with what
 * tests want to vary: the size of prompt chunks, how many jobs are in at once, preemption.
 *
 * One thread. The engine's internals are open to tests: between engine_client_open and
 * engine_client_start the model's config may be changed, after it the weights.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "gpu/engine/engine.h"

#define ENGINE_CLIENT_TOKENS 512 /* of one job, prompt and output */
#define ENGINE_CLIENT_JOBS 80

struct engine_client_job {
    const int32_t *prompt;
    uint32_t prompt_len;
    uint32_t generate;    /* tokens to sample after the prompt */
    bool score;           /* every prompt token but the first */
    uint32_t next_count;  /* or these, each as the one behind the prompt */
    int32_t next[4];
    uint32_t embed;       /* GPU_EMBED_LAST, or GPU_POOL_OUT for the mean; | GPU_NORMALIZE */
    struct gpu_open open; /* sampling; slot and prompt_len are filled in */
    int32_t stop_ids[4];
    struct gpu_bias bias[4];
    const int32_t *guesses; /* of the tokens behind the prompt: see engine_client.drafts */
    /* Results. */
    struct gpu_score scores[ENGINE_CLIENT_TOKENS];
    struct gpu_sample samples[ENGINE_CLIENT_TOKENS];
    struct gpu_top tops[ENGINE_CLIENT_TOKENS][GPU_LOGPROBS_MAX];
    uint32_t sampled;
    float embedding[4096];
    /* State. */
    bool live, done;
    bool fresh;   /* nothing was sampled since it was opened */
    bool swapped; /* see talk.swap_blocks */
    uint32_t slot, planned;
    uint32_t borrowed; /* blocks of each group that are cached ones */
    int32_t tokens[ENGINE_CLIENT_TOKENS];
    uint32_t blocks[GPU_GROUPS_MAX][ENGINE_CLIENT_TOKENS / 16 + 1], block_count[GPU_GROUPS_MAX];
};

struct engine_client {
    struct gpu_engine *engine;
    struct gpu_model model;
    struct gpu_limits limits;
    int wake_fd;
    uint32_t ranks; /* this one thread stands for all of theirs */
    bool stepping;
    uint64_t step, random;
    uint32_t chunk;    /* prompt tokens of a row; 0: all */
    uint32_t together; /* jobs at a time; 0: all */
    uint32_t preempt;  /* one in so many rows preempts its job first; 0: never */
    /* Job 0's first so many positions, whole blocks, stay when it has gone, and jobs that come later
     * begin behind them: their prompts must be longer, and the same so far. 0: none. */
    uint32_t cache;
    uint32_t drafts;   /* decode rows have so many guesses, of jobs that bring some */
    bool swap_blocks;  /* mutation: the first two blocks of each table change places, once */
    uint32_t cached[GPU_GROUPS_MAX][ENGINE_CLIENT_TOKENS / 16]; /* blocks */
    bool is_cached;
    bool free_block[GPU_GROUPS_MAX][1 << 14];
    uint32_t block_end[GPU_GROUPS_MAX]; /* numbers below exist */
    struct error error;
};

int engine_client_open(struct engine_client *talk, const struct gpu_options *options,
                       bool stepping);
int engine_client_start(struct engine_client *talk);
int engine_client_run(struct engine_client *talk, struct engine_client_job *jobs, uint32_t count);
void engine_client_close(struct engine_client *talk);
