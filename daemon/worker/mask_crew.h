/* The threads that make masks for a worker's constrained sequences, so that neither it nor the loop
 * does: one may take milliseconds, or tens of them where a constraint is hostile.
 *
 * First come, first served, a mask at a time; of a sequence there is at most one in the queue, so
 * that is as long as there are slots and sequences that wait. The threads start with the first
 * constrained sequence. Where none can be had the worker makes masks itself.
 *
 * Worker's thread, but mask_crew_make, mask_crew_stop and mask_crew_free (loop, once the worker's
 * thread is no more).
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "daemon/base/seq_mask.h"

struct constraint_held;
struct mask_crew;

#define MASK_CREW_THREADS 4u

/* Until it is to have threads, mask_crew_run() makes the masks. `ready`: any thread; some mask is
 * there. */
int mask_crew_make(void (*ready)(void *context), void *context, struct mask_crew **ret_crew,
                   struct error *error);
/* Before any mask was asked for. */
void mask_crew_threads(struct mask_crew *crew, uint32_t threads);
/* The mask is READY or FAILED some time later. It is not ASKED. */
void mask_crew_ask(struct mask_crew *crew, struct seq_mask *mask, int32_t token);
/* Nobody wants it any more: it is the crew's, whatever its state. */
void mask_crew_drop(struct mask_crew *crew, struct seq_mask *mask);
/* Without threads: the oldest that was asked for. False: there is none. */
bool mask_crew_run(struct mask_crew *crew);
bool mask_crew_waits(struct mask_crew *crew); /* something is in the queue */
/* Blocks while masks are made that were begun. What was asked for is not made, what was dropped is
 * freed. */
void mask_crew_stop(struct mask_crew *crew);
void mask_crew_free(struct mask_crew *crew); /* NULL is allowed; stops it */

/* Of a sequence that is to be sent; any thread. */
int seq_mask_make(struct constraint_held *held, struct seq_mask **ret_mask, struct error *error);
/* Any thread; not one that a crew was asked for. NULL is allowed. */
void seq_mask_free(struct seq_mask *mask);
