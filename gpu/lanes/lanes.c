/* All lanes of a device, as gpu/jobs/gpu_jobs.h has them. */
#include <assert.h>
#include <stdlib.h>

#include "gpu/base/cuda_error.h"
#include "gpu/base/device.h"
#include "gpu/lanes/body.h"
#include "gpu/lanes/copy_crew.h"
#include "gpu/lanes/lane.h"
#include "gpu/lanes/machine.h"

struct gpu_jobs {
    struct gpu_jobs_options options;
    cudaMemPool_t pool;
    bool started, failed;
    uint32_t next;      /* the lane that is looked at first: they take turns */
    uint32_t under_way; /* chunks */
    struct lane_numbers numbers;
    struct copy_crew *crew;
    struct lane_clock clock;
    struct sluice_cuda cuda; /* what `lanes` point at, on a CUDA device */
    _Atomic uint64_t held;
    struct lane lanes[GPU_JOBS_LANES_MAX];
};

static int prepare(const struct gpu_jobs_options *options, struct error *error)
{
    const struct gpu_options device = {.cpu_threads = options->cpu_threads,
                                       .cpu_devices = options->cpu_devices};
    return device_prepare(&device, error);
}

static int jobs_open(const struct gpu_jobs_options *options, struct gpu_jobs **ret_jobs,
                     struct error *error)
{
    assert(options->lanes > 0 && options->lanes <= GPU_JOBS_LANES_MAX);
    assert(options->ring > 0 && options->ring <= GPU_JOBS_RING_MAX);
    assert(options->stream_count > 0 && options->stream_count <= SLUICE_STREAMS_MAX);
    int rc = prepare(options, error);
    if (rc)
        return rc;
    struct gpu_jobs *jobs = calloc(1, sizeof(*jobs));
    if (!jobs)
        return error_set(error, ERR_NO_MEMORY, "no memory for lanes");
    jobs->options = *options;
    *ret_jobs = jobs;
    return 0;
}

/* Memory that another lane gave back is used again once its stream has passed that: which piece a
 * chunk gets says nothing about its bits. */
static int open_pool(struct gpu_jobs *jobs, struct error *error)
{
    struct cudaMemPoolProps props = {
        .allocType = cudaMemAllocationTypePinned,
        .handleTypes = cudaMemHandleTypeNone,
        .location = {.type = cudaMemLocationTypeDevice, .id = jobs->options.device},
        .maxSize = jobs->options.memory_max};
    uint64_t keep = UINT64_MAX;
    int off = 0, on = 1;
    CUDA_TRY(cudaMemPoolCreate(&jobs->pool, &props), error);
    CUDA_TRY(cudaMemPoolSetAttribute(jobs->pool, cudaMemPoolAttrReleaseThreshold, &keep), error);
    CUDA_TRY(cudaMemPoolSetAttribute(jobs->pool, cudaMemPoolReuseAllowOpportunistic, &on), error);
    CUDA_TRY(cudaMemPoolSetAttribute(jobs->pool, cudaMemPoolReuseAllowInternalDependencies, &off),
             error);
    return 0;
}

static void close_all(struct gpu_jobs *jobs)
{
    for (uint32_t i = 0; i < jobs->options.lanes; i++)
        lane_close(&jobs->lanes[i]);
    lane_clock_close(&jobs->clock);
    copy_crew_close(jobs->crew);
    jobs->crew = NULL;
    if (jobs->pool)
        (void)cudaMemPoolDestroy(jobs->pool);
    jobs->pool = NULL;
    jobs->started = false;
}

static int jobs_start(struct gpu_jobs *jobs, int wake_fd, struct error *error)
{
    const struct sluice_cuda *cuda = NULL;
    CUDA_TRY(cudaSetDevice(jobs->options.device), error);
    int rc = open_pool(jobs, error);
    if (!rc)
        rc = body_open(&jobs->cuda, &cuda, error);
    if (!rc)
        rc = lane_clock_open(&jobs->clock, error);
    if (!rc)
        rc = copy_crew_open(&jobs->crew, jobs->options.copy_threads, jobs->options.chunk_bytes,
                            GPU_JOBS_PIECES_MAX * SLUICE_TENSORS_MAX, error);
    for (uint32_t i = 0; !rc && i < jobs->options.lanes; i++) {
        struct lane *lane = &jobs->lanes[i];
        lane->pool = jobs->pool;
        lane->wake_fd = wake_fd;
        lane->numbers = &jobs->numbers;
        lane->clock = &jobs->clock;
        lane->crew = jobs->crew;
        lane->cuda = cuda;
        lane->number = i;
        rc = lane_open(lane, &jobs->options, error);
    }
    if (rc)
        close_all(jobs);
    for (uint32_t i = 0; !rc && i < jobs->options.lanes; i++)
        jobs->lanes[i].settled = true;
    jobs->started = !rc;
    return rc;
}

/* ---- chunks ------------------------------------------------------------------------------------
 */

static uint32_t jobs_room(const struct gpu_jobs *jobs)
{
    return jobs->failed ? 0 : jobs->options.lanes * jobs->options.ring - jobs->under_way;
}

static void look_at_pool(struct gpu_jobs *jobs)
{
    uint64_t held = 0;
    if (cudaMemPoolGetAttribute(jobs->pool, cudaMemPoolAttrReservedMemCurrent, &held) ==
        cudaSuccess)
        atomic_store_explicit(&jobs->held, held, memory_order_relaxed);
}

