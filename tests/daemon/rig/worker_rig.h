/* A worker with a real model on the CPU device, whose turns the test makes. */
#pragma once

#include "daemon/worker/worker.h"

struct worker_rig_options {
    const char *model;
    uint32_t tp, pp, chunk, slots_max;
    uint32_t kv_tokens, kv_more; /* KV memory for so many tokens, and so many blocks more; 0: any */
    bool prefix_cache;
    const char *draft_model; /* that makes them; NULL: they are of the texts */
    uint32_t drafts_max; /* guesses of a row, as many as are found; 0: none */
    uint32_t host_chunks; /* of host memory, each of a few blocks; 0: none */
    bool kv_fp8;
};

struct worker_rig {
    struct worker *worker;
    struct gpu_model model;
    struct completion_queue completions;
    time_us now_us;
    uint32_t ended, awaited; /* sequences that did; those that worker_rig_run() was to see end */
};

void worker_rig_open(struct worker_rig *rig, const struct worker_rig_options *options);
void worker_rig_close(struct worker_rig *rig);
void worker_rig_send(struct worker_rig *rig, struct seq *seq);
/* Until so many sequences have ended; the scheduler is looked at after every turn. */
void worker_rig_run(struct worker_rig *rig, uint32_t count);
/* Until so many tokens more were generated, whoever's. */
void worker_rig_generate(struct worker_rig *rig, uint64_t tokens);
const struct stats_worker *worker_rig_stats(const struct worker_rig *rig);
