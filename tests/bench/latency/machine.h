/* What steps of an 8B model in 16 bits cost on one H200: a model of it, made of what was measured
 * (RESULTS.md, EXPERIMENTS.md), so that a plan's consequences can be told without the GPU. It knows
 * what the scheduler's linear model does not: products by a table, prompts' attention by waves of
 * blocks over the processors. Good to about a tenth, not better. */
#pragma once

#include <stdint.h>

#include "gpu/gpu.h"

extern const struct gpu_model machine_model;
extern const struct gpu_limits machine_limits;

/* Microseconds of the step, off by up to a hundredth or two as steps are. */
double machine_step_us(const struct gpu_plan *plan, uint64_t *random);

/* Uniform in [0, 1). */
double machine_random(uint64_t *random);
