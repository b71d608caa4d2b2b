#include "gpu/memory/pools.h"

#include <assert.h>
#include <inttypes.h>
#include <pthread.h>
#include <string.h>

#include "gpu/base/cuda_error.h"
#include "gpu/base/device.h"

/* Of mem_housekeep at a time: its calls take as long as there are slabs to return. */
#define TEND_BYTES (512u << 20)

static uint64_t number(const _Atomic uint64_t *at)
{
    return atomic_load_explicit(at, memory_order_relaxed);
}

/* One writer, so a plain load and store do. */
static void number_set(_Atomic uint64_t *at, uint64_t value)
{
    atomic_store_explicit(at, value, memory_order_relaxed);
}

static void number_add(_Atomic uint64_t *at, uint64_t value)
{
    number_set(at, number(at) + value);
}

static void number_subtract(_Atomic uint64_t *at, uint64_t value)
{
    assert(number(at) >= value);
    number_set(at, number(at) - value);
}

static uint64_t apart(uint64_t whole, uint64_t part)
{
    return whole > part ? whole - part : 0;
}

static int pool_open(cudaMemPool_t *ret_pool, int device, struct error *error)
{
    struct cudaMemPoolProps props = {
        .allocType = cudaMemAllocationTypePinned,
        .handleTypes = cudaMemHandleTypeNone,
        .location = {.type = cudaMemLocationTypeDevice, .id = device},
    };
    CUDA_TRY(cudaMemPoolCreate(ret_pool, &props), error);
    uint64_t keep_all = UINT64_MAX;
    int off = 0, on = 1;
    CUDA_TRY(cudaMemPoolSetAttribute(*ret_pool, cudaMemPoolAttrReleaseThreshold, &keep_all), error);
    CUDA_TRY(cudaMemPoolSetAttribute(*ret_pool, cudaMemPoolReuseFollowEventDependencies, &on),
             error);
    CUDA_TRY(cudaMemPoolSetAttribute(*ret_pool, cudaMemPoolReuseAllowOpportunistic, &off), error);
    CUDA_TRY(cudaMemPoolSetAttribute(*ret_pool, cudaMemPoolReuseAllowInternalDependencies, &off),
             error);
    return 0;
}

static int device_ask(struct mem *mem, struct error *error)
{
    size_t free_bytes = 0, total_bytes = 0;
    CUDA_TRY(cudaMemGetInfo(&free_bytes, &total_bytes), error);
    number_set(&mem->numbers.device_free, free_bytes);
    number_set(&mem->numbers.device_total, total_bytes);
    return 0;
}

int mem_open(struct mem *mem, int device, cudaStream_t stream, const struct mem_limits *limits,
             struct error *error)
{
    memset(mem, 0, sizeof *mem);
    mem->limits = *limits;
    mem->device = device;
    mem->stream = stream;
    int status = pool_open(&mem->scratch, device, error);
    if (!status)
        status = pool_open(&mem->kv, device, error);
    if (!status)
        status = device_ask(mem, error);
    if (!status) {
        cudaError_t failed = cudaEventCreateWithFlags(&mem->given, cudaEventDisableTiming);
        if (failed != cudaSuccess)
            status = cuda_fail(failed, "cudaEventCreateWithFlags", error);
    }
    if (status)
        (void)mem_close(mem, NULL);
    return status;
}

/* ---- what the process holds --------------------------------------------------------------------
 */

/* Of each device, by all engines of the process: several models may share it. */
static _Atomic uint64_t process_held[GPU_DEVICES_MAX];

static _Atomic uint64_t *process_of(const struct mem *mem)
{
    return &process_held[(unsigned)mem->device % GPU_DEVICES_MAX];
}

static uint64_t held(const struct mem *mem)
{
    return number(&mem->numbers.fixed) + number(&mem->numbers.kv_held) +
           number(&mem->numbers.scratch_held);
}

