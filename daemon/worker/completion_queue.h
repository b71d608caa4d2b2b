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
 * End of a sequence: the loop owns it again when a visit tells COMPLETION_ENDED and, if the loop had
 * pushed a cancel for it, COMPLETION_CANCEL_SEEN too (a cancel that crosses the end is answered by one
 * more visit). Until then its cancel link may still be in the worker's mailbox.
 *
 * Functions tagged "worker" are called by any worker's thread, those tagged "loop" by one thread.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>

#include "daemon/base/mailbox.h"

struct seq;

enum completion_flag {
    COMPLETION_QUEUED = 1,     /* the out_link is in the completion queue */
    COMPLETION_ENDED = 2,      /* finish, failure, stamps and preemptions are set */
    COMPLETION_CANCEL_SEEN = 4 /* the worker has taken the cancel out of its mailbox */
};

/* What a worker tells beside its sequences; where there are several, each is asked for its part. */
enum completion_control {
    COMPLETION_READY = 1,   /* a model is loaded, sequences may be sent: worker_state() */
    COMPLETION_FAILED = 2,  /* a device failed, or loading did: worker_failure() says how */
    COMPLETION_STATS = 4,   /* a worker_snapshot() may be read */
    COMPLETION_STOPPED = 8, /* a thread is about to end: worker_join() will not wait long */
    COMPLETION_TRACE = 16,  /* the first steps are profiled: a trace is closed */
    COMPLETION_MEMORY = 32 /* a device refused memory that another model may have: worker_lacks() */
};

struct completion_queue {
    struct mailbox queue;
    atomic_uint control;
    void (*wake)(void *context); /* wakes the loop; any thread, may not block */
    void *context;
    atomic_bool due; /* something was put in since the last flush */
};

void completion_init(struct completion_queue *completions, void (*wake)(void *context), void *context);
void completion_destroy(struct completion_queue *completions);

/* worker. The sequence has progressed, or with flags: ended, or its cancel was seen. With
 * COMPLETION_ENDED it may not be touched afterwards. */
void completion_visit(struct completion_queue *completions, struct seq *seq, unsigned flags);
/* worker. Notes that the cancel was seen of a sequence that has not ended: no visit. */
void completion_cancel_seen(struct seq *seq);
/* worker. */
void completion_control(struct completion_queue *completions, unsigned control);
/* worker. Wakes the loop if anything was put in since. */
void completion_flush(struct completion_queue *completions);

/* loop. Takes everything; *ret_control is the controls since the last drain. */
struct mailbox_link *completion_drain(struct completion_queue *completions, unsigned *ret_control);
/* loop. The next sequence of a drained chain, NULL at its end. *ret_flags: COMPLETION_ENDED and
 * COMPLETION_CANCEL_SEEN, if set. From here on the worker may queue the sequence again. */
struct seq *completion_next(struct mailbox_link **chain, unsigned *ret_flags);
