/* The first kernel of a step: the plan becomes the device's state and batch.
 *
 * Order of effect: slabs, opens, appends; then counts, rows, tokens and the lists over them, moves
 * included (op_move runs after). A row without ids takes its slot's last sampled token, so the host
 * need not know it: from the slot, or from the plan's `tokens_in`, where another device samples.
 * Writes everything that struct batch points at but KV, seen and pool, and the step's control;
 * nothing beyond the bounds of `batch`, whatever the plan says.
 *
 * The plan lies in a ring. Its address is the one parameter that changes from step to step:
 * expand_retarget replaces it in an instantiated graph.
 */
#pragma once

#include "gpu/kernels/batch.h"
#include "gpu/wire.h"

/* What the step's last kernel (publish) needs to know of the plan. Fixed memory. */
struct step_control {
    uint64_t step, start_ns;
    void *result; /* device address of the step's place in the ring */
    uint32_t result_samples, result_tops;
    int32_t *tokens_out; /* see struct wire_head */
};

struct expand_args {
    const struct wire_head *wire; /* in the ring; 8-aligned */
    struct batch batch;           /* all of it is written, const or not */
    struct step_control *control;
};

OP_C cudaError_t op_expand(const struct expand_args *args, cudaStream_t stream);

/* Whether a graph's node is the one that op_expand captured. */
OP_C bool expand_is(cudaGraphNode_t node);

/* From the graph's next launch on; `node` is that one, `args` but for the plan's address as captured. */
OP_C cudaError_t expand_retarget(cudaGraphExec_t exec, cudaGraphNode_t node,
                                 const struct expand_args *args);
