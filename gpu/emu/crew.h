/* A crew: the threads that run streams, and the queue of streams that can run.
 *
 * The product has one crew per device, which wakes a thread only when work waits and none is about
 * to take it; a thread goes on with whatever its own work has made ready, so that a step over four
 * streams is one wake-up. (A host function must therefore not wait for what is only enqueued later
 * and that nobody synchronises with. CUDA asks for more: it may serialise them all.) With
 * EMU_STREAM_THREAD every stream has a crew of one. The stepper has one crew of none: crew_step
 * takes a random stream from the queue. Idle threads sleep; nothing polls.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "gpu/emu/stream.h"

#define CREW_THREADS_MAX 8

struct crew_member {
    struct crew *crew;
    pthread_t thread;
    atomic_uint wake;
    bool idle;
    _Atomic uint64_t busy_since_ns; /* with heavy work or a host function; 0: light work */
};

struct crew {
    struct lock lock;
    struct list queue[CLASSES]; /* by the class of the stream's head; lower ones go first */
    atomic_uint waiting;        /* streams in all of them */
    atomic_uint awaiting;       /* host threads that synchronise */
    uint32_t threads, active;
    bool stop;
    struct crew_member member[CREW_THREADS_MAX];
};

/* All its threads start now, so that no later call has to. NULL for want of memory or threads. */
struct crew *crew_make(uint32_t threads); /* 0: a stepper's */
void crew_join(struct crew *crew);        /* ends the threads; nothing may be queued */
void crew_free(struct crew *crew);        /* after crew_join of every crew: they wake each other */

/* By the stream's owner, who gives it away. */
void crew_push(struct crew *crew, struct CUstream_st *stream);

/* Whether a stream waits whose head should go before one of this class. */
bool crew_prefers_another(struct crew *crew, enum stream_class class);

/* Member's thread: about to run work that may take long (or forever); done with it. With `share`, a
 * free thread is woken for the streams that wait now. Those that come later wake one themselves
 * when the busy ones have been so for a while, so that a hung kernel holds up its own stream only.
 */
void crew_busy(struct crew_member *member, bool share, bool forever);
void crew_light(struct crew_member *member);

/* Around a host thread's wait: while it lasts, a stream waits for no busy thread. */
void crew_await_begin(struct crew *crew);
void crew_await_end(struct crew *crew);

/* Stepper: one work of a stream that `choice` picks; false when none can run. */
bool crew_step(struct crew *crew, uint64_t choice);
