#include "gpu/base/streams.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "gpu/base/cuda_error.h"

static_assert(STREAMS_TICKETS > GPU_DEPTH_MAX, "a step in flight keeps its ticket");

static int create_streams(struct streams *lane, struct error *error)
{
    int least = 0, greatest = 0;
    CUDA_TRY(cudaDeviceGetStreamPriorityRange(&least, &greatest), error);
    struct {
        cudaStream_t *stream;
        int priority;
    } streams[] = {
        {&lane->compute, greatest}, {&lane->copy_in, greatest}, {&lane->copy_out, greatest},
        {&lane->notify, greatest},  {&lane->bulk_in, least},    {&lane->bulk_out, least},
    };
    for (size_t i = 0; i < sizeof streams / sizeof streams[0]; i++)
        CUDA_TRY(cudaStreamCreateWithPriority(streams[i].stream, cudaStreamNonBlocking,
                                              streams[i].priority),
                 error);
    return 0;
}

static int events_open(struct streams *lane, struct error *error)
{
    cudaEvent_t *events[] = {&lane->plan_there, &lane->results_there, &lane->results_on_host,
                             &lane->slabs_there, &lane->bulk_behind};
    for (size_t i = 0; i < sizeof events / sizeof events[0]; i++)
        CUDA_TRY(cudaEventCreateWithFlags(events[i], cudaEventDisableTiming), error);
    return 0;
}

int streams_open(struct streams *lane, int wake_fd, uint64_t profile_steps, struct error *error)
{
    memset(lane, 0, sizeof *lane);
    lane->wake_fd = wake_fd;
    for (uint32_t i = 0; i < STREAMS_TICKETS; i++)
        lane->tickets[i].lane = lane;
    for (uint32_t i = 0; i < GPU_SAMPLINGS_MAX; i++)
        lane->samplings[i].lane = lane;
    for (uint32_t i = 0; i < GPU_COPIES_MAX; i++)
        lane->copies[GPU_TO_HOST][i].lane = lane->copies[GPU_FROM_HOST][i].lane = lane;
    int status = create_streams(lane, error);
    if (!status)
        status = events_open(lane, error);
    if (!status)
        status = profile_open(&lane->profile, profile_steps, error);
    if (status)
        streams_close(lane);
    return status;
}

/* Errors are of no use here: either the device is lost and goes with the process, or these calls
 * succeed. */
void streams_close(struct streams *lane)
{
    profile_close(&lane->profile);
    cudaEvent_t *events[] = {&lane->plan_there, &lane->results_there, &lane->results_on_host,
                             &lane->slabs_there, &lane->bulk_behind};
    for (size_t i = 0; i < sizeof events / sizeof events[0]; i++) {
        if (*events[i])
            (void)cudaEventDestroy(*events[i]);
        *events[i] = NULL;
    }
    cudaStream_t *streams[] = {&lane->notify,  &lane->copy_out, &lane->copy_in,
                               &lane->compute, &lane->bulk_in,  &lane->bulk_out};
    for (size_t i = 0; i < sizeof streams / sizeof streams[0]; i++) {
        if (*streams[i])
            (void)cudaStreamDestroy(*streams[i]);
        *streams[i] = NULL;
    }
}

static int copy(struct streams *lane, uint64_t step, enum profile_mark mark, void *to,
                const void *from, size_t bytes, struct error *error)
{
    bool in = mark == PROFILE_IN_FIRST;
    cudaStream_t stream = in ? lane->copy_in : lane->copy_out;
    int status = profile_record(&lane->profile, step, mark, stream, error);
    if (status)
        return status;
    CUDA_TRY(cudaMemcpyAsync(to, from, bytes, in ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost,
                             stream),
             error);
    return profile_record(&lane->profile, step, mark + 1, stream, error);
}

int streams_plan_in(struct streams *lane, uint64_t step, void *device, const void *pinned,
                    size_t bytes, struct error *error)
{
    int status = copy(lane, step, PROFILE_IN_FIRST, device, pinned, bytes, error);
    if (status)
        return status;
    CUDA_TRY(cudaEventRecord(lane->plan_there, lane->copy_in), error);
    CUDA_TRY(cudaStreamWaitEvent(lane->compute, lane->plan_there, 0), error);
    return 0;
}

int streams_results_there(struct streams *lane, uint64_t step, struct error *error)
{
    int status = profile_record(&lane->profile, step, PROFILE_COMPUTE_LAST, lane->compute, error);
    if (status)
        return status;
    CUDA_TRY(cudaEventRecord(lane->results_there, lane->compute), error);
    CUDA_TRY(cudaStreamWaitEvent(lane->copy_out, lane->results_there, 0), error);
    return 0;
}

int streams_results_out(struct streams *lane, uint64_t step, void *pinned, const void *device,
                        size_t bytes, struct error *error)
{
    int status = copy(lane, step, PROFILE_OUT_FIRST, pinned, device, bytes, error);
    if (status)
        return status;
    CUDA_TRY(cudaEventRecord(lane->results_on_host, lane->copy_out), error);
    CUDA_TRY(cudaStreamWaitEvent(lane->notify, lane->results_on_host, 0), error);
    return 0;
}

static void wake(const struct streams *lane)
{
    uint64_t one = 1;
    while (write(lane->wake_fd, &one, sizeof one) < 0 && errno == EINTR)
        continue; /* a full eventfd is readable already */
}

static void step_ended(void *data)
{
    struct streams_ticket *ticket = data;
    struct streams *lane = ticket->lane;
    if (profile_covers(&lane->profile, ticket->step))
        ticket->told_ns = profile_now_ns();
    /* Release: who reads the number may read the step's results. */
    atomic_store_explicit(&lane->completed, ticket->step, memory_order_release);
    wake(lane);
}

