#include "gpu/emu/tally.h"

#include <stdlib.h>

#include "gpu/emu/order.h"
#include "gpu/emu/stream_inner.h"

#define TALLIES_MAX 256

static struct lock tallies_lock;    /* guards the list and its length */
static struct CUstream_st *tallies; /* by next_all */
static uint32_t tally_count;

void tally_raise(struct CUstream_st *tally)
{
    lock_take(&tally->lock);
    uint64_t count = atomic_load_explicit(&tally->done, memory_order_relaxed) + 1;
    order_give(stream_done_key(tally, count));
    atomic_store_explicit(&tally->done, count, memory_order_release);
    struct stream_waiter *ready = stream_take_waiters(tally, count);
    lock_drop(&tally->lock);
    stream_settle_all(ready);
}

void tally_release_all(void)
{
    lock_take(&tallies_lock);
    struct stream_waiter *ready[TALLIES_MAX];
    uint32_t count = 0;
    for (struct CUstream_st *tally = tallies; tally; tally = tally->next_all) {
        lock_take(&tally->lock);
        ready[count++] = stream_take_waiters(tally, UINT64_MAX);
        lock_drop(&tally->lock);
    }
    lock_drop(&tallies_lock);
    while (count-- > 0)
        stream_settle_all(ready[count]);
}

struct CUstream_st *emu_tally_make(void)
{
    struct CUstream_st *tally = calloc(1, sizeof(*tally));
    if (!tally)
        return NULL;
    lock_take(&tallies_lock);
    bool full = tally_count == TALLIES_MAX;
    if (!full) {
        tally_count++;
        tally->next_all = tallies;
        tallies = tally;
    }
    lock_drop(&tallies_lock);
    if (full)
        free(tally);
    return full ? NULL : tally;
}

void emu_tally_free(struct CUstream_st *tally)
{
    if (!tally)
        return;
    lock_take(&tallies_lock);
    for (struct CUstream_st **at = &tallies; *at; at = &(*at)->next_all) {
        if (*at != tally)
            continue;
        *at = tally->next_all;
        tally_count--;
        break;
    }
    lock_drop(&tallies_lock);
    free(tally);
}
