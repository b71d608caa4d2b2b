#include "gpu/lanes/machine.h"

#include <stdlib.h>
#include <string.h>

#include "gpu/base/cuda_error.h"
#include "gpu/lanes/body.h"

#define MEASUREMENTS 32 /* about so many have a share of the time each */

static int open_streams(struct machine *machine, struct error *error)
{
    for (uint32_t i = 0; i < body_streams_max && i < MACHINE_STREAMS_MAX; i++) {
        CUDA_TRY(cudaStreamCreateWithPriority(&machine->streams[i], cudaStreamNonBlocking, 0),
                 error);
        machine->stream_count++;
    }
    for (uint32_t i = 0; i < 2 * MACHINE_BATCHES; i++)
        CUDA_TRY(cudaEventCreateWithFlags(&machine->events[i % 2][i / 2], cudaEventDisableTiming),
                 error);
    return 0;
}

static int open_memory(struct machine *machine, struct error *error)
{
    for (int i = 0; i < 2; i++) {
        CUDA_TRY(cudaHostAlloc(&machine->pinned[i], MACHINE_BYTES, cudaHostAllocDefault), error);
        CUDA_TRY(cudaMalloc(&machine->memory[i], MACHINE_BYTES), error);
        machine->pageable[i] = malloc(MACHINE_BYTES);
        if (!machine->pageable[i])
            return error_set(error, ERR_NO_MEMORY, "no memory to measure copies with");
        /* All pages are there before anything is measured. */
        memset(machine->pinned[i], 1, MACHINE_BYTES);
        memset(machine->pageable[i], 1, MACHINE_BYTES);
    }
    return 0;
}

static void close_all(struct machine *machine)
{
    for (uint32_t i = 0; i < machine->stream_count; i++)
        (void)cudaStreamDestroy(machine->streams[i]);
    for (uint32_t i = 0; i < 2 * MACHINE_BATCHES; i++)
        if (machine->events[i % 2][i / 2])
            (void)cudaEventDestroy(machine->events[i % 2][i / 2]);
    for (int i = 0; i < 2; i++) {
        if (machine->pinned[i])
            (void)cudaFreeHost(machine->pinned[i]);
        if (machine->memory[i])
            (void)cudaFree(machine->memory[i]);
        free(machine->pageable[i]);
    }
}

int machine_measure(int device, uint64_t limit_us, struct gpu_machine *ret, struct error *error)
{
    struct machine machine = {.device = device, .turns_ns = limit_us * 1000 / MEASUREMENTS};
    struct gpu_machine found = {.emulated = body_cpu != NULL};
    int engines = 0;
    CUDA_TRY(cudaSetDevice(device), error);
    CUDA_TRY(cudaDeviceGetAttribute(&engines, cudaDevAttrAsyncEngineCount, device), error);
    found.copy_engines = (uint32_t)engines;
    int rc = open_streams(&machine, error);
    if (!rc)
        rc = open_memory(&machine, error);
    if (!rc)
        rc = machine_copies(&machine, &found, error);
    if (!rc)
        rc = machine_memory(&machine, &found, error);
    if (!rc)
        rc = machine_issue(&machine, &found, error);
    if (!rc)
        rc = machine_streams(&machine, &found, error);
    close_all(&machine);
    if (!rc)
        *ret = found;
    return rc;
}
