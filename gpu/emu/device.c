#include "gpu/emu/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpu/emu/call.h"
#include "gpu/emu/capture.h"
#include "gpu/emu/event.h"
#include "gpu/emu/graph.h"
#include "gpu/emu/host.h"
#include "gpu/emu/order.h"
#include "gpu/emu/pool.h"

#define PRIORITY_GREATEST (-5)
#define DEVICE_CREW 4 /* more only help streams that are all busy for long */

struct emu_options device_options;

static struct lock setup_lock;
static atomic_uint generation; /* of the set-up in force; 0: none */
static uint32_t last_generation;
static struct device devices[DEVICES_MAX];
static struct crew *stepper;
static uint64_t random_state;
static _Thread_local struct {
    uint32_t generation;
    int device;
} current;

bool device_ready(void)
{
    return atomic_load_explicit(&generation, memory_order_acquire) != 0;
}

uint32_t device_generation(void)
{
    return atomic_load_explicit(&generation, memory_order_acquire);
}

uint32_t device_count(void)
{
    return device_options.devices;
}

struct device *device_at(int ordinal)
{
    return ordinal >= 0 && (uint32_t)ordinal < device_options.devices ? &devices[ordinal] : NULL;
}

struct device *device_current(void)
{
    return &devices[current.generation == device_generation() ? current.device : 0];
}

/* xorshift64*: plenty for choosing streams. */
uint64_t device_random(void)
{
    random_state ^= random_state >> 12;
    random_state ^= random_state << 25;
    random_state ^= random_state >> 27;
    return (random_state * 0x2545f4914f6cdd1du) >> 16;
}

/* --- set-up ---------------------------------------------------------------------------------- */

static uint64_t memory_available(void)
{
    FILE *file = fopen("/proc/meminfo", "re");
    unsigned long long kib = 0;
    char line[128];
    while (file && !kib && fgets(line, sizeof(line), file))
        sscanf(line, "MemAvailable: %llu kB", &kib);
    if (file)
        fclose(file);
    return kib ? kib * 1024 : (uint64_t)1 << 30;
}

static void drop_all(void)
{
    if (last_generation == 0 || !device_ready())
        return;
    call_break(cudaErrorUnknown); /* what hangs lets go, what is queued is dropped */
    for (uint32_t i = 0; i < device_options.devices; i++) {
        if (device_options.engine != EMU_STEPPER)
            stream_await_all(&devices[i]);
    }
    atomic_store(&generation, 0);
    stream_join();
    for (uint32_t i = 0; i < device_options.devices; i++) {
        if (devices[i].crew)
            crew_join(devices[i].crew);
    }
    stream_reset();
    for (uint32_t i = 0; i < device_options.devices; i++) {
        if (devices[i].crew && devices[i].crew != stepper)
            crew_free(devices[i].crew);
        pool_reset(&devices[i]);
        memory_close(&devices[i].memory);
    }
    if (stepper)
        crew_free(stepper);
    stepper = NULL;
    event_reset();
    graph_reset();
    capture_reset();
    host_reset();
}

static void options_complete(const struct emu_options *options)
{
    device_options = *options;
    if (device_options.devices == 0)
        device_options.devices = 1;
    if (device_options.memory_bytes == 0)
        device_options.memory_bytes = memory_available() / device_options.devices;
    device_options.memory_bytes &= ~(uint64_t)(MEMORY_GRANULE - 1);
    if (device_options.memory_bytes == 0)
        device_options.memory_bytes = MEMORY_GRANULE;
    if (device_options.team_threads == 0)
        device_options.team_threads = (uint32_t)sysconf(_SC_NPROCESSORS_ONLN);
    if (ORDER_SEEN && device_options.engine == EMU_THREADS)
        device_options.engine = EMU_STREAM_THREAD;
    random_state = options->seed * 0x9e3779b97f4a7c15u + 0x1234567u;
    random_state = random_state ? random_state : 1;
}

static cudaError_t device_open(uint32_t ordinal)
{
    struct device *device = &devices[ordinal];
    memset(device, 0, sizeof(*device));
    device->ordinal = (int)ordinal;
    cudaError_t error =
        memory_open(&device->memory, ordinal, (size_t)device_options.memory_bytes);
    if (error != cudaSuccess)
        return error;
    if (device_options.engine == EMU_STEPPER)
        device->crew = stepper;
    else if (device_options.engine == EMU_THREADS)
        device->crew = crew_make(DEVICE_CREW);
    device->memory.plain = pool_make(device, 0);
    if (!device->memory.plain || (!device->crew && device_options.engine != EMU_STREAM_THREAD))
        return cudaErrorMemoryAllocation;
    return cudaSuccess;
}

