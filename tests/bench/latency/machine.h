/* What steps of an 8B model in 16 bits cost on one H200: a model of it, made of what was measured
 * (RESULTS.md, EXPERIMENTS.md), so that a plan's consequences can be told without the GPU. It knows
 * what the scheduler's linear model does not: products by a table, prompts' attention by waves of
 * blocks over the processors. Good to about a tenth, not better. */
#pragma once

#include <stdint.h>

#include "gpu/gpu.h"

extern const struct gpu_model machine_model;
extern const struct gpu_limits machine_limits;

/* Steps that read prompts take so many times what they do here: GPUs differ by some per cent. */
void machine_slow(double times);
/* Microseconds of the step, off by up to a hundredth or two as steps are. */
double machine_step_us(const struct gpu_plan *plan, uint64_t *random);

/* Copies of blocks to host memory and back, each way one call after the other. */
struct machine_copies {
    double free_us[GPU_WAYS]; /* when the last call of the way ends */
    double end_us[GPU_WAYS][GPU_COPIES_MAX];
};

void machine_copy(struct machine_copies *copies, const struct gpu_copies *plan, double now_us);
/* When the call with this number ends, or has ended. */
double machine_copied_us(const struct machine_copies *copies, enum gpu_way way, uint64_t number);

/* Uniform in [0, 1). */
double machine_random(uint64_t *random);
