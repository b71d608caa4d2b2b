#include "gpu/kernels/step/copy_blocks.h"

#include "gpu/kernels/cpu/body.h"

static void move_block(const void *params, uint32_t index)
{
    const struct copy_blocks_args *args = params;
    if (index >= ((const struct batch_counts *)dev(args->batch.counts))->moves)
        return;
    const struct gpu_move *move = (const struct gpu_move *)dev(args->batch.moves) + index;
    const struct batch_group *group = &args->batch.groups[move->group];
    memcpy(body_block(group, move->to), body_block(group, move->from), group->block_bytes);
}

cudaError_t op_copy_blocks(const struct copy_blocks_args *args, cudaStream_t stream)
{
    return body_launch(stream, "move", move_block, args, sizeof *args, args->batch.moves_max);
}
