#include "gpu/kernels/move.h"
#include <string.h>
#include "gpu/emu/emu.h"
static char *block_at(const struct batch_group *g, uint32_t block)
{
    void *const *slabs = dev(g->slabs);
    return dev((char *)slabs[block / g->slab_blocks] + (uint64_t)(block % g->slab_blocks) * g->block_bytes);
}
static void move(const void *data, uint32_t index)
{
    const struct move_args *args = data;
    const struct batch_counts *counts = dev(args->batch.counts);
    if (index >= counts->moves) return;
    const struct gpu_move *m = (const struct gpu_move *)dev(args->batch.moves) + index;
    const struct batch_group *g = &args->batch.groups[m->group];
    memcpy(block_at(g, m->to), block_at(g, m->from), g->block_bytes);
}
cudaError_t op_move(const struct move_args *args, cudaStream_t stream)
{
    return emu_launch(stream, "move", move, args, sizeof *args, args->batch.moves_max);
}
