#include "daemon/worker/completion_queue.h"

#include "daemon/base/seq.h"
#include "protocol/base/list.h"

void completion_init(struct completion_queue *completions, void (*wake)(void *context),
                     void *context)
{
    mailbox_init(&completions->queue);
    atomic_init(&completions->control, 0);
    atomic_init(&completions->due, false);
    completions->wake = wake;
    completions->context = context;
}

void completion_destroy(struct completion_queue *completions)
{
    mailbox_destroy(&completions->queue);
}

void completion_visit(struct completion_queue *completions, struct seq *seq, unsigned flags)
{
    /* Release: what the worker wrote into the sequence is seen with the flags. */
    unsigned before =
        atomic_fetch_or_explicit(&seq->out_flags, flags | COMPLETION_QUEUED, memory_order_acq_rel);
    if (!(before & COMPLETION_QUEUED))
        mailbox_push(&completions->queue, &seq->out_link);
    atomic_store_explicit(&completions->due, true, memory_order_relaxed);
}

void completion_cancel_seen(struct seq *seq)
{
    atomic_fetch_or_explicit(&seq->out_flags, COMPLETION_CANCEL_SEEN, memory_order_release);
}

void completion_control(struct completion_queue *completions, unsigned control)
{
    atomic_fetch_or_explicit(&completions->control, control, memory_order_release);
    atomic_store_explicit(&completions->due, true, memory_order_relaxed);
}

void completion_flush(struct completion_queue *completions)
{
    /* The caller's own store is seen here; another worker's is flushed by that worker or by this.
     */
    if (atomic_exchange_explicit(&completions->due, false, memory_order_acq_rel))
        completions->wake(completions->context);
}

struct mailbox_link *completion_drain(struct completion_queue *completions, unsigned *ret_control)
{
    *ret_control = atomic_exchange_explicit(&completions->control, 0, memory_order_acquire);
    return mailbox_drain(&completions->queue);
}

struct seq *completion_next(struct mailbox_link **chain, unsigned *ret_flags)
{
    if (*chain == NULL)
        return NULL;
    struct seq *seq = container_of(*chain, struct seq, out_link);
    /* Before the flag falls: from then on the worker may link it anew. */
    *chain = (*chain)->next;
    *ret_flags = atomic_fetch_and_explicit(&seq->out_flags, ~(unsigned)COMPLETION_QUEUED,
                                           memory_order_acq_rel) &
                 ~(unsigned)COMPLETION_QUEUED;
    return seq;
}
