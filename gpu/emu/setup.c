/* Set-up of the emulated devices, and what it can be asked for afterwards. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpu/emu/call.h"
#include "gpu/emu/capture.h"
#include "gpu/emu/device.h"
#include "gpu/emu/event.h"
#include "gpu/emu/graph.h"
#include "gpu/emu/host.h"
#include "gpu/emu/order.h"
#include "gpu/emu/pool.h"

#define DEVICE_CREW 4 /* more only help streams that are all busy for long */

struct emu_options device_chosen;

static struct lock setup_lock;
static atomic_uint generation; /* of the set-up in force; 0: none */
static uint32_t last_generation;
static struct device devices[DEVICES_MAX];
static struct crew *stepper;
static uint64_t random_state;

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
    return device_chosen.devices;
}

struct device *device_at(int ordinal)
{
    return ordinal >= 0 && (uint32_t)ordinal < device_chosen.devices ? &devices[ordinal] : NULL;
}

/* xorshift64*: plenty for choosing streams. */
uint64_t device_random(void)
{
    random_state ^= random_state >> 12;
    random_state ^= random_state << 25;
    random_state ^= random_state >> 27;
    return (random_state * 0x2545f4914f6cdd1du) >> 16;
}

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
    for (uint32_t i = 0; i < device_chosen.devices; i++) {
        if (device_chosen.engine != EMU_STEPPER)
            stream_await_all(&devices[i]);
    }
    atomic_store(&generation, 0);
    stream_join();
    for (uint32_t i = 0; i < device_chosen.devices; i++) {
        if (devices[i].crew)
            crew_join(devices[i].crew);
    }
    stream_reset();
    for (uint32_t i = 0; i < device_chosen.devices; i++) {
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
    device_chosen = *options;
    if (device_chosen.devices == 0)
        device_chosen.devices = 1;
    if (device_chosen.memory_bytes == 0)
        device_chosen.memory_bytes = memory_available() / device_chosen.devices;
    device_chosen.memory_bytes &= ~(uint64_t)(MEMORY_GRANULE - 1);
    if (device_chosen.memory_bytes == 0)
        device_chosen.memory_bytes = MEMORY_GRANULE;
    if (device_chosen.team_threads == 0)
        device_chosen.team_threads = (uint32_t)sysconf(_SC_NPROCESSORS_ONLN);
    if (ORDER_SEEN && device_chosen.engine == EMU_THREADS)
        device_chosen.engine = EMU_STREAM_THREAD;
    random_state = options->seed * 0x9e3779b97f4a7c15u + 0x1234567u;
    random_state = random_state ? random_state : 1;
}

static cudaError_t device_open(uint32_t ordinal)
{
    struct device *device = &devices[ordinal];
    memset(device, 0, sizeof(*device));
    device->ordinal = (int)ordinal;
    cudaError_t error = memory_open(&device->memory, ordinal, (size_t)device_chosen.memory_bytes);
    if (error != cudaSuccess)
        return error;
    if (device_chosen.engine == EMU_STEPPER)
        device->crew = stepper;
    else if (device_chosen.engine == EMU_THREADS)
        device->crew = crew_make(DEVICE_CREW);
    device->memory.plain = pool_make(device, 0);
    if (!device->memory.plain || (!device->crew && device_chosen.engine != EMU_STREAM_THREAD))
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
    cudaError_t error = memory_reserve(device_chosen.devices, (size_t)device_chosen.memory_bytes);
    if (device_chosen.engine == EMU_STEPPER) {
        stepper = crew_make(0);
        if (!stepper)
            error = cudaErrorMemoryAllocation;
    }
    for (uint32_t i = 0; i < device_chosen.devices && error == cudaSuccess; i++)
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
    for (uint32_t i = 0; i < device_chosen.devices; i++) {
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
    for (uint32_t i = 0; i < device_chosen.devices && device_ready(); i++) {
        live.pools += pool_live(&devices[i]);
        live.device_bytes += pool_bytes_used(&devices[i]);
    }
    return live;
}
