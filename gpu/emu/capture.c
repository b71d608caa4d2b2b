#include "gpu/emu/capture.h"

#include <stdlib.h>

#include "gpu/emu/call.h"
#include "gpu/emu/device.h"
#include "gpu/emu/graph.h"
#include "gpu/emu/work.h"

struct capture {
    uint64_t id;
    struct capture *next; /* of this thread */
    const void *thread;   /* the address of the thread's list stands for the thread */
    enum cudaStreamCaptureMode mode;
    enum cudaStreamCaptureStatus status;
    struct CUgraph_st *graph;
    uint32_t branches;
    struct CUstream_st *stream[GRAPH_BRANCHES_MAX]; /* [0] is where it began */
    int32_t last[GRAPH_BRANCHES_MAX];               /* the branch's last node, or -1 */
};

static _Thread_local struct capture *captures;
static _Thread_local enum cudaStreamCaptureMode thread_mode;
static _Thread_local uint32_t thread_generation;
static atomic_ullong last_id;
static atomic_uint global_captures; /* in global mode, of all threads */

void capture_reset(void)
{
    atomic_store(&global_captures, 0);
}

/* Captures that an earlier set-up left open are gone with it. */
static struct capture *thread_captures(void)
{
    if (thread_generation != device_generation()) {
        thread_generation = device_generation();
        captures = NULL;
        thread_mode = cudaStreamCaptureModeGlobal;
    }
    return captures;
}

static cudaError_t invalidate(struct capture *capture, cudaError_t error)
{
    capture->status = cudaStreamCaptureStatusInvalidated;
    return error;
}

static cudaError_t usable(const struct capture *capture)
{
    if (capture->status != cudaStreamCaptureStatusActive)
        return cudaErrorStreamCaptureInvalidated;
    if (capture->mode != cudaStreamCaptureModeRelaxed && capture->thread != &captures)
        return cudaErrorStreamCaptureWrongThread;
    return cudaSuccess;
}

static cudaError_t append(struct CUstream_st *stream, const struct work *work, const void *args,
                          size_t size, int32_t after)
{
    struct capture *capture = stream->capture;
    cudaError_t error = usable(capture);
    if (error != cudaSuccess)
        return error;
    int32_t node = graph_append(capture->graph, stream->branch, work, args, size, after);
    if (node < 0)
        return invalidate(capture, cudaErrorMemoryAllocation);
    capture->last[stream->branch] = node;
    return cudaSuccess;
}

