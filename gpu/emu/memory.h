/* Device memory: address ranges given out in extents of whole granules.
 *
 * Two equal address ranges are reserved. The addresses handed out lie in the first, which is never
 * readable; the second, at emu_alias_offset from it, is where kernels and copies read and write,
 * and has pages only where an extent is. A released extent's pages go back to the system.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cuda_runtime_api.h>

#include "gpu/emu/lock.h"
#include "protocol/base/list.h"

#define MEMORY_GRANULE ((size_t)2 << 20)

/* A piece of an extent: allocated, or free since a place in a stream. */
struct block {
    struct block *next, *prev; /* by address, within the extent */
    struct extent *extent;
    uintptr_t address;
    size_t bytes;
    bool used;
    struct CUstream_st *freed_in; /* NULL: free for everybody */
    uint64_t freed_seq;
};

struct extent {
    struct list link; /* in its pool */
    struct memory *memory;
    uintptr_t address;
    size_t bytes;
    struct block *first;
};

struct memory {
    struct lock lock; /* guards all below, and the pools of the device */
    uintptr_t base;
    size_t bytes, limit, used; /* used: in extents */
    struct extent **by_granule;
    struct list pools;
    struct CUmemPoolHandle_st *plain; /* what cudaMalloc takes from */
    struct block *spare;              /* descriptors to use again, never freed before set-up: */
    struct list spare_extents;        /* the heap would show one thread's to another */
    char key;                         /* order.h: from what was freed to what is allocated later */
};

/* Set-up: reserves the ranges of all devices; drops those of the last set-up. */
cudaError_t memory_reserve(uint32_t devices, size_t bytes_each);
cudaError_t memory_open(struct memory *memory, uint32_t ordinal, size_t bytes);
void memory_close(struct memory *memory);

/* With the memory's lock held. */
struct extent *memory_extend(struct memory *memory, size_t bytes); /* NULL: out of memory */
void memory_release(struct extent *extent);                        /* its blocks go with it */
struct block *memory_block(struct memory *memory);                 /* NULL: out of host memory */
void memory_block_free(struct memory *memory, struct block *block);
struct block *memory_find(struct memory *memory, uintptr_t address); /* the one it begins */

/* Any thread. */
bool memory_is_device(const void *address); /* in any device's range */
bool memory_covers(struct memory *memory, const void *address, size_t bytes); /* in extents */
