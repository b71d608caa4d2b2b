#include "gpu/emu/host.h"

#include <stdlib.h>

#include "gpu/emu/call.h"
#include "gpu/emu/capture.h"
#include "gpu/emu/device.h"
#include "gpu/emu/lock.h"
#include "gpu/emu/order.h"

#define PAGE 4096u

struct range {
    uintptr_t begin;
    size_t bytes;
    bool allocated; /* by cudaHostAlloc; else registered */
};

static struct {
    struct lock lock;
    struct range *range;
    uint32_t count, capacity;
    char key; /* order.h: the array may move in any thread */
} host;

static bool add(void *address, size_t bytes, bool allocated)
{
    lock_take(&host.lock);
    if (host.count == host.capacity) {
        uint32_t capacity = host.capacity ? host.capacity * 2 : 16;
        order_take(&host.key);
        struct range *bigger = realloc(host.range, capacity * sizeof(*bigger));
        if (bigger) {
            host.range = bigger;
            host.capacity = capacity;
        }
        order_give(&host.key);
    }
    bool fits = host.count < host.capacity;
    if (fits)
        host.range[host.count++] =
            (struct range){.begin = (uintptr_t)address, .bytes = bytes, .allocated = allocated};
    lock_drop(&host.lock);
    return fits;
}

static bool drop(void *address, bool allocated)
{
    bool found = false;
    lock_take(&host.lock);
    for (uint32_t i = 0; i < host.count && !found; i++) {
        found = host.range[i].begin == (uintptr_t)address && host.range[i].allocated == allocated;
        if (found)
            host.range[i] = host.range[--host.count];
    }
    lock_drop(&host.lock);
    return found;
}

static bool overlaps(uintptr_t begin, size_t bytes)
{
    bool found = false;
    lock_take(&host.lock);
    for (uint32_t i = 0; i < host.count && !found; i++)
        found = begin < host.range[i].begin + host.range[i].bytes &&
                host.range[i].begin < begin + bytes;
    lock_drop(&host.lock);
    return found;
}

bool host_is_pinned(const void *address, size_t bytes)
{
    uintptr_t begin = (uintptr_t)address;
    bool found = false;
    lock_take(&host.lock);
    for (uint32_t i = 0; i < host.count && !found; i++) {
        const struct range *range = &host.range[i];
        found = begin >= range->begin && begin - range->begin <= range->bytes &&
                bytes <= range->bytes - (begin - range->begin);
    }
    lock_drop(&host.lock);
    return found;
}

uint32_t host_live(void)
{
    lock_take(&host.lock);
    uint32_t count = host.count;
    lock_drop(&host.lock);
    return count;
}

void host_reset(void)
{
    for (uint32_t i = 0; i < host.count; i++) {
        if (host.range[i].allocated)
            free((void *)host.range[i].begin);
    }
    host.count = 0;
}

cudaError_t cudaHostAlloc(void **ret_host, size_t size, unsigned int flags)
{
    ENTER(cudaHostAlloc);
    cudaError_t error = capture_forbids();
    if (error != cudaSuccess)
        return error;
    if (!ret_host ||
        flags > (cudaHostAllocPortable | cudaHostAllocMapped | cudaHostAllocWriteCombined))
        return call_fail(cudaErrorInvalidValue);
    *ret_host = NULL;
    if (size == 0)
        return cudaSuccess;
    void *memory;
    if (posix_memalign(&memory, PAGE, size) != 0)
        return call_fail(cudaErrorMemoryAllocation);
    if (!add(memory, size, true)) {
        free(memory);
        return call_fail(cudaErrorMemoryAllocation);
    }
    *ret_host = memory;
    return cudaSuccess;
}

cudaError_t cudaFreeHost(void *memory)
{
    ENTER(cudaFreeHost);
    cudaError_t error = capture_forbids();
    if (error != cudaSuccess || !memory)
        return error;
    if (!drop(memory, true))
        return call_fail(cudaErrorInvalidValue);
    for (uint32_t i = 0; i < device_count(); i++)
        stream_await_all(device_at((int)i)); /* as the real one does: copies may be under way */
    free(memory);
    return cudaSuccess;
}

cudaError_t cudaHostRegister(void *memory, size_t size, unsigned int flags)
{
    ENTER(cudaHostRegister);
    cudaError_t error = capture_forbids();
    if (error != cudaSuccess)
        return error;
    if (!memory || size == 0 ||
        (flags & ~(unsigned)(cudaHostRegisterPortable | cudaHostRegisterReadOnly)))
        return call_fail(cudaErrorInvalidValue);
    if (overlaps((uintptr_t)memory, size))
        return call_fail(cudaErrorHostMemoryAlreadyRegistered);
    return add(memory, size, false) ? cudaSuccess : call_fail(cudaErrorMemoryAllocation);
}

cudaError_t cudaHostUnregister(void *memory)
{
    ENTER(cudaHostUnregister);
    cudaError_t error = capture_forbids();
    if (error != cudaSuccess)
        return error;
    if (!memory)
        return call_fail(cudaErrorInvalidValue);
    return drop(memory, false) ? cudaSuccess : call_fail(cudaErrorHostMemoryNotRegistered);
}
