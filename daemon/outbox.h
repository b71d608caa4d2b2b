/* The mailbox from the workers to the loop.
 *
 * A sequence is in it at most once: further tokens of it that come before the loop looks are merged
 * into the same visit, since the loop reads up to seq.out_count. What waits here is therefore
 * bounded by what was sent to the worker.
 *
 * The flags of a sequence are one atomic word. Setting "ended" and "queued" is one operation, and
 * so is clearing "queued" and reading "ended"; so exactly one visit sees the end, and the worker
 * does not touch the sequence after it.
 *
 * End of a sequence: the loop owns it again when a visit tells OUTBOX_ENDED and, if the loop had
 * pushed a cancel for it, OUTBOX_CANCEL_SEEN too (a cancel that crosses the end is answered by one
 * more visit). Until then its cancel link may still be in the worker's mailbox.
 *
 * Functions tagged "worker" are called by any worker's thread, those tagged "loop" by one thread.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>

#include "daemon/queue.h"

struct seq;

enum outbox_flag {
    OUTBOX_QUEUED = 1,     /* the out_link is in the outbox */
    OUTBOX_ENDED = 2,      /* finish, failure, stamps and preemptions are set */
    OUTBOX_CANCEL_SEEN = 4 /* the worker has taken the cancel out of its mailbox */
};

/* What a worker tells beside its sequences; where there are several, each is asked for its part. */
enum outbox_control {
    OUTBOX_READY = 1,  /* a model is loaded, sequences may be sent: worker_state() */
    OUTBOX_FAILED = 2, /* a device failed, or loading did: worker_failure() says how */
    OUTBOX_STATS = 4,  /* a worker_snapshot() may be read */
    OUTBOX_STOPPED = 8, /* a thread is about to end: worker_join() will not wait long */
    OUTBOX_TRACE = 16  /* the first steps are profiled: a trace is closed */
};

struct outbox {
    struct queue queue;
    atomic_uint control;
    void (*wake)(void *context); /* wakes the loop; any thread, may not block */
    void *context;
    atomic_bool due; /* something was put in since the last flush */
};

void outbox_init(struct outbox *outbox, void (*wake)(void *context), void *context);
void outbox_destroy(struct outbox *outbox);

/* worker. The sequence has progressed, or with flags: ended, or its cancel was seen. With
 * OUTBOX_ENDED it may not be touched afterwards. */
void outbox_visit(struct outbox *outbox, struct seq *seq, unsigned flags);
/* worker. Notes that the cancel was seen of a sequence that has not ended: no visit. */
void outbox_cancel_seen(struct seq *seq);
/* worker. */
void outbox_control(struct outbox *outbox, unsigned control);
/* worker. Wakes the loop if anything was put in since. */
void outbox_flush(struct outbox *outbox);

/* loop. Takes everything; *ret_control is the controls since the last drain. */
struct queue_link *outbox_drain(struct outbox *outbox, unsigned *ret_control);
/* loop. The next sequence of a drained chain, NULL at its end. *ret_flags: OUTBOX_ENDED and
 * OUTBOX_CANCEL_SEEN, if set. From here on the worker may queue the sequence again. */
struct seq *outbox_next(struct queue_link **chain, unsigned *ret_flags);
