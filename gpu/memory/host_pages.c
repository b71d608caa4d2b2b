#include "gpu/memory/host_pages.h"

#include <assert.h>
#include <cuda_runtime_api.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <sys/mman.h>

#include "gpu/base/cuda_error.h"

#define PAGE 4096u

/* ---- the limit ---------------------------------------------------------------------------------
 */

static _Atomic uint64_t reserved; /* of the process */

int host_pages_reserve(uint64_t limit, uint64_t bytes, struct error *error)
{
    uint64_t before = atomic_load(&reserved);
    /* One that is refused has never counted: another beside it may have what is left. */
    do {
        if (limit && (bytes > limit || before > limit - bytes))
            return error_limit(error, ERR_NO_MEMORY, limit, before + bytes,
                               "host-memory of %" PRIu64 " bytes leaves no room for %" PRIu64
                               " more: %" PRIu64 " would be needed",
                               limit, bytes, before + bytes);
    } while (!atomic_compare_exchange_weak(&reserved, &before, before + bytes));
    return 0;
}

void host_pages_return(uint64_t bytes)
{
    const uint64_t before = atomic_fetch_sub(&reserved, bytes);
    assert(before >= bytes);
    (void)before;
}

uint64_t host_pages_reserved(void)
{
    return atomic_load(&reserved);
}

/* ---- pages -------------------------------------------------------------------------------------
 */

int host_pages_pin(void *base, uint64_t bytes, struct error *error)
{
    cudaError_t failed = cudaHostRegister(base, bytes, cudaHostRegisterPortable);
    if (failed == cudaSuccess)
        return 0;
    struct error why;
    (void)cudaGetLastError(); /* a refusal does not last */
    (void)cuda_fail(failed, "cudaHostRegister", &why);
    return error_set(error, ERR_NO_MEMORY, "a chunk of %" PRIu64 " bytes: %s", bytes, why.text);
}

bool host_pages_unpin(void *base)
{
    return cudaHostUnregister(base) == cudaSuccess;
}

int host_pages_make(uint64_t bytes, void **ret_base, struct error *error)
{
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED)
        return error_set(error, ERR_NO_MEMORY, "no memory for a chunk of %" PRIu64 " bytes", bytes);
    (void)madvise(base, bytes, MADV_HUGEPAGE); /* fewer pages to register, where there are such */
    /* The system zeroes them here, not within the driver's call, beside which others wait. */
    for (uint64_t at = 0; at < bytes; at += PAGE)
        *(volatile char *)((char *)base + at) = 0;
    int status = host_pages_pin(base, bytes, error);
    if (status)
        (void)munmap(base, bytes);
    else
        *ret_base = base;
    return status;
}

bool host_pages_drop(void *base, uint64_t bytes, bool pinned)
{
    /* Of a device that failed the pages stay the driver's until the process ends. */
    if (pinned && !host_pages_unpin(base))
        return false;
    (void)munmap(base, bytes);
    return true;
}
