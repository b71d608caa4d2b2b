#include "daemon/service/jobs.h"

#include <string.h>
#include <unistd.h>

#include "daemon/jobs/calibration.h"
#include "daemon/jobs/record.h"
#include "daemon/service/event_loop.h"
#include "daemon/worker/device_module.h"

#define CHUNK_MAX ((uint64_t)256 << 20) /* of a sweep */
#define SWEEP_US ((uint64_t)40 * 1000000)
#define MACHINE_US ((uint64_t)10 * 1000000)
#define COPY_THREADS_AUTO 8u
#define RING 2u /* chunks of a lane: one is computed, the next is copied */

int jobs_load(struct job_programs *programs, const struct options *options,
              const struct gpu_api *gpu, bool serve, struct error *error)
{
    return programs_load(programs, options, gpu->name, serve, error);
}

void jobs_print(const struct job_programs *programs, FILE *file)
{
    for (unsigned i = 0; i < programs->count; i++) {
        const struct job_program *program = &programs->list[i];
        fprintf(file, "program      %s: %s (%s)\n", program->program.name, program->program.summary,
                program->path);
        if (program->off)
            fprintf(file, "             off: %s\n", program->reason);
    }
}

static uint32_t copy_threads(const struct options *options, const struct gpu_api *gpu)
{
    const long processors = sysconf(_SC_NPROCESSORS_ONLN);
    if (options->job_copy_threads != OPTION_AUTO)
        return (uint32_t)options->job_copy_threads;
    if (strcmp(gpu->name, "cpu") == 0 || processors < 2)
        return 0;
    return processors / 2 < COPY_THREADS_AUTO ? (uint32_t)processors / 2 : COPY_THREADS_AUTO;
}

static struct job_worker_options worker_options(const struct job_programs *programs,
                                                const struct options *options,
                                                const struct gpu_api *gpu, int device)
{
    const bool background = options->model[0] != '\0' && options->job_background;
    struct job_worker_options made = {
        .lanes = {.device = device,
                  .lanes = (uint32_t)options->job_lanes,
                  .ring = RING,
                  .chunk_bytes = options->job_chunk,
                  .memory_max = options->job_memory,
                  .background = background,
                  .copy_threads = copy_threads(options, gpu),
                  .cpu_threads = (uint32_t)options->cpu_threads,
                  .cpu_devices = (uint32_t)options->cpu_devices},
        .timeout_us = options->job_timeout,
        .copy_rate = background ? options->job_copy_rate : 0,
        .idle_release_us = options->kv_idle_release - options->kv_idle_release / 10,
    };
    programs_streams(programs, &made.lanes.stream_count, &made.lanes.event_count);
    return made;
}

/* From the least that there is to 16 times what is set, and 4 times the lanes: with what is set by
 * default 64 KiB to 64 MiB, and 1 to 16. */
int jobs_calibrate(struct job_programs *programs, const struct options *options,
                   const struct gpu_api *gpu, int device, const struct option_command *command,
                   struct error *error)
{
    const struct gpu_jobs_api *api = device_module_jobs();
    const struct job_worker_options made = worker_options(programs, options, gpu, device);
    const struct calibration_range range = {
        .chunk_min = 64u << 10,
        .chunk_max = options->job_chunk * 16 < CHUNK_MAX ? options->job_chunk * 16 : CHUNK_MAX,
        .lanes_max = options->job_lanes * 4 < GPU_JOBS_LANES_MAX ? (uint32_t)options->job_lanes * 4
                                                                 : GPU_JOBS_LANES_MAX,
        .data_min = 16u << 20,
        .pass_us = 30000,
        .staging_max = 512u << 20,
        .limit_us = SWEEP_US};
    struct calibration found;
    struct gpu_machine machine;
    if (programs->count != 1)
        return error_set(error, ERR_BAD_CONFIG, "--calibrate takes one program, not %u",
                         programs->count);
    if (options->model[0])
        return error_set(error, ERR_BAD_CONFIG, "--calibrate measures a program alone: no model");
    if (!api)
        return error_set(error, ERR_BAD_CONFIG, "the device module %s has no lanes for jobs",
                         gpu->name);
    const struct calibration_told told = {
        &found, &machine, programs->list[0].program.name, gpu->name};
    int rc = calibration_run(api, programs, &made, &range, &found, error);
    if (!rc)
        rc = api->measure(&made.lanes, MACHINE_US, &machine, error);
    if (!rc)
        calibration_print(&told, stdout);
    if (!rc && command->calibrate_store)
        rc = calibration_store(&told, command->calibrate_store, error);
    if (!rc && command->calibrate_page)
        rc = calibration_write(&told, command->calibrate_page, error);
    return rc;
}

int jobs_open(struct job_programs *programs, const struct options *options,
              const struct gpu_api *gpu, int device, struct event_loop *loop, struct error *error)
{
    const struct gpu_jobs_api *api = device_module_jobs();
    const struct job_worker_options made = worker_options(programs, options, gpu, device);
    struct job_worker *worker;
    if (programs->count == 0)
        return 0;
    if (!api)
        return error_set(error, ERR_BAD_CONFIG, "the device module %s has no lanes for jobs",
                         gpu->name);
    int rc = job_worker_make(api, programs, &made, &loop->completions, &worker, error);
    if (rc)
        return rc;
    const struct chunk_limits limits = job_worker_limits(&made.lanes);
    event_loop_take_jobs(loop, worker);
    server_serve_jobs(&loop->server, programs, job_worker_replica(worker), &limits,
                      made.lanes.lanes * made.lanes.ring);
    loop->server.jobs.worker = worker;
    record_on_crash(programs->list, &programs->count);
    return 0;
}