static int jobs_submit(struct gpu_jobs *jobs, struct gpu_chunk *chunk, struct error *error)
{
    struct lane_slot *slot = NULL;
    for (uint32_t i = 0; !slot && i < jobs->options.lanes; i++) {
        slot = lane_free_slot(&jobs->lanes[jobs->next]);
        jobs->next = (jobs->next + 1) % jobs->options.lanes;
    }
    assert(slot && !jobs->failed);
    int rc = lane_submit(slot, chunk, error);
    if (rc && rc != -ERR_DEVICE_MEMORY && rc != -ERR_TOO_LARGE)
        jobs->failed = true;
    if (rc)
        return rc;
    look_at_pool(jobs);
    if (jobs->under_way++ > 0)
        atomic_fetch_add_explicit(&jobs->numbers.overlapped, 1, memory_order_relaxed);
    return 0;
}

static struct gpu_chunk *jobs_take(struct gpu_jobs *jobs, struct error *error)
{
    struct gpu_chunk *chunk = NULL;
    error->code = 0;
    for (uint32_t i = 0; jobs->under_way > 0 && i < jobs->options.lanes * jobs->options.ring; i++) {
        struct lane_slot *slot =
            &jobs->lanes[i / jobs->options.ring].slots[i % jobs->options.ring];
        if (atomic_load_explicit(&slot->state, memory_order_acquire) != SLOT_ENDED)
            continue;
        if (lane_take(slot, &chunk, error))
            jobs->failed = true;
        else
            jobs->under_way--;
        return chunk;
    }
    return NULL;
}

static enum gpu_progress jobs_query(struct gpu_jobs *jobs, struct error *error)
{
    for (uint32_t i = 0; i < jobs->options.lanes; i++) {
        cudaError_t status = cudaStreamQuery(jobs->lanes[i].notify);
        if (status == cudaSuccess || status == cudaErrorNotReady)
            continue;
        jobs->failed = true;
        (void)cuda_fail(status, "cudaStreamQuery", error);
        return GPU_FAILED;
    }
    return jobs->under_way > 0 ? GPU_BUSY : GPU_IDLE;
}

static int jobs_trim(struct gpu_jobs *jobs, struct error *error)
{
    assert(jobs->under_way == 0);
    /* Waits for frees alone: no job is under way, and each frees its memory on this stream. */
    for (uint32_t i = 0; i < jobs->options.lanes; i++)
        CUDA_TRY(cudaStreamSynchronize(jobs->lanes[i].in), error);
    CUDA_TRY(cudaMemPoolTrimTo(jobs->pool, 0), error);
    look_at_pool(jobs);
    return 0;
}

/* ---- figures, and the end ----------------------------------------------------------------------
 */

static uint64_t number(const _Atomic uint64_t *at)
{
    return atomic_load_explicit(at, memory_order_relaxed);
}

static void jobs_memory(const struct gpu_jobs *jobs, struct gpu_jobs_memory *ret_memory)
{
    *ret_memory = (struct gpu_jobs_memory){.used = number(&jobs->numbers.used),
                                           .held = number(&jobs->held),
                                           .pinned = number(&jobs->numbers.pinned)};
}

static void jobs_counters(const struct gpu_jobs *jobs, struct gpu_jobs_counters *ret_counters)
{
    const struct lane_numbers *numbers = &jobs->numbers;
    *ret_counters = (struct gpu_jobs_counters){.chunks = number(&numbers->chunks),
                                               .pieces = number(&numbers->pieces),
                                               .bytes_in = number(&numbers->bytes_in),
                                               .bytes_out = number(&numbers->bytes_out),
                                               .overlapped = number(&numbers->overlapped),
                                               .allocations = number(&numbers->allocations),
                                               .synchronizes = number(&numbers->synchronizes),
                                               .pageable_copies =
                                                   number(&numbers->pageable_copies)};
}

static void jobs_stop(struct gpu_jobs *jobs)
{
    struct error error;
    if (!jobs->started || jobs->failed)
        return; /* a lost device's memory goes with the process */
    for (uint32_t i = 0; i < jobs->options.lanes && !jobs->failed; i++)
        jobs->failed = lane_synchronize(&jobs->lanes[i], &error) != 0;
    while (!jobs->failed && jobs_take(jobs, &error))
        continue;
    if (!jobs->failed)
        close_all(jobs);
}

static void jobs_close(struct gpu_jobs *jobs)
{
    /* Of a device that failed, a host function may still be running. The process ends soon. */
    if (!jobs->failed)
        free(jobs);
}

static int jobs_measure(const struct gpu_jobs_options *options, uint64_t limit_us,
                        struct gpu_machine *ret_machine, struct error *error)
{
    int rc = prepare(options, error);
    return rc ? rc : machine_measure(options->device, limit_us, ret_machine, error);
}

__attribute__((visibility("default"))) const struct gpu_jobs_api gpu_jobs = {
    .open = jobs_open,
    .start = jobs_start,
    .room = jobs_room,
    .submit = jobs_submit,
    .take = jobs_take,
    .query = jobs_query,
    .trim = jobs_trim,
    .memory = jobs_memory,
    .counters = jobs_counters,
    .stop = jobs_stop,
    .close = jobs_close,
    .measure = jobs_measure,
};
