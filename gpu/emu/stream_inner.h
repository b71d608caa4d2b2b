/* Streams, between the files that make them: stream_run.c, stream_await.c, tally.c. */
#pragma once

#include "gpu/emu/stream.h"

/* What work `seq` of a stream gives when it is done (order.h). */
static inline void *stream_done_key(struct CUstream_st *stream, uint64_t seq)
{
    return &stream->done_key[seq % STREAM_KEYS];
}

/* Takes those off the list of waiters whose work is done. The stream's lock is held. */
struct stream_waiter *stream_take_waiters(struct CUstream_st *stream, uint64_t done);
/* Lets them go on: streams are settled, threads woken. No lock is held. */
void stream_settle_all(struct stream_waiter *ready);
