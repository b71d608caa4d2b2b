#include "gpu/emu/event.h"

#include <stdlib.h>
#include <time.h>

#include "gpu/emu/call.h"
#include "gpu/emu/capture.h"
#include "gpu/emu/device.h"
#include "gpu/emu/pool.h"
#include "gpu/emu/work.h"

#define EVENT_MAGIC 0x45564e54u

static struct lock all_lock;
static struct CUevent_st *all;
static uint32_t live_count;

static struct CUevent_st *event_from(cudaEvent_t handle)
{
    return handle && handle->magic == EVENT_MAGIC && handle->alive ? handle : NULL;
}

static struct event_place event_place(struct CUevent_st *event)
{
    lock_take(&event->lock);
    struct event_place place = event->place;
    lock_drop(&event->lock);
    return place;
}

void event_reset(void)
{
    while (all) {
        struct CUevent_st *event = all;
        all = event->next_all;
        free(event);
    }
    live_count = 0;
}

uint32_t event_live(void)
{
    lock_take(&all_lock);
    uint32_t count = live_count;
    lock_drop(&all_lock);
    return count;
}

void event_stamp(struct CUevent_st *event, uint64_t generation)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    lock_take(&event->lock);
    event->stamped_generation = generation;
    event->stamped_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    lock_drop(&event->lock);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *ret_event, unsigned int flags)
{
    ENTER(cudaEventCreateWithFlags);
    if (!ret_event || (flags & ~(unsigned)(cudaEventBlockingSync | cudaEventDisableTiming)))
        return call_fail(cudaErrorInvalidValue);
    lock_take(&all_lock);
    struct CUevent_st *event = all;
    while (event && event->alive)
        event = event->next_all;
    if (!event && (event = calloc(1, sizeof(*event))) != NULL) {
        event->magic = EVENT_MAGIC;
        event->next_all = all;
        all = event;
    }
    if (event) {
        lock_take(&event->lock);
        event->device = device_current();
        event->timed = !(flags & cudaEventDisableTiming);
        event->place = (struct event_place){0};
        event->generation++;
        event->alive = true;
        lock_drop(&event->lock);
        live_count++;
    }
    lock_drop(&all_lock);
    if (!event)
        return call_fail(cudaErrorMemoryAllocation);
    *ret_event = event;
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t handle)
{
    ENTER(cudaEventDestroy);
    struct CUevent_st *event = event_from(handle);
    if (!event)
        return call_fail(cudaErrorInvalidResourceHandle);
    lock_take(&all_lock);
    event->alive = false;
    live_count--;
    lock_drop(&all_lock);
    return cudaSuccess;
}

static cudaError_t stamp_enqueue(struct CUstream_st *stream, struct CUevent_st *event)
{
    struct work stamp = {.kind = WORK_STAMP,
                         .stamp = {.event = event, .generation = event->generation}};
    return stream_enqueue(stream, &stamp, NULL, 0) ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t stream_handle)
{
    ENTER(cudaEventRecord);
    struct CUevent_st *event = event_from(handle);
    struct CUstream_st *stream = stream_from(stream_handle);
    if (!event || !stream || event->device != stream->device)
        return call_fail(cudaErrorInvalidResourceHandle);
    cudaError_t error = cudaSuccess;
    struct event_place place = {.stream = stream};
    if (stream->capture)
        error = capture_record(stream, &place);
    lock_take(&event->lock);
    event->generation++;
    if (!stream->capture) {
        if (event->timed)
            error = stamp_enqueue(stream, event);
        place.seq = stream_issued(stream);
    }
    if (error == cudaSuccess)
        event->place = place;
    lock_drop(&event->lock);
    return error == cudaSuccess ? error : call_fail(error);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream_handle, cudaEvent_t handle, unsigned int flags)
{
    ENTER(cudaStreamWaitEvent);
    struct CUevent_st *event = event_from(handle);
    struct CUstream_st *stream = stream_from(stream_handle);
    if (!event || !stream)
        return call_fail(cudaErrorInvalidResourceHandle);
    if (flags != cudaEventWaitDefault)
        return call_fail(cudaErrorInvalidValue);
    if (call_skips_wait())
        return cudaSuccess;
    struct event_place place = event_place(event);
    cudaError_t error = cudaSuccess;
    if (stream->capture || place.capture_id)
        error = capture_wait(stream, &place);
    else if (place.stream)
        error = stream_wait(stream, place.stream, place.seq);
    return error == cudaSuccess ? error : call_fail(error);
}

/* Where the event stands, for a query or a synchronise, which may not touch captured events, and no
 * event by a capturing thread. */
static cudaError_t host_asks(struct CUevent_st *event, struct event_place *ret_place)
{
    if (!event)
        return call_fail(cudaErrorInvalidResourceHandle);
    *ret_place = event_place(event);
    if (ret_place->capture_id) {
        (void)capture_forbids(); /* and the capture is spoilt */
        return call_fail(cudaErrorCapturedEvent);
    }
    return capture_forbids();
}

cudaError_t cudaEventQuery(cudaEvent_t handle)
{
    ENTER(cudaEventQuery);
    struct CUevent_st *event = event_from(handle);
    struct event_place place = {.stream = NULL};
    cudaError_t error = host_asks(event, &place);
    if (error != cudaSuccess)
        return error;
    if (place.stream && !stream_done(place.stream, place.seq))
        return call_fail(cudaErrorNotReady);
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t handle)
{
    ENTER(cudaEventSynchronize);
    struct CUevent_st *event = event_from(handle);
    struct event_place place = {.stream = NULL};
    cudaError_t error = host_asks(event, &place);
    if (error != cudaSuccess)
        return error;
    if (place.stream)
        stream_await(place.stream, place.seq);
    error = call_sticky();
    if (error != cudaSuccess)
        return call_fail(error);
    pool_synchronised(event->device);
    return cudaSuccess;
}

/* The time of the last record, once it is done. */
static cudaError_t stamped(struct CUevent_st *event, uint64_t *ret_ns)
{
    lock_take(&event->lock);
    struct event_place place = event->place;
    bool known = event->stamped_generation == event->generation;
    uint64_t time_ns = event->stamped_ns;
    lock_drop(&event->lock);
    if (!event->timed || !place.stream)
        return cudaErrorInvalidResourceHandle;
    if (!known || !stream_done(place.stream, place.seq))
        return cudaErrorNotReady;
    *ret_ns = time_ns;
    return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *ret_ms, cudaEvent_t start_handle, cudaEvent_t end_handle)
{
    ENTER(cudaEventElapsedTime);
    struct CUevent_st *start = event_from(start_handle), *end = event_from(end_handle);
    uint64_t start_ns, end_ns;
    if (!start || !end)
        return call_fail(cudaErrorInvalidResourceHandle);
    if (!ret_ms)
        return call_fail(cudaErrorInvalidValue);
    cudaError_t error = stamped(start, &start_ns);
    if (error == cudaSuccess)
        error = stamped(end, &end_ns);
    if (error != cudaSuccess)
        return call_fail(error);
    *ret_ms = (float)((double)(int64_t)(end_ns - start_ns) / 1e6);
    return cudaSuccess;
}
