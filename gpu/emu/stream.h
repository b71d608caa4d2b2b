/* Streams: FIFO queues of work, each with one owner at a time.
 *
 * Whoever enqueues into an idle stream, or completes what a stream waited for, becomes its owner
 * and settles it: the stream goes to its crew's queue when its head can run, onto another stream's
 * list of waiters when its head is a wait, or to rest when it is empty. A crew's thread that takes
 * the stream from the queue is its owner until the stream rests or waits. One lock per stream
 * guards the queue's ends; no lock is held while work runs, and no two streams' locks together.
 *
 * Work has a sequence number in its stream, and a stream says how far it is done. That is all an
 * event needs. Streams are never freed but used again, with numbers that go on, so an event may
 * outlive its stream.
 *
 * stream.c has their life and handles, stream_run.c how work goes in and is run, stream_await.c how
 * the host waits. Any thread, where nothing else is said.
 */
#pragma once

#include <stdatomic.h>

#include "gpu/emu/emu.h"
#include "gpu/emu/fifo.h"
#include "gpu/emu/lock.h"
#include "protocol/base/list.h"

struct stream_waiter {
    struct stream_waiter *next;
    uint64_t seq;               /* of the stream whose list this is on */
    struct CUstream_st *stream; /* that waits, or NULL: a thread does, on its signal */
    atomic_uint signal;
};

#define STREAM_KEYS 1024 /* far more than the work one stream has unseen at a time */

struct CUstream_st {
    uint32_t magic;
    struct lock lock;
    struct device *device;
    struct crew *crew;
    struct team *team; /* made with the first kernel that needs it */
    int priority;
    bool alive;   /* created and not destroyed */
    bool created; /* by a call, not a per-thread default */
    bool owned;   /* somebody settles or runs it */
    struct fifo queue;
    _Atomic uint64_t done;     /* number of the work completed last */
    _Atomic uint64_t observed; /* the highest that a host thread has seen completed */
    struct list link;          /* in the crew's queue */
    struct stream_waiter wait; /* this stream's, on another's list */
    struct stream_waiter *waiters;
    struct capture *capture; /* that this stream is part of; guarded by capture.c */
    uint32_t branch;
    struct CUstream_st *next_all;
    char issued_key[STREAM_KEYS], done_key[STREAM_KEYS]; /* order.h */
};

/* The stream behind a handle: aborts for the legacy stream, makes the per-thread default of the
 * current device on first use. NULL for what is no stream. */
struct CUstream_st *stream_from(cudaStream_t handle);

/* An unused stream, made when there is none; NULL for want of memory or threads. */
struct CUstream_st *stream_make(struct device *device, int priority, bool created);
void stream_retire(struct CUstream_st *stream);

/* Copies the template and its arguments to the queue's end; returns its number, 0 for want of
 * memory. */
uint64_t stream_enqueue(struct CUstream_st *stream, const struct work *work, const void *args,
                        size_t size);
/* The stream's later work starts after `on` is done with `seq`. */
cudaError_t stream_wait(struct CUstream_st *stream, struct CUstream_st *on, uint64_t seq);

uint64_t stream_issued(struct CUstream_st *stream); /* number of the work enqueued last */
/* Whether work `seq` is done; having been told so, the caller's thread is ordered after it. */
bool stream_done(struct CUstream_st *stream, uint64_t seq);
/* Blocks until then (or, stepping, steps). */
void stream_await(struct CUstream_st *stream, uint64_t seq);
void stream_await_all(struct device *device);

/* Owner only: runs until the stream rests, waits, or its head should let other streams of the crew
 * go first. `budget` limits the number of works; 0 means none. */
struct crew_member;
void stream_run(struct CUstream_st *stream, struct crew_member *member, uint32_t budget);
bool stream_head_hangs(const struct CUstream_st *stream);
/* What a crew runs first: what is over at once, then host functions, since somebody waits for them,
 * then kernels and large copies. */
enum stream_class { CLASS_LIGHT, CLASS_HOST, CLASS_HEAVY, CLASSES };
enum stream_class stream_head_class(const struct CUstream_st *stream);

/* Set-up only, once nothing is queued: ends the threads of streams that have their own; then, with
 * all crews ended, drops every stream. */
void stream_join(void);
void stream_reset(void);
uint32_t stream_live(void);
