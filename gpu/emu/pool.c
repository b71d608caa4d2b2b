#include "gpu/emu/pool.h"

#include <stdlib.h>

#include "gpu/emu/call.h"
#include "gpu/emu/capture.h"
#include "gpu/emu/order.h"
#include "gpu/emu/stream.h"
#include "gpu/emu/work.h"

#define POOL_MAGIC 0x504f4f4cu
#define ALIGNMENT ((size_t)512)
#define POISON 0xff

static struct CUmemPoolHandle_st *pool_from(cudaMemPool_t handle)
{
    return handle && handle->magic == POOL_MAGIC ? handle : NULL;
}

struct CUmemPoolHandle_st *pool_make(struct device *device, uint64_t bytes_max)
{
    struct CUmemPoolHandle_st *pool = calloc(1, sizeof(*pool));
    if (!pool)
        return NULL;
    pool->magic = POOL_MAGIC;
    pool->device = device;
    pool->bytes_max = bytes_max ? bytes_max : UINT64_MAX;
    pool->opportunistic = true;
    pool->follow_events = pool->internal_dependencies = 1;
    list_init(&pool->extents);
    lock_take(&device->memory.lock);
    list_append(&device->memory.pools, &pool->link);
    lock_drop(&device->memory.lock);
    return pool;
}

/* --- blocks; the memory's lock is held ------------------------------------------------------- */

/* Free for everybody, as far as the host has seen. */
static bool settled(struct block *block)
{
    if (block->used)
        return false;
    if (block->freed_in && atomic_load(&block->freed_in->observed) >= block->freed_seq) {
        /* Whichever thread saw it done: whoever allocates it comes after. */
        stream_done(block->freed_in, block->freed_seq);
        order_give(&block->extent->memory->key);
        block->freed_in = NULL;
    }
    return block->freed_in == NULL;
}

static void merge_next(struct block *block)
{
    struct block *next = block->next;
    block->bytes += next->bytes;
    block->next = next->next;
    if (block->next)
        block->next->prev = block;
    memory_block_free(block->extent->memory, next);
}

/* Joins the free block with the next one where both are free for the same users. */
static bool try_merge(struct block *block)
{
    struct block *next = block->next;
    if (!next || block->used || next->used)
        return false;
    bool own = settled(block), other = settled(next);
    if (!own && !other && block->freed_in != next->freed_in)
        return false;
    if (own || (!other && next->freed_seq > block->freed_seq)) {
        block->freed_in = next->freed_in;
        block->freed_seq = next->freed_seq;
    }
    merge_next(block);
    return true;
}

static bool usable(struct CUmemPoolHandle_st *pool, struct block *block,
                   const struct CUstream_st *stream)
{
    if (block->used)
        return false;
    return block->freed_in == stream || settled(block) ||
           (pool->opportunistic && stream_done(block->freed_in, block->freed_seq));
}

static struct block *best_fit(struct CUmemPoolHandle_st *pool, size_t bytes,
                              const struct CUstream_st *stream)
{
    struct block *best = NULL;
    list_each(link, &pool->extents)
    {
        struct extent *extent = container_of(link, struct extent, link);
        for (struct block *block = extent->first; block; block = block->next) {
            while (try_merge(block))
                ;
            if (block->bytes >= bytes && (!best || block->bytes < best->bytes) &&
                usable(pool, block, stream))
                best = block;
        }
    }
    return best;
}

/* Gives back extents that the host has seen all free, until no more than `keep` is held. */
static void trim(struct CUmemPoolHandle_st *pool, uint64_t keep)
{
    list_each_safe(link, &pool->extents)
    {
        struct extent *extent = container_of(link, struct extent, link);
        bool idle = true;
        if (pool->held <= keep)
            return;
        for (struct block *block = extent->first; block && idle; block = block->next)
            idle = settled(block);
        if (!idle)
            continue;
        pool->held -= extent->bytes;
        list_remove(&extent->link);
        memory_release(extent);
    }
}

static struct block *grow(struct CUmemPoolHandle_st *pool, size_t bytes)
{
    size_t rounded = (bytes + MEMORY_GRANULE - 1) & ~(MEMORY_GRANULE - 1);
    if (rounded > pool->bytes_max || pool->held > pool->bytes_max - rounded)
        return NULL;
    struct extent *extent = memory_extend(&pool->device->memory, rounded);
    if (!extent) {
        trim(pool, 0); /* pieces too small for this one may add up to it */
        extent = memory_extend(&pool->device->memory, rounded);
    }
    if (!extent)
        return NULL;
    list_append(&pool->extents, &extent->link);
    pool->held += extent->bytes;
    if (pool->held > pool->held_high)
        pool->held_high = pool->held;
    return extent->first;
}

