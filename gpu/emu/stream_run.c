/* How work is queued, waited for and run: a stream passes from owner to owner (stream.h). */
#include "gpu/emu/call.h"
#include "gpu/emu/crew.h"
#include "gpu/emu/device.h"
#include "gpu/emu/order.h"
#include "gpu/emu/stream_inner.h"
#include "gpu/emu/work.h"

#define HEAVY_BYTES (256 * 1024)

static void *issued_key(struct CUstream_st *stream, uint64_t seq)
{
    return &stream->issued_key[seq % STREAM_KEYS];
}

/* --- owners ---------------------------------------------------------------------------------- */

/* Owner only, while there is a head. */
static struct work *peek(struct CUstream_st *stream)
{
    lock_take(&stream->lock);
    struct work *head = stream->queue.head;
    if (!head)
        stream->owned = false;
    lock_drop(&stream->lock);
    return head;
}

static bool is_wait(const struct work *work)
{
    return work->kind == WORK_WAIT || work->kind == WORK_LEVEL;
}

/* What a wait waits for. A stream's own tally stands still while the stream waits. */
static struct CUstream_st *awaited(const struct work *wait, uint64_t *ret_seq)
{
    if (wait->kind == WORK_WAIT) {
        *ret_seq = wait->wait.seq;
        return wait->wait.on;
    }
    *ret_seq = atomic_load_explicit(&wait->tally.own->done, memory_order_acquire);
    return wait->tally.other;
}

/* Hands the stream over to the end of what its head waits for. False: that is done already. */
static bool park(struct CUstream_st *stream, const struct work *wait)
{
    uint64_t seq;
    struct CUstream_st *on = awaited(wait, &seq);
    bool parked = false;
    lock_take(&on->lock);
    bool lost = wait->kind == WORK_LEVEL && call_sticky() != cudaSuccess;
    if (!lost && atomic_load_explicit(&on->done, memory_order_relaxed) < seq) {
        stream->wait.seq = seq;
        stream->wait.next = on->waiters;
        on->waiters = &stream->wait;
        parked = true;
    }
    lock_drop(&on->lock);
    return parked;
}

static void settle(struct CUstream_st *stream);

/* Whether even a wait that is over must come to the stream's own thread, to be seen (order.h). */
static bool waits_must_run(void)
{
    return ORDER_SEEN && device_chosen.engine != EMU_STEPPER;
}

/* Takes those off the list whose work is done. The stream's lock is held. */
struct stream_waiter *stream_take_waiters(struct CUstream_st *stream, uint64_t done)
{
    struct stream_waiter *ready = NULL;
    for (struct stream_waiter **at = &stream->waiters; *at;) {
        struct stream_waiter *waiter = *at;
        if (waiter->seq > done) {
            at = &waiter->next;
            continue;
        }
        *at = waiter->next;
        waiter->next = ready;
        ready = waiter;
    }
    return ready;
}

/* Owner only: the head is done. */
static void complete(struct CUstream_st *stream, struct work *work)
{
    uint64_t seq = work->seq;
    order_give(stream_done_key(stream, seq));
    lock_take(&stream->lock);
    fifo_pop(&stream->queue);
    atomic_store_explicit(&stream->done, seq, memory_order_release);
    struct stream_waiter *ready = stream->waiters ? stream_take_waiters(stream, seq) : NULL;
    lock_drop(&stream->lock);
    stream_settle_all(ready);
}

/* Owner only: gives the stream to whoever can go on with it. A wait that is over is completed here
 * where it can be. */
static void settle(struct CUstream_st *stream)
{
    struct work *head;
    while ((head = peek(stream)) != NULL) {
        if (!is_wait(head)) {
            crew_push(stream->crew, stream);
            return;
        }
        if (park(stream, head))
            return;
        if (waits_must_run()) {
            crew_push(stream->crew, stream);
            return;
        }
        complete(stream, head);
    }
}

void stream_settle_all(struct stream_waiter *ready)
{
    while (ready) {
        struct stream_waiter *next = ready->next; /* gone once it was told */
        if (ready->stream)
            settle(ready->stream);
        else
            signal_give(&ready->signal);
        ready = next;
    }
}

/* --- in -------------------------------------------------------------------------------------- */

uint64_t stream_enqueue(struct CUstream_st *stream, const struct work *from, const void *args,
                        size_t size)
{
    lock_take(&stream->lock);
    struct work *work = fifo_push(&stream->queue, from, args, size);
    if (!work) {
        lock_drop(&stream->lock);
        return 0;
    }
    uint64_t seq = work->seq;
    order_give(issued_key(stream, seq));
    bool rests = !stream->owned;
    stream->owned = true;
    lock_drop(&stream->lock);
    if (rests)
        settle(stream);
    return seq;
}

uint64_t stream_issued(struct CUstream_st *stream)
{
    lock_take(&stream->lock);
    uint64_t issued = stream->queue.issued;
    lock_drop(&stream->lock);
    return issued;
}

cudaError_t stream_wait(struct CUstream_st *stream, struct CUstream_st *on, uint64_t seq)
{
    if (on == stream || seq == 0)
        return cudaSuccess;
    if (!waits_must_run() && atomic_load_explicit(&on->done, memory_order_acquire) >= seq)
        return cudaSuccess;
    struct work wait = {.kind = WORK_WAIT, .wait = {.on = on, .seq = seq}};
    return stream_enqueue(stream, &wait, NULL, 0) ? cudaSuccess : cudaErrorMemoryAllocation;
}

/* --- running --------------------------------------------------------------------------------- */

enum stream_class stream_head_class(const struct CUstream_st *stream)
{
    const struct work *head = stream->queue.head;
    switch ((enum work_kind)head->kind) {
    case WORK_HOST:
        return CLASS_HOST;
    case WORK_KERNEL:
        return CLASS_HEAVY;
    case WORK_COPY:
        return head->copy.bytes > HEAVY_BYTES ? CLASS_HEAVY : CLASS_LIGHT;
    case WORK_FILL:
        return head->fill.bytes > HEAVY_BYTES ? CLASS_HEAVY : CLASS_LIGHT;
    case WORK_WAIT:
    case WORK_STAMP:
    case WORK_RAISE:
    case WORK_LEVEL:
        break;
    }
    return CLASS_LIGHT;
}

bool stream_head_hangs(const struct CUstream_st *stream)
{
    return stream->queue.head->hangs && call_sticky() == cudaSuccess;
}

static void run_head(struct CUstream_st *stream, struct crew_member *member, struct work *head)
{
    order_take(issued_key(stream, head->seq));
    if (is_wait(head)) {
        uint64_t seq;
        struct CUstream_st *on = awaited(head, &seq);
        order_take(stream_done_key(on, seq));
        return;
    }
    if (call_sticky() != cudaSuccess)
        return;
    enum stream_class class = stream_head_class(stream);
    if (member && class != CLASS_LIGHT)
        crew_busy(member, class == CLASS_HEAVY, head->hangs);
    if (head->hangs)
        call_hang();
    else
        work_run(stream, head);
    if (member)
        crew_light(member);
}

void stream_run(struct CUstream_st *stream, struct crew_member *member, uint32_t budget)
{
    struct work *head;
    for (uint32_t count = 0; (head = peek(stream)) != NULL; count++) {
        if (is_wait(head) && park(stream, head))
            return;
        if (budget && count == budget) {
            settle(stream);
            return;
        }
        if (count > 0 && crew_prefers_another(stream->crew, stream_head_class(stream))) {
            crew_push(stream->crew, stream);
            return;
        }
        run_head(stream, member, head);
        complete(stream, head);
    }
}
