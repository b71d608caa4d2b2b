/* The first kernel of a step: the plan becomes the device's state and batch.
 *
 * Order of effect: slabs, opens, appends; then counts, rows, tokens and the lists over them, moves
 * included (op_copy_blocks runs after). A row without ids takes its slot's last sampled token, so
 * the host need not know it: from the slot, or from the plan's `tokens_in`, where another device
 * samples. Writes everything that struct batch points at but KV, seen and pool, and the step's
 * control; nothing beyond the bounds of `batch`, whatever the plan says.
 *
 * Where all rows are single tokens it can begin with the model as well (`first`): a row's token is
 * known by whoever has read its row, and three small kernels less stand before the first product.
 *
 * The plan lies in a ring. Its address is the one parameter that changes from step to step:
 * expand_retarget replaces it in an instantiated graph.
 */
#pragma once

#include "gpu/kernels/common/batch.h"
#include "gpu/kernels/step/packed_plan.h"

/* What the step's last kernel (publish) needs to know of the plan. Fixed memory. */
struct step_control {
    uint64_t step, start_ns;
    void *result; /* device address of the step's place in the ring */
    uint32_t result_samples, result_tops;
    int32_t *tokens_out; /* see struct pack_head */
};

/* The bits of op_embed, op_angle and op_norm (embed.h, rope.h, norm.h). */
struct step_begin_first {
    struct weight table; /* n = vocabulary, k = hidden; without data: none of this is asked for */
    float *residual;     /* [tokens_max][hidden]: the token's row of the table */
    const void *norm;    /* [hidden]: the first norm's weight; NULL: x is the residual as it is */
    void *x;             /* [tokens_max][hidden]: the normed residual */
    const float *inverse_frequency; /* [pairs] */
    float *angles;                  /* [tokens_max][pairs][2] */
    uint32_t pairs;
    float attention, eps, offset; /* offset: of the norm's weight */
    enum dtype norm_dtype, x_dtype;
};

struct step_begin_args {
    const struct pack_head *wire; /* in the ring; 8-aligned */
    struct batch batch;           /* all of it is written, const or not */
    struct step_control *control;
    struct step_begin_first first;
};

/* Whether op_step_begin does what `first` asks for; else it is refused. Never on the CPU device,
 * which has nothing to gain. */
OP_C bool expand_begins(const struct step_begin_args *args);

OP_C cudaError_t op_step_begin(const struct step_begin_args *args, cudaStream_t stream);

/* Whether a graph's node is the one that op_step_begin captured. */
OP_C bool expand_is(cudaGraphNode_t node);

/* From the graph's next launch on; `node` is that one, `args` but for the plan's address as
 * captured. */
OP_C cudaError_t expand_retarget(cudaGraphExec_t exec, cudaGraphNode_t node,
                                 const struct step_begin_args *args);
