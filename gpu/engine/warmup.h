/* What the first steps would have to wait for, before the first step: CUDA loads a kernel when it
 * is launched for the first time, and cuBLASLt makes itself ready at its first product. So steps
 * without a row run here, with the bounds of a decode step and of prompts of several lengths:
 * every launch is made, no kernel finds anything to do but products, whose results nobody reads.
 * The lengths are those up to 1,024 for which the tuner chose algorithms, whose kernels load too.
 *
 * Only where the rank is alone: with others each sum would wait for them; and once for all engines
 * of a model that sleeps and wakes (kept_weights.h), as long as the device's context stands: what
 * waits for a model that wakes would wait for these steps, too. Other shapes than these,
 * and what few requests ask for (penalties, scores, embeddings), load when they come.
 *
 * Thread: the rank's own, before its first step, after the tuner; blocks. */
#pragma once

#include "gpu/engine/engine.h"

/* Memory that is not to be had is no error: then the first steps wait. */
int warmup_run(struct rank *rank, struct error *error);

/* The least that a sequence needs beside what set-up took, a slab of KV of each group and scratch for
 * a step of one token, is taken for a moment: ERR_DEVICE_MEMORY where our own limits forbid that
 * for ever. That others hold the device is no error. Before the first step. */
int warm_least(struct rank *rank, struct error *error);