/* What was claimed and did not come about, or went, is others' again. */
static void tell(struct mem *mem)
{
    atomic_fetch_add(process_of(mem), held(mem) - mem->told); /* less is more that goes round */
    mem->told = held(mem);
}

/* Counts what is about to be taken, so that two engines do not both find the last of it; tell()
 * follows. How much the process would hold then. */
static uint64_t claim(struct mem *mem, uint64_t growth)
{
    mem->told += growth;
    return atomic_fetch_add(process_of(mem), growth) + growth;
}

/* Whether the limits leave room for `growth` more bytes from the device. */
static int limits_check(struct mem *mem, uint64_t growth, struct error *error)
{
    const struct mem_limits *limits = &mem->limits;
    const uint64_t all = claim(mem, growth);
    mem->own_limit = limits->memory_max && held(mem) + growth > limits->memory_max;
    if (limits->memory_max && all > limits->memory_max) {
        tell(mem);
        return error_limit(error, ERR_DEVICE_MEMORY, limits->memory_max, all,
                           "gpu-memory-max of %" PRIu64 " bytes leaves no room for %" PRIu64
                           " more: at least %" PRIu64 " are needed",
                           limits->memory_max, growth, all);
    }
    if (!limits->memory_reserve)
        return 0;
    int status = device_ask(mem, error);
    if (status)
        return status;
    uint64_t device_free = number(&mem->numbers.device_free);
    mem->own_limit =
        limits->memory_reserve + held(mem) + growth > number(&mem->numbers.device_total);
    if (device_free < limits->memory_reserve || device_free - limits->memory_reserve < growth)
        return error_limit(error, ERR_DEVICE_MEMORY, limits->memory_reserve, device_free,
                           "%" PRIu64 " bytes are free on the device and %" PRIu64
                           " stay reserved (gpu-memory-reserve): no room for %" PRIu64 " more",
                           device_free, limits->memory_reserve, growth);
    return 0;
}

static struct mem_range *range_find(struct mem_range *ranges, uint32_t count, const void *base)
{
    uint32_t i = 0;
    while (i < count && ranges[i].base != base)
        i++;
    return i < count ? &ranges[i] : NULL;
}

/* ---- fixed and pinned memory -------------------------------------------------------------------
 */

/* Engines of the process whose first steps run: what these take goes back at once. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t over;
    uint32_t running;
    uint64_t ended;
} warmups = {.lock = PTHREAD_MUTEX_INITIALIZER, .over = PTHREAD_COND_INITIALIZER};

void mem_warmup_begin(void)
{
    (void)pthread_mutex_lock(&warmups.lock);
    warmups.running++;
    (void)pthread_mutex_unlock(&warmups.lock);
}

void mem_warmup_end(void)
{
    (void)pthread_mutex_lock(&warmups.lock);
    warmups.running--;
    warmups.ended++;
    (void)pthread_cond_broadcast(&warmups.over);
    (void)pthread_mutex_unlock(&warmups.lock);
}

static uint64_t warmups_ended(void)
{
    (void)pthread_mutex_lock(&warmups.lock);
    uint64_t ended = warmups.ended;
    (void)pthread_mutex_unlock(&warmups.lock);
    return ended;
}

/* Until none runs; whether one has ended since there were `ended`. */
static bool warmups_await(uint64_t ended)
{
    (void)pthread_mutex_lock(&warmups.lock);
    while (warmups.running > 0)
        (void)pthread_cond_wait(&warmups.over, &warmups.lock);
    bool one = warmups.ended != ended;
    (void)pthread_mutex_unlock(&warmups.lock);
    return one;
}

static int fixed_take(struct mem *mem, uint64_t bytes, void **ret, struct error *error)
{
    int status = limits_check(mem, bytes, error);
    if (status) {
        tell(mem);
        return status;
    }
    void *base = NULL;
    /* May wait for the whole device: before the first step alone, as with cudaHostAlloc, and
     * counted where it is not. */
    cudaError_t failed = cudaMalloc(&base, bytes);
    if (failed == cudaSuccess) {
        mem->fixed[mem->fixed_count++] = (struct mem_range){base, bytes};
        number_add(&mem->numbers.fixed, bytes);
    }
    tell(mem);
    if (failed != cudaSuccess)
        return cuda_fail(failed, "cudaMalloc", error);
    number_add(&mem->numbers.late, mem->settled);
    *ret = base;
    return 0;
}

