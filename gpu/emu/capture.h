/* Stream capture: work enqueued into a capturing stream goes into a graph instead.
 *
 * A capture belongs to the thread that began it and to its first stream; a stream that waits for an
 * event recorded in the capture joins it, as a branch. Only that thread may use the streams of a
 * capture (thread-local mode), so nothing here is locked.
 */
#pragma once

#include "gpu/emu/event.h"
#include "gpu/emu/stream.h"

/* Enqueues, or appends to the stream's capture. */
cudaError_t submit(struct CUstream_st *stream, const struct work *work, const void *args,
                   size_t size);

cudaError_t capture_record(struct CUstream_st *stream, struct event_place *place);
cudaError_t capture_wait(struct CUstream_st *stream, const struct event_place *place);

/* For calls that ask about a stream: an error, and the capture invalid, when it is capturing. */
cudaError_t capture_refuses(struct CUstream_st *stream);
/* For calls that a capturing thread may not make (unless it chose the relaxed mode): the same for
 * the capture that the thread has going. Sets the last error. */
cudaError_t capture_forbids(void);

void capture_reset(void);
