/* Times the algorithms of a model's products once, before the first step, and keeps the choices on
 * disk for the next start.
 *
 * Only shapes that the file does not know are timed, and no longer than TUNER_BUDGET_NS altogether:
 * the rest keeps the library's own choice until a later start. Choices do not change while the
 * engine runs, so that the same plans give the same bits. On the CPU device there is nothing to
 * choose.
 *
 * Thread: the rank's own, before its first step; blocks.
 */
#pragma once

#include "gpu/engine/engine.h"

#define TUNER_BUDGET_NS UINT64_C(1200000000)

/* A directory that cannot be read or written, or memory that is not to be had, is logged and no
 * error. */
int tuner_run(struct rank *rank, struct error *error);
