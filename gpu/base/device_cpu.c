#include "gpu/base/device.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "gpu/base/cuda_error.h"
#include "gpu/emu/emu.h"

const char device_name[] = "cpu";

const struct device_traits device_traits = {
    .slots_max = 128, /* more at once are no faster here, only larger */
    .tokens_max = 1024,
    .block_tokens = 32,
    .slab_bytes = 1u << 20,
    .host_bytes = 0, /* what leaves the device's memory is in the host's already */
    .host_chunk_bytes = 1u << 20,
    .embed_bytes = 1u << 20,
    .logit_bytes = 8u << 20,
    .workspace_bytes = 0,
    .post_bytes = 64u << 10,
    .slice_bytes = 64u << 10,
    .scratch_keep_bytes = 2u << 20,
    .staging_bytes = 2u << 20,
    .invariant = true,
};

int device_dtype(enum gpu_dtype asked, enum model_dtype own, enum dtype *ret, struct error *error)
{
    (void)own;
    if (asked != GPU_DTYPE_AUTO)
        return error_set(error, ERR_BAD_CONFIG,
                         "dtype: the CPU device computes in float32 alone, which auto stands for");
    *ret = DTYPE_F32;
    return 0;
}

static pthread_mutex_t prepare_lock = PTHREAD_MUTEX_INITIALIZER;
static bool prepared;

/* The devices share the machine's cores. */
static uint32_t team_threads(const struct gpu_options *options)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    if (options->cpu_threads || options->cpu_devices <= 1)
        return options->cpu_threads;
    return cores > (long)options->cpu_devices ? (uint32_t)cores / options->cpu_devices : 1;
}

int device_prepare(const struct gpu_options *options, struct error *error)
{
    /* Without a number of threads the runtime's own choice stands, or what a test has set up.
     * Faults are how tests break a whole daemon, see gpu/emu/README.md. */
    bool faults = getenv("SLUICE_EMU_FAULT") != NULL;
    if (!options->cpu_threads && options->cpu_devices <= 1 && !faults)
        return 0;
    pthread_mutex_lock(&prepare_lock);
    cudaError_t status = cudaSuccess;
    if (!prepared)
        status = emu_setup(&(struct emu_options){.devices = options->cpu_devices,
                                                 .team_threads = team_threads(options),
                                                 .faults_from_environment = faults});
    prepared = true;
    pthread_mutex_unlock(&prepare_lock);
    return status == cudaSuccess ? 0 : cuda_fail(status, "emu_setup", error);
}

int device_take(int device, struct error *error)
{
    CUDA_TRY(cudaSetDevice(device), error);
    return 0;
}

/* There is no context: this device's memory is the process's, and nothing of it is taken. */
int device_give(int device, struct error *error)
{
    CUDA_TRY(cudaSetDevice(device), error);
    const uint64_t taken = emu_live().device_bytes;
    return taken ? error_set(error, ERR_DEVICE, "device %d: %" PRIu64 " bytes are still taken",
                             device, taken)
                 : 0;
}