int mem_fixed(struct mem *mem, uint64_t bytes, void **ret, struct error *error)
{
    assert(mem->fixed_count < MEM_FIXED_MAX && bytes > 0);
    uint64_t ended;
    int status;
    do {
        ended = warmups_ended();
        status = fixed_take(mem, bytes, ret, error);
    } while (status == -ERR_DEVICE_MEMORY && !mem->own_limit && !mem->settled &&
             warmups_await(ended));
    return status;
}

int mem_pinned(struct mem *mem, uint64_t bytes, void **ret, struct error *error)
{
    assert(mem->pinned_count < MEM_FIXED_MAX && bytes > 0);
    void *base = NULL;
    CUDA_TRY(cudaHostAlloc(&base, bytes, cudaHostAllocDefault), error);
    mem->pinned[mem->pinned_count++] = (struct mem_range){base, bytes};
    number_add(&mem->numbers.pinned, bytes);
    number_add(&mem->numbers.late, mem->settled);
    *ret = base;
    return 0;
}

bool mem_is_pinned(const struct mem *mem, const void *at, uint64_t bytes)
{
    for (uint32_t i = 0; i < mem->pinned_count; i++) {
        const struct mem_range *range = &mem->pinned[i];
        uint64_t offset = (uint64_t)((uintptr_t)at - (uintptr_t)range->base);
        if ((uintptr_t)at >= (uintptr_t)range->base && offset <= range->bytes &&
            bytes <= range->bytes - offset)
            return true;
    }
    return false;
}

void mem_settle(struct mem *mem)
{
    mem->settled = true;
}

int mem_fixed_free(struct mem *mem, void *base, struct error *error)
{
    struct mem_range *range = range_find(mem->fixed, mem->fixed_count, base);
    if (!range)
        return 0;
    /* Waits for the device: staging before the first step, the rest after the last one. */
    CUDA_TRY(cudaFree(base), error);
    number_subtract(&mem->numbers.fixed, range->bytes);
    *range = mem->fixed[--mem->fixed_count];
    tell(mem);
    return 0;
}

int mem_pinned_free(struct mem *mem, void *base, struct error *error)
{
    struct mem_range *range = range_find(mem->pinned, mem->pinned_count, base);
    if (!range)
        return 0;
    /* Waits for the device, as cudaFree() does, and at the same times. */
    CUDA_TRY(cudaFreeHost(base), error);
    number_subtract(&mem->numbers.pinned, range->bytes);
    *range = mem->pinned[--mem->pinned_count];
    return 0;
}

static int held_ask(cudaMemPool_t pool, _Atomic uint64_t *at, struct error *error)
{
    uint64_t reserved = 0;
    CUDA_TRY(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &reserved), error);
    number_set(at, reserved);
    return 0;
}

/* A pool of which something is in use goes with the process: what is in it would be lost without a
 * word. What it holds unused goes back all the same. */
static int pool_close(cudaMemPool_t *pool, const _Atomic uint64_t *used_at,
                      _Atomic uint64_t *held_at, struct error *error)
{
    if (!*pool)
        return 0;
    if (number(used_at)) {
        if (cudaMemPoolTrimTo(*pool, 0) == cudaSuccess)
            (void)held_ask(*pool, held_at, NULL);
        return error_set(error, ERR_DEVICE, "%" PRIu64 " bytes of a pool were not freed",
                         number(used_at));
    }
    CUDA_TRY(cudaMemPoolDestroy(*pool), error);
    *pool = NULL;
    number_set(held_at, 0);
    return 0;
}

