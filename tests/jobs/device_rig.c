#include "tests/jobs/device_rig.h"

#include <cuda_runtime_api.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "gpu/jobs/module.h"
#include "tests/runner.h"

static uint64_t state;

/* The build may have moved to the machine with the device: $SLUICE_PROGRAMS is the modules' folder.
 */
static void find(const char *module, char path[PATH_MAX])
{
    const char *folder = getenv("SLUICE_PROGRAMS");
    int length = folder ? snprintf(path, PATH_MAX, "%s%s", folder, strrchr(module, '/'))
                        : snprintf(path, PATH_MAX, "%s", module);
    ck_assert(length > 0 && length < PATH_MAX);
}

bool device_rig_open(struct device_rig *rig, const char *module,
                     const struct gpu_jobs_options *options)
{
    struct error error;
    char path[PATH_MAX];
    int found = 0;
    state = 1;
    /* By the runtime: the engine, which gpu_module has, is not linked with tests of programs. */
    if (cudaGetDeviceCount(&found) != cudaSuccess || found == 0)
        return false;
    find(module, path);
    ck_assert_msg(!module_load(path, DEVICE, &rig->program, &error), "%s", error.text);
    rig->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    ck_assert_msg(!gpu_jobs.open(options, &rig->jobs, &error), "%s", error.text);
    ck_assert_msg(!gpu_jobs.start(rig->jobs, rig->wake_fd, &error), "%s", error.text);
    return true;
}

void device_rig_submit(struct device_rig *rig, struct gpu_chunk *chunk)
{
    struct error error;
    ck_assert_msg(!gpu_jobs.submit(rig->jobs, chunk, &error), "%s", error.text);
}

struct gpu_chunk *device_rig_wait(struct device_rig *rig)
{
    struct gpu_chunk *chunk;
    struct error error;
    uint64_t drained;
    while (!(chunk = gpu_jobs.take(rig->jobs, &error))) {
        struct pollfd poll_fd = {.fd = rig->wake_fd, .events = POLLIN};
        ck_assert_msg(!error.code, "%s", error.text);
        ck_assert_msg(poll(&poll_fd, 1, 60000) == 1, "no chunk has ended for a minute");
        ck_assert(read(rig->wake_fd, &drained, sizeof(drained)) == sizeof(drained));
    }
    ck_assert_int_eq(chunk->status, 0);
    return chunk;
}

struct gpu_jobs_counters device_rig_close(struct device_rig *rig)
{
    struct gpu_jobs_counters counters;
    struct error error;
    gpu_jobs.counters(rig->jobs, &counters);
    ck_assert_uint_eq(counters.synchronizes + counters.pageable_copies + counters.allocations, 0);
    ck_assert_msg(!gpu_jobs.trim(rig->jobs, &error), "%s", error.text);
    gpu_jobs.stop(rig->jobs);
    gpu_jobs.close(rig->jobs);
    close(rig->wake_fd);
    return counters;
}

uint32_t device_rig_draw(uint32_t below)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((state >> 33) % below);
}

uint64_t device_rig_sum(uint64_t sum, const void *bytes, size_t length)
{
    const unsigned char *at = bytes;
    for (size_t i = 0; i < length; i++)
        sum = (sum ^ at[i]) * 1099511628211u;
    return sum;
}
