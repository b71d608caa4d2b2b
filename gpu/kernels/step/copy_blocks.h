/* Copies blocks of KV: batch.moves, before the rows of the step run. No block is the target of two
 * moves, and none is the target of one and the source of another. Both may be in one slab. */
#pragma once

#include "gpu/kernels/common/batch.h"

struct copy_blocks_args {
    struct batch batch;
};

OP_C cudaError_t op_copy_blocks(const struct copy_blocks_args *args, cudaStream_t stream);
