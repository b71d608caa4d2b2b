/* A crew: the threads that run streams, and the queue of streams that can run.
 *
 * The product has one crew per device, which starts a thread only when work waits and none is free;
 * a thread goes on with whatever its own work has made ready, so that a step over four streams is
 * one wake-up. With EMU_STREAM_THREAD every stream has a crew of one. The stepper has one crew of
 * none: crew_step takes a random stream from the queue. Idle threads sleep; nothing polls.
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
    struct list light, heavy; /* by the kind of the stream's head; light ones go first */
    atomic_uint waiting;      /* streams in both */
    uint32_t threads, threads_max, active;
    bool stop;
    struct crew_member member[CREW_THREADS_MAX];
};

struct crew *crew_make(uint32_t threads_max); /* NULL for want of memory; 0 threads: a stepper's */
void crew_stop(struct crew *crew);            /* joins the threads, frees the crew */

/* By the stream's owner, who gives it away. */
void crew_push(struct crew *crew, struct CUstream_st *stream);

/* Whether light work waits that should go before a heavy head. */
bool crew_prefers_another(struct crew *crew);

/* Member's thread: about to run work that may take long (or forever); done with it. With `share`, a
 * free thread is woken for the streams that wait now. Those that come later wake one themselves when
 * the busy ones have been so for a while, so that a hung kernel holds up its own stream only. */
void crew_busy(struct crew_member *member, bool share, bool forever);
void crew_light(struct crew_member *member);

/* Stepper: one work of a stream that `choice` picks; false when none can run. */
bool crew_step(struct crew *crew, uint64_t choice);
