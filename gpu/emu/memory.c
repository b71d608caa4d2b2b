#include "gpu/emu/memory.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "gpu/emu/emu.h"

ptrdiff_t emu_alias_offset;

static uintptr_t reserved;
static size_t reserved_bytes; /* of one of the two ranges */

cudaError_t memory_reserve(uint32_t devices, size_t bytes_each)
{
    if (reserved)
        munmap((void *)reserved, 2 * reserved_bytes);
    reserved = 0;
    reserved_bytes = devices * bytes_each;
    void *range = mmap(NULL, 2 * reserved_bytes, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED)
        return cudaErrorMemoryAllocation;
    reserved = (uintptr_t)range;
    emu_alias_offset = (ptrdiff_t)reserved_bytes;
    return cudaSuccess;
}

cudaError_t memory_open(struct memory *memory, uint32_t ordinal, size_t bytes)
{
    memset(memory, 0, sizeof(*memory));
    memory->by_granule = calloc(bytes / MEMORY_GRANULE, sizeof(*memory->by_granule));
    if (!memory->by_granule)
        return cudaErrorMemoryAllocation;
    list_init(&memory->pools);
    list_init(&memory->spare_extents);
    memory->base = reserved + ordinal * bytes;
    memory->bytes = bytes;
    memory->limit = SIZE_MAX;
    return cudaSuccess;
}

void memory_close(struct memory *memory)
{
    for (size_t i = 0; i < memory->bytes / MEMORY_GRANULE; i++) {
        if (memory->by_granule[i])
            memory_release(memory->by_granule[i]);
    }
    while (memory->spare) {
        struct block *block = memory->spare;
        memory->spare = block->next;
        free(block);
    }
    struct list *link;
    while ((link = list_take(&memory->spare_extents)) != NULL)
        free(container_of(link, struct extent, link));
    free(memory->by_granule);
}

struct block *memory_block(struct memory *memory)
{
    struct block *block = memory->spare;
    if (block)
        memory->spare = block->next;
    else
        block = malloc(sizeof(*block));
    if (block)
        memset(block, 0, sizeof(*block));
    return block;
}

void memory_block_free(struct memory *memory, struct block *block)
{
    block->next = memory->spare;
    memory->spare = block;
}

/* First granule of a free run, or the number of granules when there is none. */
static size_t find_run(const struct memory *memory, size_t granules)
{
    size_t all = memory->bytes / MEMORY_GRANULE, run = 0;
    for (size_t i = 0; i < all; i++) {
        run = memory->by_granule[i] ? 0 : run + 1;
        if (run == granules)
            return i + 1 - granules;
    }
    return all;
}

static struct extent *extent_new(struct memory *memory)
{
    struct list *link = list_take(&memory->spare_extents);
    return link ? container_of(link, struct extent, link) : malloc(sizeof(struct extent));
}

struct extent *memory_extend(struct memory *memory, size_t bytes)
{
    if (bytes > memory->bytes)
        return NULL;
    size_t granules = (bytes + MEMORY_GRANULE - 1) / MEMORY_GRANULE;
    bytes = granules * MEMORY_GRANULE;
    if (memory->used + bytes > memory->limit)
        return NULL;
    size_t first = find_run(memory, granules);
    if (first == memory->bytes / MEMORY_GRANULE)
        return NULL;
    struct extent *extent = extent_new(memory);
    struct block *block = extent ? memory_block(memory) : NULL;
    uintptr_t address = memory->base + first * MEMORY_GRANULE;
    if (!block || mprotect(dev((void *)address), bytes, PROT_READ | PROT_WRITE) != 0) {
        if (block)
            memory_block_free(memory, block);
        if (extent)
            list_append(&memory->spare_extents, &extent->link);
        return NULL;
    }
    *extent = (struct extent){.memory = memory, .address = address, .bytes = bytes, .first = block};
    block->extent = extent;
    block->address = address;
    block->bytes = bytes;
    for (size_t i = 0; i < granules; i++)
        memory->by_granule[first + i] = extent;
    memory->used += bytes;
    return extent;
}

void memory_release(struct extent *extent)
{
    struct memory *memory = extent->memory;
    void *alias = dev((void *)extent->address);
    madvise(alias, extent->bytes, MADV_DONTNEED);
    mprotect(alias, extent->bytes, PROT_NONE);
    while (extent->first) {
        struct block *block = extent->first;
        extent->first = block->next;
        memory_block_free(memory, block);
    }
    size_t first = (extent->address - memory->base) / MEMORY_GRANULE;
    for (size_t i = 0; i < extent->bytes / MEMORY_GRANULE; i++)
        memory->by_granule[first + i] = NULL;
    memory->used -= extent->bytes;
    list_append(&memory->spare_extents, &extent->link);
}

static struct extent *extent_at(const struct memory *memory, uintptr_t address)
{
    if (address < memory->base || address - memory->base >= memory->bytes)
        return NULL;
    return memory->by_granule[(address - memory->base) / MEMORY_GRANULE];
}

struct block *memory_find(struct memory *memory, uintptr_t address)
{
    struct extent *extent = extent_at(memory, address);
    struct block *block = extent ? extent->first : NULL;
    while (block && block->address != address)
        block = block->next;
    return block && block->used ? block : NULL;
}

bool memory_is_device(const void *address)
{
    return (uintptr_t)address - reserved < reserved_bytes;
}

bool memory_covers(struct memory *memory, const void *address, size_t bytes)
{
    uintptr_t begin = (uintptr_t)address;
    lock_take(&memory->lock);
    const struct extent *extent = extent_at(memory, begin);
    bool covers = extent && bytes <= extent->address + extent->bytes - begin;
    lock_drop(&memory->lock);
    return covers;
}
