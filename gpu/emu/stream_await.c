/* How the host asks about a stream's work, and waits for it. */
#include "gpu/emu/call.h"
#include "gpu/emu/crew.h"
#include "gpu/emu/device.h"
#include "gpu/emu/order.h"
#include "gpu/emu/stream_inner.h"

static void observe(struct CUstream_st *stream, uint64_t seq)
{
    uint64_t before = atomic_load_explicit(&stream->observed, memory_order_relaxed);
    while (before < seq && !atomic_compare_exchange_weak(&stream->observed, &before, seq))
        ;
    order_take(stream_done_key(stream, seq));
}

bool stream_done(struct CUstream_st *stream, uint64_t seq)
{
    if (atomic_load_explicit(&stream->done, memory_order_acquire) < seq)
        return false;
    observe(stream, seq);
    return true;
}

void stream_await(struct CUstream_st *stream, uint64_t seq)
{
    if (device_chosen.engine == EMU_STEPPER) {
        while (atomic_load(&stream->done) < seq) {
            if (!emu_step())
                call_abort("synchronising would wait forever: nothing can run");
        }
    } else if (atomic_load_explicit(&stream->done, memory_order_acquire) < seq) {
        struct stream_waiter waiter = {.seq = seq};
        crew_await_begin(stream->crew);
        lock_take(&stream->lock);
        bool wait = atomic_load_explicit(&stream->done, memory_order_relaxed) < seq;
        if (wait) {
            waiter.next = stream->waiters;
            stream->waiters = &waiter;
        }
        lock_drop(&stream->lock);
        if (wait)
            signal_await(&waiter.signal);
        crew_await_end(stream->crew);
    }
    observe(stream, seq);
}