/* The set-up lock is held. */
static cudaError_t setup(const struct emu_options *options)
{
    if (options->devices > DEVICES_MAX)
        return cudaErrorInvalidValue;
    drop_all();
    options_complete(options);
    cudaError_t error =
        memory_reserve(device_options.devices, (size_t)device_options.memory_bytes);
    if (device_options.engine == EMU_STEPPER) {
        stepper = crew_make(0);
        if (!stepper)
            error = cudaErrorMemoryAllocation;
    }
    for (uint32_t i = 0; i < device_options.devices && error == cudaSuccess; i++)
        error = device_open(i);
    if (error != cudaSuccess)
        return error; /* the process is out of memory before it began: nothing is taken back */
    call_reset(options->faults_from_environment);
    atomic_store_explicit(&generation, ++last_generation, memory_order_release);
    return cudaSuccess;
}

cudaError_t emu_setup(const struct emu_options *options)
{
    lock_take(&setup_lock);
    cudaError_t error = setup(options);
    lock_drop(&setup_lock);
    return error;
}

cudaError_t device_setup_default(void)
{
    const struct emu_options product = {0};
    lock_take(&setup_lock);
    cudaError_t error = device_ready() ? cudaSuccess : setup(&product);
    lock_drop(&setup_lock);
    return error;
}

bool emu_step(void)
{
    return stepper && crew_step(stepper, device_random());
}

void emu_memory_limit(uint64_t bytes)
{
    for (uint32_t i = 0; i < device_options.devices; i++) {
        lock_take(&devices[i].memory.lock);
        devices[i].memory.limit = (size_t)bytes;
        lock_drop(&devices[i].memory.lock);
    }
}

struct emu_live emu_live(void)
{
    struct emu_live live = {.streams = stream_live(),
                            .events = event_live(),
                            .graphs = graph_live(),
                            .host_ranges = host_live()};
    for (uint32_t i = 0; i < device_options.devices && device_ready(); i++) {
        live.pools += pool_live(&devices[i]);
        live.device_bytes += pool_bytes_used(&devices[i]);
    }
    return live;
}

/* --- calls ----------------------------------------------------------------------------------- */

cudaError_t cudaGetDeviceCount(int *ret_count)
{
    ENTER(cudaGetDeviceCount);
    if (!ret_count)
        return call_fail(cudaErrorInvalidValue);
    *ret_count = (int)device_count();
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    ENTER(cudaSetDevice);
    if (!device_at(device))
        return call_fail(cudaErrorInvalidDevice);
    current.generation = device_generation();
    current.device = device;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *ret_device)
{
    ENTER(cudaGetDevice);
    if (!ret_device)
        return call_fail(cudaErrorInvalidValue);
    *ret_device = device_current()->ordinal;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *ret_prop, int ordinal)
{
    ENTER(cudaGetDeviceProperties);
    if (!device_at(ordinal))
        return call_fail(cudaErrorInvalidDevice);
    if (!ret_prop)
        return call_fail(cudaErrorInvalidValue);
    *ret_prop = (struct cudaDeviceProp){
        .name = "CPU",
        .totalGlobalMem = (size_t)device_options.memory_bytes,
        .major = 9,
        .multiProcessorCount = (int)device_options.team_threads,
        .integrated = 1,
        .concurrentKernels = 1,
        .pciBusID = ordinal + 1,
        .asyncEngineCount = 3,
        .unifiedAddressing = 1,
        .l2CacheSize = 1 << 20,
        .streamPrioritiesSupported = 1,
        .memoryPoolsSupported = 1,
    };
    memcpy(ret_prop->uuid.bytes, "sluice-cpu", 10);
    ret_prop->uuid.bytes[15] = (char)ordinal;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *ret_value, enum cudaDeviceAttr attr, int ordinal)
{
    ENTER(cudaDeviceGetAttribute);
    if (!device_at(ordinal))
        return call_fail(cudaErrorInvalidDevice);
    if (!ret_value)
        return call_fail(cudaErrorInvalidValue);
    switch (attr) {
    case cudaDevAttrMultiProcessorCount:
        *ret_value = (int)device_options.team_threads;
        return cudaSuccess;
    case cudaDevAttrIntegrated:
    case cudaDevAttrConcurrentKernels:
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrStreamPrioritiesSupported:
    case cudaDevAttrHostRegisterSupported:
    case cudaDevAttrMemoryPoolsSupported:
        *ret_value = 1;
        return cudaSuccess;
    case cudaDevAttrPciBusId:
        *ret_value = ordinal + 1;
        return cudaSuccess;
    case cudaDevAttrPciDeviceId:
    case cudaDevAttrPciDomainId:
    case cudaDevAttrComputeCapabilityMinor:
        *ret_value = 0;
        return cudaSuccess;
    case cudaDevAttrL2CacheSize:
        *ret_value = 1 << 20;
        return cudaSuccess;
    case cudaDevAttrAsyncEngineCount:
        *ret_value = 3;
        return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor:
        *ret_value = 9;
        return cudaSuccess;
    }
    return call_fail(cudaErrorInvalidValue);
}

