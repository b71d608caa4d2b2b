/* Runs the prompts of a reference through an engine with as many steps in flight as it takes:
 * sequences in groups whose steps take turns, prompts in chunks, then decode rows that read what
 * the device sampled. What is planned depends on nothing that was sampled, so that engines of any
 * layout are given the same steps, and their answers can be compared bit for bit.
 *
 * A thread for each rank, as in the daemon, or one for all where the stepper runs.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "gpu/gpu.h"
#include "tests/gpu/rig/reference.h"

#define FLOW_SEQS REFERENCE_PROMPTS
#define FLOW_SAMPLES 12

struct flow_options {
    struct gpu_options gpu;
    uint32_t groups; /* whose steps take turns */
    uint32_t chunk;  /* of prompts */
    bool score;      /* prompts are scored, and nothing is sampled */
    bool stepping;
    void (*after_start)(struct gpu_engine *engine); /* may be NULL, as the next */
    void (*before_stop)(struct gpu_engine *engine);
};

struct flow_answers {
    struct gpu_sample samples[FLOW_SEQS][FLOW_SAMPLES];
    struct gpu_score scores[FLOW_SEQS][REFERENCE_TOKENS];
};

/* 0, or the negative code of what failed first. Everything is taken down again. */
int flow_run(const struct flow_options *options, const struct reference *reference,
             struct flow_answers *ret, struct error *error);