int mem_close(struct mem *mem, struct error *error)
{
    struct mem_numbers *numbers = &mem->numbers;
    int status = 0, next;
    for (uint32_t i = mem->fixed_count; i > 0; i--) { /* what cannot be freed stays in its place */
        next = mem_fixed_free(mem, mem->fixed[i - 1].base, status ? NULL : error);
        status = first_failure(status, next);
    }
    for (uint32_t i = mem->pinned_count; i > 0; i--) {
        next = mem_pinned_free(mem, mem->pinned[i - 1].base, status ? NULL : error);
        status = first_failure(status, next);
    }
    next = pool_close(&mem->scratch, &numbers->scratch_used, &numbers->scratch_held,
                      status ? NULL : error);
    status = first_failure(status, next);
    next = pool_close(&mem->kv, &numbers->kv_used, &numbers->kv_held, status ? NULL : error);
    if (mem->given)
        (void)cudaEventDestroy(mem->given);
    mem->given = NULL;
    tell(mem);
    return first_failure(status, next);
}

/* Before memory is asked for once more: what the pools hold unused goes back, which neither blocks
 * nor synchronises, it returns what the host has seen completed. For a slab some scratch is kept:
 * what another process takes at once would be missing for every step to come. */
static int make_room(struct mem *mem, cudaMemPool_t pool, struct error *error)
{
    uint64_t keep =
        pool == mem->kv ? number(&mem->numbers.scratch_used) + device_traits.scratch_keep_bytes : 0;
    CUDA_TRY(cudaMemPoolTrimTo(mem->scratch, keep), error);
    CUDA_TRY(cudaMemPoolTrimTo(mem->kv, 0), error);
    int status = held_ask(mem->scratch, &mem->numbers.scratch_held, error);
    if (!status)
        status = held_ask(mem->kv, &mem->numbers.kv_held, error);
    tell(mem);
    return status;
}

/* Takes from a pool; asks for room where the pool has to grow. When the device has none, the pools
 * give way and the call is tried once more. */
static int take(struct mem *mem, cudaMemPool_t pool, _Atomic uint64_t *used_at,
                _Atomic uint64_t *held_at, uint64_t bytes, void **ret, struct error *error)
{
    bool grows = number(used_at) + bytes > number(held_at);
    void *base = NULL;
    for (int attempt = 0;; attempt++) {
        /* What the pool holds unused may still not serve: it can be in pieces too small. */
        int status = grows ? limits_check(mem, apart(number(used_at) + bytes, number(held_at)), error) : 0;
        if (!status) {
            cudaError_t failed = cudaMallocFromPoolAsync(&base, bytes, pool, mem->stream);
            if (failed == cudaSuccess)
                break;
            status = cuda_fail(failed, "cudaMallocFromPoolAsync", error);
        }
        if (status != -ERR_DEVICE_MEMORY || attempt)
            return status;
        status = make_room(mem, pool, error);
        if (status)
            return status;
        grows = true;
    }
    number_add(used_at, bytes);
    int status = grows ? held_ask(pool, held_at, error) : 0;
    if (!status)
        *ret = base;
    else if (cudaFreeAsync(base, mem->stream) == cudaSuccess)
        number_subtract(used_at, bytes); /* else it is nobody's, and mem_close() tells */
    return status;
}

static int pool_take(struct mem *mem, cudaMemPool_t pool, _Atomic uint64_t *used_at,
                     _Atomic uint64_t *held_at, uint64_t bytes, void **ret, struct error *error)
{
    int status = take(mem, pool, used_at, held_at, bytes, ret, error);
    tell(mem);
    return status;
}

int mem_scratch(struct mem *mem, uint64_t bytes, void **ret, struct error *error)
{
    return pool_take(mem, mem->scratch, &mem->numbers.scratch_used, &mem->numbers.scratch_held,
                     bytes, ret, error);
}

int mem_scratch_free(struct mem *mem, void *base, uint64_t bytes, struct error *error)
{
    CUDA_TRY(cudaFreeAsync(base, mem->stream), error);
    number_subtract(&mem->numbers.scratch_used, bytes);
    return 0;
}

