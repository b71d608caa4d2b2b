#include "daemon/outbox.h"

#include "daemon/request.h"
#include "protocol/base/list.h"

void outbox_init(struct outbox *outbox, void (*wake)(void *context), void *context)
{
    queue_init(&outbox->queue);
    atomic_init(&outbox->control, 0);
    atomic_init(&outbox->due, false);
    outbox->wake = wake;
    outbox->context = context;
}

void outbox_destroy(struct outbox *outbox)
{
    queue_destroy(&outbox->queue);
}

void outbox_visit(struct outbox *outbox, struct seq *seq, unsigned flags)
{
    /* Release: what the worker wrote into the sequence is seen with the flags. */
    unsigned before =
        atomic_fetch_or_explicit(&seq->out_flags, flags | OUTBOX_QUEUED, memory_order_acq_rel);
    if (!(before & OUTBOX_QUEUED))
        queue_push(&outbox->queue, &seq->out_link);
    atomic_store_explicit(&outbox->due, true, memory_order_relaxed);
}

void outbox_cancel_seen(struct seq *seq)
{
    atomic_fetch_or_explicit(&seq->out_flags, OUTBOX_CANCEL_SEEN, memory_order_release);
}

void outbox_control(struct outbox *outbox, unsigned control)
{
    atomic_fetch_or_explicit(&outbox->control, control, memory_order_release);
    atomic_store_explicit(&outbox->due, true, memory_order_relaxed);
}

void outbox_flush(struct outbox *outbox)
{
    /* The caller's own store is seen here; another worker's is flushed by that worker or by this.
     */
    if (atomic_exchange_explicit(&outbox->due, false, memory_order_acq_rel))
        outbox->wake(outbox->context);
}

struct queue_link *outbox_drain(struct outbox *outbox, unsigned *ret_control)
{
    *ret_control = atomic_exchange_explicit(&outbox->control, 0, memory_order_acquire);
    return queue_drain(&outbox->queue);
}

struct seq *outbox_next(struct queue_link **chain, unsigned *ret_flags)
{
    if (*chain == NULL)
        return NULL;
    struct seq *seq = container_of(*chain, struct seq, out_link);
    /* Before the flag falls: from then on the worker may link it anew. */
    *chain = (*chain)->next;
    *ret_flags =
        atomic_fetch_and_explicit(&seq->out_flags, ~(unsigned)OUTBOX_QUEUED, memory_order_acq_rel) &
        ~(unsigned)OUTBOX_QUEUED;
    return seq;
}
