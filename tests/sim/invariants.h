/* The books beside the scheduler's: a table of gpu.h that stands between worker and engine, follows
 * every plan, and checks what must hold whatever the scheduler does. No block that is written
 * belongs to two sequences, or to a slab that is not there; what is had from others is whole; a
 * sequence's rows follow each other without a gap and lie in its own blocks; every open sequence
 * advances within a bounded number of steps.
 *
 * One thread. The books of one run at a time.
 */
#pragma once

#include "gpu/gpu.h"
#include "tests/sim/scene.h"

#define INVARIANTS_ENGINES 16

/* Forgets everything. `fair`: KV is never short, so nobody may be passed over for long. */
void invariants_begin(struct scene *scene, bool fair);
void invariants_end(void);
void invariants_add(const struct gpu_engine *engine, const struct gpu_model *model,
                    const struct gpu_limits *limits);
/* Engines that were added and not closed. */
uint32_t invariants_open(void);
/* gpu_module with the books in between. */
const struct gpu_api *invariants_api(void);

struct invariants_figures {
    uint64_t steps, rows, moves, shared, grown, shrunk, refused;
};
struct invariants_figures invariants_figures(void);