static bool split(struct block *block, size_t bytes)
{
    if (block->bytes == bytes)
        return true;
    struct block *rest = memory_block(block->extent->memory);
    if (!rest)
        return false;
    *rest = *block;
    rest->address += bytes;
    rest->bytes -= bytes;
    rest->prev = block;
    if (rest->next)
        rest->next->prev = rest;
    block->next = rest;
    block->bytes = bytes;
    return true;
}

static struct block *allocate(struct CUmemPoolHandle_st *pool, size_t size,
                              const struct CUstream_st *stream)
{
    size_t bytes = (size + ALIGNMENT - 1) & ~(ALIGNMENT - 1);
    lock_take(&pool->device->memory.lock);
    struct block *block = best_fit(pool, bytes, stream);
    if (!block)
        block = grow(pool, bytes);
    if (block && !split(block, bytes))
        block = NULL;
    if (block) {
        order_take(&pool->device->memory.key);
        block->used = true;
        block->freed_in = NULL;
        pool->used += bytes;
        if (pool->used > pool->used_high)
            pool->used_high = pool->used;
    }
    lock_drop(&pool->device->memory.lock);
    return block;
}

static struct CUmemPoolHandle_st *pool_of(struct memory *memory, const struct extent *extent)
{
    list_each(pool_link, &memory->pools)
    {
        struct CUmemPoolHandle_st *pool = container_of(pool_link, struct CUmemPoolHandle_st, link);
        list_each(link, &pool->extents)
        {
            if (container_of(link, struct extent, link) == extent)
                return pool;
        }
    }
    return NULL;
}

/* Free from this place of the stream on; a NULL stream: free at once. */
static void give(struct memory *memory, struct block *block, struct CUstream_st *stream,
                 uint64_t seq)
{
    lock_take(&memory->lock);
    struct CUmemPoolHandle_st *pool = pool_of(memory, block->extent);
    pool->used -= block->bytes;
    block->used = false;
    block->freed_in = stream;
    block->freed_seq = seq;
    while (try_merge(block))
        ;
    if (block->prev)
        try_merge(block->prev);
    if (!stream) {
        order_give(&memory->key);
        trim(pool, pool->threshold);
    }
    lock_drop(&memory->lock);
}

static struct block *find(struct memory *memory, const void *pointer)
{
    lock_take(&memory->lock);
    struct block *block = memory_find(memory, (uintptr_t)pointer);
    lock_drop(&memory->lock);
    return block;
}

/* --- the device's pools ---------------------------------------------------------------------- */

void pool_synchronised(struct device *device)
{
    lock_take(&device->memory.lock);
    list_each(link, &device->memory.pools)
    {
        struct CUmemPoolHandle_st *pool = container_of(link, struct CUmemPoolHandle_st, link);
        if (pool->held > pool->threshold && pool->held > pool->used)
            trim(pool, pool->threshold);
    }
    lock_drop(&device->memory.lock);
}

void pool_reset(struct device *device)
{
    struct list *link;
    while ((link = list_take(&device->memory.pools)) != NULL)
        free(container_of(link, struct CUmemPoolHandle_st, link));
}

uint32_t pool_live(struct device *device)
{
    uint32_t count = 0;
    lock_take(&device->memory.lock);
    list_each(link, &device->memory.pools) count +=
        container_of(link, struct CUmemPoolHandle_st, link) != device->memory.plain;
    lock_drop(&device->memory.lock);
    return count;
}

uint64_t pool_bytes_used(struct device *device)
{
    uint64_t bytes = 0;
    lock_take(&device->memory.lock);
    list_each(link, &device->memory.pools) bytes +=
        container_of(link, struct CUmemPoolHandle_st, link)->used;
    lock_drop(&device->memory.lock);
    return bytes;
}

/* --- calls ----------------------------------------------------------------------------------- */