int mem_arena(struct mem *mem, uint64_t bytes, void **ret, struct error *error)
{
    int status = mem_scratch(mem, bytes, ret, error);
    if (!status)
        number_add(&mem->numbers.graphs, bytes);
    return status;
}

int mem_arena_free(struct mem *mem, void *base, uint64_t bytes, struct error *error)
{
    int status = mem_scratch_free(mem, base, bytes, error);
    if (!status)
        number_subtract(&mem->numbers.graphs, bytes);
    return status;
}

int mem_slab(struct mem *mem, uint64_t bytes, void **ret, struct error *error)
{
    uint64_t used = number(&mem->numbers.kv_used);
    if (mem->limits.kv_max && used + bytes > mem->limits.kv_max)
        return error_limit(error, ERR_DEVICE_MEMORY, mem->limits.kv_max, used + bytes,
                           "kv-max of %" PRIu64 " bytes is reached", mem->limits.kv_max);
    return pool_take(mem, mem->kv, &mem->numbers.kv_used, &mem->numbers.kv_held, bytes, ret, error);
}

int mem_slab_free(struct mem *mem, void *base, uint64_t bytes, struct error *error)
{
    CUDA_TRY(cudaFreeAsync(base, mem->stream), error);
    number_subtract(&mem->numbers.kv_used, bytes);
    mem->slabs_freed = true;
    return 0;
}

/* A pool lets go only of what the host has seen the stream pass; steps are told by a host function,
 * which does not count. Asking an event does, and waits for nothing. */
int mem_housekeep(struct mem *mem, struct error *error)
{
    if (mem->slabs_given) {
        cudaError_t passed = cudaEventQuery(mem->given);
        if (passed == cudaErrorNotReady)
            return 0;
        CUDA_TRY(passed, error);
        uint64_t before = number(&mem->numbers.kv_held);
        uint64_t keep = number(&mem->numbers.kv_used);
        if (before > keep && before - keep > TEND_BYTES)
            keep = before - TEND_BYTES;
        CUDA_TRY(cudaMemPoolTrimTo(mem->kv, keep), error);
        int status = held_ask(mem->kv, &mem->numbers.kv_held, error);
        tell(mem);
        if (status)
            return status;
        mem->slabs_given = number(&mem->numbers.kv_held) < before;
    }
    if (!mem->slabs_given && mem->slabs_freed) {
        CUDA_TRY(cudaEventRecord(mem->given, mem->stream), error);
        mem->slabs_given = true;
        mem->slabs_freed = false;
    }
    return 0;
}

int mem_trim(struct mem *mem, struct error *error)
{
    CUDA_TRY(cudaMemPoolTrimTo(mem->scratch, 0), error);
    CUDA_TRY(cudaMemPoolTrimTo(mem->kv, 0), error);
    int status = held_ask(mem->scratch, &mem->numbers.scratch_held, error);
    if (!status)
        status = held_ask(mem->kv, &mem->numbers.kv_held, error);
    tell(mem);
    if (!status)
        status = device_ask(mem, error);
    return status;
}

/* The numbers are read one by one while their writer goes on. */
void mem_read(const struct mem *mem, struct gpu_memory *ret)
{
    const struct mem_numbers *numbers = &mem->numbers;
    uint64_t arenas = number(&numbers->graphs); /* in the scratch pool, told apart here */
    *ret = (struct gpu_memory){
        .weights = number(&numbers->fixed),
        .kv_used = number(&numbers->kv_used),
        .kv_held = number(&numbers->kv_held),
        .scratch_used = apart(number(&numbers->scratch_used), arenas),
        .scratch_held = apart(number(&numbers->scratch_held), arenas),
        .graphs = arenas,
        .pinned = number(&numbers->pinned),
        .device_free = number(&numbers->device_free),
        .device_total = number(&numbers->device_total),
    };
}
