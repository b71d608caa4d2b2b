/* The kernels of one step, from expand to publish, in the order in which they run. The same
 * launches make an eager step and, inside a capture, a graph.
 *
 * Thread: the rank's own. Owns nothing.
 */
#pragma once

#include "gpu/engine.h"

struct launch {
    struct rank *rank;
    struct batch batch;           /* bounds of this step, or of a bucket */
    const struct wire_head *wire; /* device address of the plan */
    struct gpu_score *scores;     /* device addresses; unused where the bounds say 0 */
    float *embeds;
    void *scratch; /* launch_scratch_bytes */
    bool counts;   /* some slot keeps count of tokens */
    bool pools;    /* some row adds to its slot's sum */
};

uint64_t launch_scratch_bytes(const struct rank *rank, const struct batch *batch);
struct expand_args launch_expand(const struct launch *launch);
int launch_run(const struct launch *launch, struct error *error);