cudaError_t cudaMemPoolCreate(cudaMemPool_t *ret_pool, const struct cudaMemPoolProps *props)
{
    ENTER(cudaMemPoolCreate);
    if (!ret_pool || !props || props->allocType != cudaMemAllocationTypePinned ||
        props->location.type != cudaMemLocationTypeDevice)
        return call_fail(cudaErrorInvalidValue);
    if (props->handleTypes != cudaMemHandleTypeNone)
        return call_fail(cudaErrorNotSupported);
    struct device *device = device_at(props->location.id);
    if (!device)
        return call_fail(cudaErrorInvalidDevice);
    struct CUmemPoolHandle_st *pool = pool_make(device, props->maxSize);
    if (!pool)
        return call_fail(cudaErrorMemoryAllocation);
    *ret_pool = pool;
    return cudaSuccess;
}

cudaError_t cudaMemPoolDestroy(cudaMemPool_t handle)
{
    ENTER(cudaMemPoolDestroy);
    struct CUmemPoolHandle_st *pool = pool_from(handle);
    if (!pool)
        return call_fail(cudaErrorInvalidValue);
    if (pool->used > 0)
        call_abort("a pool was destroyed with %llu bytes in use", (unsigned long long)pool->used);
    stream_await_all(pool->device); /* frees under way may still poison */
    lock_take(&pool->device->memory.lock);
    struct list *link;
    while ((link = list_take(&pool->extents)) != NULL)
        memory_release(container_of(link, struct extent, link));
    list_remove(&pool->link);
    lock_drop(&pool->device->memory.lock);
    pool->magic = 0;
    free(pool);
    return cudaSuccess;
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t handle, enum cudaMemPoolAttr attr, void *value)
{
    ENTER(cudaMemPoolSetAttribute);
    struct CUmemPoolHandle_st *pool = pool_from(handle);
    cudaError_t error = cudaSuccess;
    if (!pool || !value)
        return call_fail(cudaErrorInvalidValue);
    lock_take(&pool->device->memory.lock);
    switch (attr) {
    case cudaMemPoolReuseFollowEventDependencies:
        pool->follow_events = *(const int *)value;
        break;
    case cudaMemPoolReuseAllowOpportunistic:
        pool->opportunistic = *(const int *)value != 0;
        break;
    case cudaMemPoolReuseAllowInternalDependencies:
        pool->internal_dependencies = *(const int *)value;
        break;
    case cudaMemPoolAttrReleaseThreshold:
        pool->threshold = *(const uint64_t *)value;
        break;
    case cudaMemPoolAttrReservedMemHigh:
    case cudaMemPoolAttrUsedMemHigh:
        if (*(const uint64_t *)value != 0)
            error = cudaErrorInvalidValue;
        else if (attr == cudaMemPoolAttrReservedMemHigh)
            pool->held_high = pool->held;
        else
            pool->used_high = pool->used;
        break;
    default:
        error = cudaErrorInvalidValue;
    }
    lock_drop(&pool->device->memory.lock);
    return error == cudaSuccess ? error : call_fail(error);
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t handle, enum cudaMemPoolAttr attr, void *value)
{
    ENTER(cudaMemPoolGetAttribute);
    struct CUmemPoolHandle_st *pool = pool_from(handle);
    cudaError_t error = cudaSuccess;
    if (!pool || !value)
        return call_fail(cudaErrorInvalidValue);
    lock_take(&pool->device->memory.lock);
    switch (attr) {
    case cudaMemPoolReuseFollowEventDependencies:
        *(int *)value = pool->follow_events;
        break;
    case cudaMemPoolReuseAllowOpportunistic:
        *(int *)value = pool->opportunistic;
        break;
    case cudaMemPoolReuseAllowInternalDependencies:
        *(int *)value = pool->internal_dependencies;
        break;
    case cudaMemPoolAttrReleaseThreshold:
        *(uint64_t *)value = pool->threshold;
        break;
    case cudaMemPoolAttrReservedMemCurrent:
        *(uint64_t *)value = pool->held;
        break;
    case cudaMemPoolAttrReservedMemHigh:
        *(uint64_t *)value = pool->held_high;
        break;
    case cudaMemPoolAttrUsedMemCurrent:
        *(uint64_t *)value = pool->used;
        break;
    case cudaMemPoolAttrUsedMemHigh:
        *(uint64_t *)value = pool->used_high;
        break;
    default:
        error = cudaErrorInvalidValue;
    }
    lock_drop(&pool->device->memory.lock);
    return error == cudaSuccess ? error : call_fail(error);
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t handle, size_t bytes_to_keep)
{
    ENTER(cudaMemPoolTrimTo);
    struct CUmemPoolHandle_st *pool = pool_from(handle);
    if (!pool)
        return call_fail(cudaErrorInvalidValue);
    lock_take(&pool->device->memory.lock);
    trim(pool, bytes_to_keep);
    lock_drop(&pool->device->memory.lock);
    return cudaSuccess;
}