cudaError_t cudaDeviceGetPCIBusId(char *ret_id, int length, int ordinal)
{
    ENTER(cudaDeviceGetPCIBusId);
    if (!device_at(ordinal))
        return call_fail(cudaErrorInvalidDevice);
    if (!ret_id || length < 13)
        return call_fail(cudaErrorInvalidValue);
    snprintf(ret_id, (size_t)length, "0000:%02X:00.0", (unsigned)(ordinal + 1));
    return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *ret_least, int *ret_greatest)
{
    ENTER(cudaDeviceGetStreamPriorityRange);
    if (ret_least)
        *ret_least = 0;
    if (ret_greatest)
        *ret_greatest = PRIORITY_GREATEST;
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void)
{
    ENTER(cudaDeviceSynchronize);
    cudaError_t error = capture_forbids();
    if (error != cudaSuccess)
        return error;
    stream_await_all(device_current());
    error = call_sticky();
    if (error != cudaSuccess)
        return call_fail(error);
    pool_synchronised(device_current());
    return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int *ret_can, int device, int peer)
{
    ENTER(cudaDeviceCanAccessPeer);
    if (!device_at(device) || !device_at(peer))
        return call_fail(cudaErrorInvalidDevice);
    if (!ret_can)
        return call_fail(cudaErrorInvalidValue);
    *ret_can = device != peer;
    return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned int flags)
{
    ENTER(cudaDeviceEnablePeerAccess);
    struct device *device = device_current();
    if (!device_at(peer) || peer == device->ordinal)
        return call_fail(cudaErrorInvalidDevice);
    if (flags)
        return call_fail(cudaErrorInvalidValue);
    uint32_t bit = 1u << peer;
    if (atomic_fetch_or(&device->peers, bit) & bit)
        return call_fail(cudaErrorPeerAccessAlreadyEnabled);
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *ret_free, size_t *ret_total)
{
    ENTER(cudaMemGetInfo);
    struct memory *memory = &device_current()->memory;
    if (!ret_free || !ret_total)
        return call_fail(cudaErrorInvalidValue);
    lock_take(&memory->lock);
    size_t most = memory->limit < memory->bytes ? memory->limit : memory->bytes;
    *ret_free = most > memory->used ? most - memory->used : 0;
    *ret_total = memory->bytes;
    lock_drop(&memory->lock);
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *ret_version)
{
    ENTER(cudaRuntimeGetVersion);
    if (!ret_version)
        return call_fail(cudaErrorInvalidValue);
    *ret_version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *ret_version)
{
    ENTER(cudaDriverGetVersion);
    if (!ret_version)
        return call_fail(cudaErrorInvalidValue);
    *ret_version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *ret_stream, unsigned int flags, int priority)
{
    ENTER(cudaStreamCreateWithPriority);
    if (!ret_stream || (flags & ~(unsigned)cudaStreamNonBlocking))
        return call_fail(cudaErrorInvalidValue);
    priority = priority > 0 ? 0 : priority < PRIORITY_GREATEST ? PRIORITY_GREATEST : priority;
    struct CUstream_st *stream = stream_make(device_current(), priority, true);
    if (!stream)
        return call_fail(cudaErrorMemoryAllocation);
    *ret_stream = stream;
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t handle)
{
    ENTER(cudaStreamDestroy);
    struct CUstream_st *stream = stream_from(handle);
    if (!stream || !stream->created)
        return call_fail(cudaErrorInvalidResourceHandle);
    cudaError_t error = capture_refuses(stream);
    if (error != cudaSuccess)
        return error;
    stream_retire(stream); /* what is queued still runs */
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle)
{
    ENTER(cudaStreamSynchronize);
    struct CUstream_st *stream = stream_from(handle);
    if (!stream)
        return call_fail(cudaErrorInvalidResourceHandle);
    cudaError_t error = capture_refuses(stream);
    if (error == cudaSuccess)
        error = capture_forbids();
    if (error != cudaSuccess)
        return error;
    stream_await(stream, stream_issued(stream));
    error = call_sticky();
    if (error != cudaSuccess)
        return call_fail(error);
    pool_synchronised(stream->device);
    return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t handle)
{
    ENTER(cudaStreamQuery);
    struct CUstream_st *stream = stream_from(handle);
    if (!stream)
        return call_fail(cudaErrorInvalidResourceHandle);
    cudaError_t error = capture_refuses(stream);
    if (error == cudaSuccess)
        error = capture_forbids();
    if (error != cudaSuccess)
        return error;
    return stream_done(stream, stream_issued(stream)) ? cudaSuccess : call_fail(cudaErrorNotReady);
}
