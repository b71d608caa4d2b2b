/* Sixteen bytes a thread and turn, MOVE_BLOCKS blocks per KV block. */
#include "gpu/kernels/common/device.cuh"
#include "gpu/kernels/step/copy_blocks.h"

#define MOVE_BLOCKS 32
#define MOVE_THREADS 256

__device__ static uint4 *block_base(const struct batch_group &group, uint32_t block)
{
    return reinterpret_cast<uint4 *>(static_cast<char *>(group.slabs[block / group.slab_blocks]) +
                                     (block % group.slab_blocks) * group.block_bytes);
}

__global__ void move_kernel(struct copy_blocks_args a)
{
    grid_trigger();
    grid_wait();
    if (blockIdx.x >= a.batch.counts->moves)
        return;
    struct gpu_move move = a.batch.moves[blockIdx.x];
    const struct batch_group &group = a.batch.groups[move.group];
    const uint4 *from = block_base(group, move.from);
    uint4 *to = block_base(group, move.to);
    size_t count = group.block_bytes / sizeof(uint4), turn = (size_t)gridDim.y * blockDim.x;
    for (size_t i = (size_t)blockIdx.y * blockDim.x + threadIdx.x; i < count; i += turn)
        to[i] = from[i];
}

cudaError_t op_copy_blocks(const struct copy_blocks_args *args, cudaStream_t stream)
{
    return launch(move_kernel, dim3(args->batch.moves_max, MOVE_BLOCKS), MOVE_THREADS, 0, stream,
                  *args);
}
