#include "gpu/memory/host_chunks.h"

#include <assert.h>
#include <stdlib.h>

#include "gpu/memory/host_pages.h"

#define PART_ALIGN 256u /* as blocks are on the device */

int host_chunks_open(struct host_chunks *chunks, const struct host_chunks *sizes,
                     struct error *error)
{
    *chunks = *sizes;
    chunks->chunks = NULL;
    if (chunks->count == 0)
        return 0;
    for (uint32_t g = 0; g < GPU_GROUPS_MAX; g++)
        for (uint32_t i = 0; i < chunks->ranks; i++) {
            uint64_t part = chunks->blocks[g] * chunks->block_bytes[g][i];
            chunks->part_at[g][i + 1] =
                chunks->part_at[g][i] + (part + PART_ALIGN - 1) / PART_ALIGN * PART_ALIGN;
        }
    chunks->chunks = calloc(chunks->count, sizeof *chunks->chunks);
    if (!chunks->chunks)
        return error_set(error, ERR_NO_MEMORY, "no memory for a table of %u chunks", chunks->count);
    return 0;
}

void host_chunks_close(struct host_chunks *chunks)
{
    for (uint32_t i = 0; chunks->chunks && i < chunks->count; i++) {
        if (chunks->chunks[i].base)
            host_chunks_drop(chunks, i);
    }
    free(chunks->chunks);
    chunks->chunks = NULL;
}

int host_chunks_make(struct host_chunks *chunks, uint32_t group, uint32_t chunk,
                     struct error *error)
{
    assert(chunk < chunks->count && !chunks->chunks[chunk].base);
    uint64_t bytes = chunks->part_at[group][chunks->ranks];
    void *base = NULL;
    int status = host_pages_reserve(chunks->limit, bytes, error);
    if (status)
        return status;
    status = host_pages_make(bytes, &base, error);
    if (status) {
        host_pages_return(bytes);
        return status;
    }
    chunks->chunks[chunk] = (struct host_chunk){.base = base, .bytes = bytes, .group = group};
    atomic_fetch_add_explicit(&chunks->bytes, bytes, memory_order_relaxed);
    return 0;
}

void host_chunks_drop(struct host_chunks *chunks, uint32_t chunk)
{
    struct host_chunk *gone = &chunks->chunks[chunk];
    assert(chunk < chunks->count && gone->base);
    if (host_pages_drop(gone->base, gone->bytes, true)) {
        host_pages_return(gone->bytes);
        atomic_fetch_sub_explicit(&chunks->bytes, gone->bytes, memory_order_relaxed);
    }
    *gone = (struct host_chunk){.base = NULL};
}

void *host_chunks_at(const struct host_chunks *chunks, uint32_t group, uint32_t rank,
                     uint32_t place)
{
    uint32_t number = place / chunks->blocks[group];
    assert(number < chunks->count);
    const struct host_chunk *chunk = &chunks->chunks[number];
    assert(chunk->base && chunk->group == group);
    return chunk->base + chunks->part_at[group][rank] +
           place % chunks->blocks[group] * chunks->block_bytes[group][rank];
}

uint64_t host_chunks_bytes(const struct host_chunks *chunks)
{
    return atomic_load_explicit(&chunks->bytes, memory_order_relaxed);
}
