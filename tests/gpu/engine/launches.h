/* Every launcher of the ops, and what else a step enqueues, as a device would have them that fuses
 * what sm_90 does; but they only note how they were called. Linked in the kernels' place, with the
 * numbers of the CUDA device and the emulated runtime, so that what the engine launches can be
 * compared without a GPU: every op in order with all its arguments, addresses by the piece of
 * memory that they lie in. One thread. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define LAUNCHES_DEVICES 4

/* Forgets what memory there was, before a new engine is opened. `show`: where each launch is
 * written in words, NULL: nowhere. */
void launches_reset(FILE *show);
/* A digest with what was launched on the device since then. */
uint64_t launches_add(uint64_t digest, int device);
/* Notes a call, as one launch. */
void launches_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

struct matmul_args;
/* Whether a product is one of e4m3 by e4m3 (matmul_scaled.cu), with what comes or is handed on
 * rounded. */
bool launches_scaled_can(const struct matmul_args *args);
