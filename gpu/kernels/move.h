/* Copies blocks of KV: batch.moves, before the rows of the step run. No block is the target of two
 * moves, and none is the target of one and the source of another. Both may be in one slab. */
#pragma once

#include "gpu/kernels/batch.h"

struct move_args {
    struct batch batch;
};

OP_C cudaError_t op_move(const struct move_args *args, cudaStream_t stream);