cudaError_t submit(struct CUstream_st *stream, const struct work *work, const void *args,
                   size_t size)
{
    if (stream->capture)
        return append(stream, work, args, size, -1);
    return stream_enqueue(stream, work, args, size) ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t capture_record(struct CUstream_st *stream, struct event_place *place)
{
    struct capture *capture = stream->capture;
    cudaError_t error = usable(capture);
    if (error != cudaSuccess)
        return error;
    *place = (struct event_place){.capture_id = capture->id, .node = capture->last[stream->branch]};
    return cudaSuccess;
}

static struct capture *capture_by_id(uint64_t id)
{
    struct capture *capture = thread_captures();
    while (capture && capture->id != id)
        capture = capture->next;
    return capture;
}

/* The stream becomes a branch of the capture. */
static cudaError_t join(struct CUstream_st *stream, struct capture *capture)
{
    cudaError_t error = usable(capture);
    if (error != cudaSuccess)
        return error;
    if (capture->branches == GRAPH_BRANCHES_MAX)
        return invalidate(capture, cudaErrorNotSupported);
    stream->branch = capture->branches++;
    capture->stream[stream->branch] = stream;
    capture->last[stream->branch] = -1;
    graph_branch(capture->graph, stream->branch, stream->priority);
    stream->capture = capture;
    return cudaSuccess;
}

cudaError_t capture_wait(struct CUstream_st *stream, const struct event_place *place)
{
    if (!place->capture_id)
        return place->stream ? invalidate(stream->capture, cudaErrorStreamCaptureIsolation)
                             : cudaSuccess;
    struct capture *capture = capture_by_id(place->capture_id);
    if (!capture)
        return stream->capture ? invalidate(stream->capture, cudaErrorStreamCaptureIsolation)
                               : cudaErrorCapturedEvent;
    if (stream->capture && stream->capture != capture) {
        invalidate(stream->capture, cudaErrorStreamCaptureMerge);
        return invalidate(capture, cudaErrorStreamCaptureMerge);
    }
    if (!stream->capture) {
        cudaError_t error = join(stream, capture);
        if (error != cudaSuccess)
            return error;
    }
    struct work wait = {.kind = WORK_WAIT};
    return append(stream, &wait, NULL, 0, place->node);
}

cudaError_t capture_refuses(struct CUstream_st *stream)
{
    if (!stream->capture)
        return cudaSuccess;
    cudaError_t error = stream->capture->status == cudaStreamCaptureStatusActive
                            ? cudaErrorStreamCaptureUnsupported
                            : cudaErrorStreamCaptureInvalidated;
    return call_fail(invalidate(stream->capture, error));
}

cudaError_t capture_forbids(void)
{
    struct capture *capture = thread_captures();
    if (thread_mode == cudaStreamCaptureModeRelaxed)
        return cudaSuccess;
    while (capture && capture->mode == cudaStreamCaptureModeRelaxed)
        capture = capture->next;
    if (capture)
        return call_fail(invalidate(capture, cudaErrorStreamCaptureUnsupported));
    if (thread_mode == cudaStreamCaptureModeGlobal && atomic_load(&global_captures) > 0)
        return call_fail(cudaErrorStreamCaptureUnsupported);
    return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, enum cudaStreamCaptureMode mode)
{
    ENTER(cudaStreamBeginCapture);
    struct CUstream_st *stream = stream_from(handle);
    if (!stream)
        return call_fail(cudaErrorInvalidResourceHandle);
    if (mode > cudaStreamCaptureModeRelaxed)
        return call_fail(cudaErrorInvalidValue);
    if (stream->capture)
        return call_fail(cudaErrorIllegalState);
    struct capture *capture = calloc(1, sizeof(*capture));
    struct CUgraph_st *graph = capture ? graph_make(stream->device) : NULL;
    if (!graph) {
        free(capture);
        return call_fail(cudaErrorMemoryAllocation);
    }
    capture->next = thread_captures();
    captures = capture;
    capture->id = atomic_fetch_add(&last_id, 1) + 1;
    capture->thread = &captures;
    capture->mode = mode;
    capture->status = cudaStreamCaptureStatusActive;
    capture->graph = graph;
    if (mode == cudaStreamCaptureModeGlobal)
        atomic_fetch_add(&global_captures, 1);
    return join(stream, capture);
}

/* Takes the capture apart; its graph is the caller's. */
static struct CUgraph_st *dissolve(struct capture *capture)
{
    struct CUgraph_st *graph = capture->graph;
    for (uint32_t i = 0; i < capture->branches; i++)
        capture->stream[i]->capture = NULL;
    for (struct capture **at = &captures; *at; at = &(*at)->next) {
        if (*at == capture) {
            *at = capture->next;
            break;
        }
    }
    if (capture->mode == cudaStreamCaptureModeGlobal)
        atomic_fetch_sub(&global_captures, 1);
    free(capture);
    return graph;
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t *ret_graph)
{
    ENTER(cudaStreamEndCapture);
    struct CUstream_st *stream = stream_from(handle);
    if (!stream)
        return call_fail(cudaErrorInvalidResourceHandle);
    struct capture *capture = stream->capture;
    if (!ret_graph)
        return call_fail(cudaErrorInvalidValue);
    *ret_graph = NULL;
    if (!capture)
        return call_fail(cudaErrorIllegalState);
    if (capture->mode != cudaStreamCaptureModeRelaxed && capture->thread != &captures)
        return call_fail(cudaErrorStreamCaptureWrongThread);
    if (stream->branch != 0)
        return call_fail(invalidate(capture, cudaErrorStreamCaptureUnmatched));
    cudaError_t error = usable(capture);
    struct CUgraph_st *graph = dissolve(capture);
    if (error == cudaSuccess)
        error = graph_close(graph);
    if (error != cudaSuccess) {
        graph_free(graph);
        return call_fail(error);
    }
    *ret_graph = graph;
    return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, enum cudaStreamCaptureStatus *ret_status)
{
    ENTER(cudaStreamIsCapturing);
    struct CUstream_st *stream = stream_from(handle);
    if (!stream)
        return call_fail(cudaErrorInvalidResourceHandle);
    if (!ret_status)
        return call_fail(cudaErrorInvalidValue);
    *ret_status = stream->capture ? stream->capture->status : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
    ENTER(cudaThreadExchangeStreamCaptureMode);
    thread_captures();
    if (!mode || *mode > cudaStreamCaptureModeRelaxed)
        return call_fail(cudaErrorInvalidValue);
    enum cudaStreamCaptureMode before = thread_mode;
    thread_mode = *mode;
    *mode = before;
    return cudaSuccess;
}
