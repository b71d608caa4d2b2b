/* What taking memory costs, and what another thread's kernels see of it. */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "gpu/base/cuda_error.h"
#include "gpu/kernels/spin/spin.h"
#include "gpu/lanes/machine.h"

#define BYTES ((uint64_t)16 << 20)
#define TURNS_MAX 400u /* of taking and giving back */
#define OTHER_NS UINT64_C(20000)
#define OTHER_COUNT 200u /* kernels of the other thread, one after the other */
#define MINE 0
#define THEIRS 1 /* streams */

struct taker {
    enum gpu_machine_allocator kind;
    cudaMemPool_t pool; /* NULL: cudaMalloc */
};

static int take_and_give(struct machine *machine, const struct taker *taker, struct error *error)
{
    cudaStream_t stream = machine->streams[MINE];
    void *memory = NULL;
    if (taker->pool) {
        CUDA_TRY(cudaMallocFromPoolAsync(&memory, BYTES, taker->pool, stream), error);
        CUDA_TRY(cudaFreeAsync(memory, stream), error);
    } else {
        CUDA_TRY(cudaMalloc(&memory, BYTES), error);
        CUDA_TRY(cudaFree(memory), error);
    }
    /* What lies beyond the threshold goes back here. */
    CUDA_TRY(cudaStreamSynchronize(stream), error);
    return 0;
}

static int cost(struct machine *machine, const struct taker *taker, double *ret_us,
                struct error *error)
{
    uint32_t count = 0;
    int rc = take_and_give(machine, taker, error);
    const uint64_t begin = machine_now_ns();
    while (!rc && count < TURNS_MAX &&
           (count == 0 || machine_now_ns() - begin < machine->turns_ns)) {
        rc = take_and_give(machine, taker, error);
        count++;
    }
    *ret_us = (double)(machine_now_ns() - begin) / 1e3 / (count ? count : 1);
    return rc;
}

/* ---- somebody else -----------------------------------------------------------------------------
 */

struct other {
    pthread_t thread;
    struct machine *machine;
    uint32_t count; /* of its kernels; fewer where time is over */
    double mean_us, longest_us;
    cudaError_t status;
    atomic_bool through;
};

static void *run_other(void *data)
{
    struct other *other = data;
    cudaStream_t stream = other->machine->streams[THEIRS];
    const uint64_t begin = machine_now_ns();
    other->status = cudaSetDevice(other->machine->device);
    for (uint32_t i = 0; i < OTHER_COUNT && other->status == cudaSuccess; i++) {
        const uint64_t since = machine_now_ns();
        if (i > 0 && since - begin > other->machine->turns_ns)
            break;
        other->status = op_spin(OTHER_NS, stream);
        if (other->status == cudaSuccess)
            other->status = cudaStreamSynchronize(stream);
        const double us = (double)(machine_now_ns() - since) / 1e3;
        other->longest_us = us > other->longest_us ? us : other->longest_us;
        other->mean_us += us;
        other->count++;
    }
    other->mean_us /= other->count ? other->count : 1;
    atomic_store(&other->through, true);
    return NULL;
}

/* taker: what goes on meanwhile; NULL: nothing. */
static int beside(struct machine *machine, const struct taker *taker, struct other *ret,
                  struct error *error)
{
    *ret = (struct other){.machine = machine};
    int rc = 0;
    int failed = pthread_create(&ret->thread, NULL, run_other, ret);
    if (failed)
        return error_set(error, ERR_INTERNAL, "cannot start a thread: %s", strerror(failed));
    while (taker && !rc && !atomic_load(&ret->through))
        rc = take_and_give(machine, taker, error);
    pthread_join(ret->thread, NULL);
    if (!rc)
        CUDA_TRY(ret->status, error);
    return rc;
}

/* ---- all of it ---------------------------------------------------------------------------------
 */

static int open_pool(struct machine *machine, struct taker *taker, struct error *error)
{
    struct cudaMemPoolProps props = {
        .allocType = cudaMemAllocationTypePinned,
        .handleTypes = cudaMemHandleTypeNone,
        .location = {.type = cudaMemLocationTypeDevice, .id = machine->device}};
    uint64_t keep = taker->kind == GPU_MACHINE_KEEP ? UINT64_MAX : 0;
    CUDA_TRY(cudaMemPoolCreate(&taker->pool, &props), error);
    CUDA_TRY(cudaMemPoolSetAttribute(taker->pool, cudaMemPoolAttrReleaseThreshold, &keep), error);
    return 0;
}

static int trim(const struct taker *taker, struct gpu_machine *ret, struct error *error)
{
    CUDA_TRY(
        cudaMemPoolGetAttribute(taker->pool, cudaMemPoolAttrReservedMemCurrent, &ret->kept_bytes),
        error);
    CUDA_TRY(cudaMemPoolTrimTo(taker->pool, 0), error);
    CUDA_TRY(cudaMemPoolGetAttribute(taker->pool, cudaMemPoolAttrReservedMemCurrent,
                                     &ret->trimmed_bytes),
             error);
    return 0;
}

static int measure(struct machine *machine, struct taker *taker, double alone_us,
                   struct gpu_machine *ret, struct error *error)
{
    struct other other;
    int rc = cost(machine, taker, &ret->allocators[taker->kind].us, error);
    if (!rc)
        rc = beside(machine, taker, &other, error);
    if (rc)
        return rc;
    ret->allocators[taker->kind].others = other.mean_us / (alone_us > 0 ? alone_us : 1);
    ret->allocators[taker->kind].longest_us = other.longest_us;
    return taker->kind == GPU_MACHINE_KEEP ? trim(taker, ret, error) : 0;
}

int machine_memory(struct machine *machine, struct gpu_machine *ret, struct error *error)
{
    struct other alone;
    ret->allocation_bytes = BYTES;
    int rc = beside(machine, NULL, &alone, error);
    for (int kind = 0; !rc && kind < GPU_MACHINE_ALLOCATORS; kind++) {
        struct taker taker = {.kind = (enum gpu_machine_allocator)kind};
        if (kind != GPU_MACHINE_DIRECT)
            rc = open_pool(machine, &taker, error);
        if (!rc)
            rc = measure(machine, &taker, alone.mean_us, ret, error);
        if (taker.pool)
            (void)cudaMemPoolDestroy(taker.pool);
    }
    return rc;
}