cudaError_t cudaMallocFromPoolAsync(void **ret_pointer, size_t size, cudaMemPool_t pool_handle,
                                    cudaStream_t stream_handle)
{
    ENTER(cudaMallocFromPoolAsync);
    struct CUmemPoolHandle_st *pool = pool_from(pool_handle);
    struct CUstream_st *stream = stream_from(stream_handle);
    if (!stream)
        return call_fail(cudaErrorInvalidResourceHandle);
    if (!ret_pointer || !pool || size == 0 || size > pool->device->memory.bytes)
        return call_fail(!ret_pointer || !pool || size == 0 ? cudaErrorInvalidValue
                                                            : cudaErrorMemoryAllocation);
    cudaError_t error = capture_refuses(stream); /* no memory nodes */
    if (error != cudaSuccess)
        return error;
    struct block *block = allocate(pool, size, stream);
    if (!block)
        return call_fail(cudaErrorMemoryAllocation);
    struct work poison = {
        .kind = WORK_FILL,
        .fill = {.dst = dev((void *)block->address), .value = POISON, .bytes = block->bytes}};
    if (device_chosen.poison && !stream_enqueue(stream, &poison, NULL, 0)) {
        give(&pool->device->memory, block, stream, stream_issued(stream));
        return call_fail(cudaErrorMemoryAllocation);
    }
    *ret_pointer = (void *)block->address;
    return cudaSuccess;
}

static struct block *find_anywhere(const void *pointer, struct device **ret_device)
{
    for (uint32_t i = 0; i < device_count(); i++) {
        *ret_device = device_at((int)i);
        struct block *block = find(&(*ret_device)->memory, pointer);
        if (block)
            return block;
    }
    return NULL;
}

cudaError_t cudaFreeAsync(void *pointer, cudaStream_t stream_handle)
{
    ENTER(cudaFreeAsync);
    struct CUstream_st *stream = stream_from(stream_handle);
    struct device *device;
    if (!stream)
        return call_fail(cudaErrorInvalidResourceHandle);
    cudaError_t error = capture_refuses(stream);
    if (error != cudaSuccess)
        return error;
    struct block *block = find_anywhere(pointer, &device);
    if (!block)
        return call_fail(cudaErrorInvalidValue);
    struct work poison = {.kind = WORK_FILL,
                          .fill = {.dst = dev(pointer), .value = POISON, .bytes = block->bytes}};
    if (device_chosen.poison && !stream_enqueue(stream, &poison, NULL, 0))
        return call_fail(cudaErrorMemoryAllocation);
    give(&device->memory, block, stream, stream_issued(stream));
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **ret_pointer, size_t size)
{
    ENTER(cudaMalloc);
    struct device *device = device_current();
    cudaError_t error = capture_forbids();
    if (error != cudaSuccess)
        return error;
    if (!ret_pointer)
        return call_fail(cudaErrorInvalidValue);
    *ret_pointer = NULL;
    if (size == 0)
        return cudaSuccess;
    if (size > device->memory.bytes)
        return call_fail(cudaErrorMemoryAllocation);
    struct block *block = allocate(device->memory.plain, size, NULL);
    if (!block)
        return call_fail(cudaErrorMemoryAllocation);
    *ret_pointer = (void *)block->address;
    if (device_chosen.poison)
        work_fill(dev(*ret_pointer), POISON, block->bytes);
    return cudaSuccess;
}

cudaError_t cudaFree(void *pointer)
{
    ENTER(cudaFree);
    struct device *device;
    cudaError_t error = capture_forbids();
    if (error != cudaSuccess || !pointer)
        return error;
    struct block *block = find_anywhere(pointer, &device);
    if (!block)
        return call_fail(cudaErrorInvalidValue);
    stream_await_all(device);
    if (device_chosen.poison)
        work_fill(dev(pointer), POISON, block->bytes);
    give(&device->memory, block, NULL, 0);
    error = call_sticky();
    return error == cudaSuccess ? error : call_fail(error);
}
