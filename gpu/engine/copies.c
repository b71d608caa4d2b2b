/* KV blocks to host memory and back, beside the steps. */
#include <assert.h>

#include "gpu/base/cuda_error.h"
#include "gpu/engine/engine.h"

static void *block_at(const struct rank *rank, const struct gpu_copy *copy)
{
    const struct slabs *slabs = &rank->slabs[copy->group];
    assert(copy->group < rank->engine->facts.model.group_count &&
           copy->block / slabs->slab_blocks < slabs->slabs_max);
    char *base = slabs->base[copy->block / slabs->slab_blocks];
    assert(base);
    return base + copy->block % slabs->slab_blocks * slabs->block_bytes;
}

static void *place_at(const struct rank *rank, const struct gpu_copy *copy)
{
    return host_chunks_at(&rank->engine->chunks, copy->group, rank->number, copy->place);
}

/* How many from the first on lie one behind the other at both ends: they are one copy. */
static uint32_t run_of(const struct rank *rank, const struct gpu_copy *copies, uint32_t count)
{
    uint32_t run = 1, group = copies->group;
    uint32_t slab_blocks = rank->slabs[group].slab_blocks;
    uint32_t chunk_blocks = rank->engine->chunks.blocks[group];
    while (run < count && copies[run].group == group && copies[run].block == copies->block + run &&
           copies[run].place == copies->place + run && copies[run].block % slab_blocks != 0 &&
           copies[run].place % chunk_blocks != 0)
        run++;
    return run;
}

static int enqueue(struct rank *rank, const struct gpu_copies *copies, struct error *error)
{
    cudaStream_t stream = streams_bulk(&rank->lane, copies->way);
    bool out = copies->way == GPU_TO_HOST;
    int status = streams_copies_begin(&rank->lane, copies->way, error);
    for (uint32_t i = 0, run = 0; !status && i < copies->count; i += run) {
        const struct gpu_copy *copy = &copies->copies[i];
        void *block = block_at(rank, copy), *place = place_at(rank, copy);
        run = run_of(rank, copy, copies->count - i);
        uint64_t bytes = run * rank->slabs[copy->group].block_bytes;
        CUDA_TRY(cudaMemcpyAsync(out ? place : block, out ? block : place, bytes,
                                 out ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice, stream),
                 error);
    }
    return status ? status : streams_copies_end(&rank->lane, copies->way, copies->number, error);
}

int copies_submit(struct rank *rank, const struct gpu_copies *copies, struct error *error)
{
    assert(copies->count > 0 && copies->way < GPU_WAYS);
    if (rank->dead)
        return error_set(error, ERR_DEVICE, "the device failed before");
    int status = enqueue(rank, copies, error);
    if (status) /* some of them may run: nobody can say of which blocks */
        return rank_lost(rank, error);
    _Atomic uint64_t *counter = &rank->counters.copied[copies->way];
    atomic_store_explicit(counter,
                          atomic_load_explicit(counter, memory_order_relaxed) + copies->count,
                          memory_order_relaxed);
    return 0;
}