static void sampling_ended(void *data)
{
    struct streams_ticket *ticket = data;
    atomic_store_explicit(&ticket->lane->sampled, ticket->step, memory_order_release);
    wake(ticket->lane);
}

int streams_notify(struct streams *lane, uint64_t step, struct error *error)
{
    struct streams_ticket *ticket = &lane->tickets[step % STREAMS_TICKETS];
    ticket->step = step;
    CUDA_TRY(cudaLaunchHostFunc(lane->notify, step_ended, ticket), error);
    lane->notified = step;
    return 0;
}

int streams_masks_in(struct streams *lane, void *device, const void *pinned, size_t bytes,
                     struct error *error)
{
    CUDA_TRY(cudaMemcpyAsync(device, pinned, bytes, cudaMemcpyHostToDevice, lane->copy_in), error);
    CUDA_TRY(cudaEventRecord(lane->plan_there, lane->copy_in), error);
    CUDA_TRY(cudaStreamWaitEvent(lane->compute, lane->plan_there, 0), error);
    return 0;
}

int streams_samples_out(struct streams *lane, uint64_t sampling, void *pinned, const void *device,
                        size_t bytes, struct error *error)
{
    struct streams_ticket *ticket = &lane->samplings[sampling % GPU_SAMPLINGS_MAX];
    CUDA_TRY(cudaEventRecord(lane->results_there, lane->compute), error);
    CUDA_TRY(cudaStreamWaitEvent(lane->copy_out, lane->results_there, 0), error);
    CUDA_TRY(cudaMemcpyAsync(pinned, device, bytes, cudaMemcpyDeviceToHost, lane->copy_out), error);
    CUDA_TRY(cudaEventRecord(lane->results_on_host, lane->copy_out), error);
    CUDA_TRY(cudaStreamWaitEvent(lane->notify, lane->results_on_host, 0), error);
    ticket->step = sampling;
    CUDA_TRY(cudaLaunchHostFunc(lane->notify, sampling_ended, ticket), error);
    lane->sampling = sampling;
    return 0;
}

/* ---- copies of blocks --------------------------------------------------------------------------
 */

static void out_ended(void *data)
{
    struct streams_ticket *ticket = data;
    /* Release: who reads the number may read the host's blocks, and write the device's. */
    atomic_store_explicit(&ticket->lane->copied[GPU_TO_HOST], ticket->step, memory_order_release);
    wake(ticket->lane);
}

static void in_ended(void *data)
{
    struct streams_ticket *ticket = data;
    atomic_store_explicit(&ticket->lane->copied[GPU_FROM_HOST], ticket->step, memory_order_release);
    wake(ticket->lane);
}

int streams_slab_there(struct streams *lane, struct error *error)
{
    CUDA_TRY(cudaEventRecord(lane->slabs_there, lane->compute), error);
    return 0;
}

int streams_copies_begin(struct streams *lane, enum gpu_way way, struct error *error)
{
    cudaEvent_t before = lane->slabs_there;
    if (way == GPU_TO_HOST) {
        before = lane->bulk_behind;
        CUDA_TRY(cudaEventRecord(before, lane->compute), error);
    }
    CUDA_TRY(cudaStreamWaitEvent(streams_bulk(lane, way), before, 0), error);
    return 0;
}

int streams_copies_end(struct streams *lane, enum gpu_way way, uint64_t number, struct error *error)
{
    struct streams_ticket *ticket = &lane->copies[way][number % GPU_COPIES_MAX];
    assert(number == lane->copying[way] + 1 &&
           number <= streams_copied(lane, way) + GPU_COPIES_MAX);
    ticket->step = number;
    CUDA_TRY(cudaLaunchHostFunc(streams_bulk(lane, way), way == GPU_TO_HOST ? out_ended : in_ended,
                                ticket),
             error);
    lane->copying[way] = number;
    return 0;
}

uint64_t streams_copied(const struct streams *lane, enum gpu_way way)
{
    return atomic_load_explicit(&lane->copied[way], memory_order_acquire);
}

uint64_t streams_sampled(const struct streams *lane)
{
    return atomic_load_explicit(&lane->sampled, memory_order_acquire);
}

uint64_t streams_completed(const struct streams *lane)
{
    return atomic_load_explicit(&lane->completed, memory_order_acquire);
}

uint64_t streams_told_ns(const struct streams *lane, uint64_t step)
{
    const struct streams_ticket *ticket = &lane->tickets[step % STREAMS_TICKETS];
    assert(ticket->step == step);
    return ticket->told_ns;
}

static int synchronize(const struct streams *lane, struct error *error)
{
    /* At start, when idle memory goes back, and at the end: never beside a step. One after the
     * other in the order in which work passes from stream to stream, so that the last wait ends it
     * all. */
    cudaStream_t streams[] = {lane->copy_in, lane->compute, lane->bulk_out, lane->copy_out,
                              lane->notify};
    for (size_t i = 0; i < sizeof streams / sizeof streams[0]; i++)
        CUDA_TRY(cudaStreamSynchronize(streams[i]), error); /* never beside a step, as said */
    return 0;
}

int streams_finish(struct streams *lane, struct error *error)
{
    CUDA_TRY(cudaStreamSynchronize(lane->bulk_in), error); /* never beside a step, as said */
    return synchronize(lane, error);
}

int streams_synchronize(struct streams *lane, struct error *error)
{
    if (streams_completed(lane) != lane->notified || streams_sampled(lane) != lane->sampling)
        atomic_fetch_add_explicit(&lane->synchronizes, 1, memory_order_relaxed);
    return synchronize(lane, error);
}
