/* A lock and a wake-up word on bare futexes, for the emulation's own bookkeeping.
 *
 * pthread mutexes would do, but ThreadSanitizer takes each of them for an order between the threads
 * that used it. Work on two streams must look unordered unless CUDA orders it, so the runtime's own
 * locks stay out of its sight (these files are compiled without it) and order.h says what CUDA
 * orders. Nothing here spins.
 */
#pragma once

#include <linux/futex.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

struct lock {
    atomic_uint word; /* 0 free, 1 held, 2 held and waited for */
};

static inline void futex_wait(atomic_uint *word, unsigned int expected)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, NULL, NULL, 0);
}

static inline void futex_wake(atomic_uint *word, int count)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
}

static inline void lock_take(struct lock *lock)
{
    unsigned int expected = 0;
    if (atomic_compare_exchange_strong_explicit(&lock->word, &expected, 1, memory_order_acquire,
                                                memory_order_relaxed))
        return;
    while (atomic_exchange_explicit(&lock->word, 2, memory_order_acquire) != 0)
        futex_wait(&lock->word, 2);
}

static inline void lock_drop(struct lock *lock)
{
    if (atomic_exchange_explicit(&lock->word, 0, memory_order_release) == 2)
        futex_wake(&lock->word, 1);
}

/* A one-shot signal: waited for by one thread, given by another. */
static inline void signal_give(atomic_uint *word)
{
    atomic_store_explicit(word, 1, memory_order_release);
    futex_wake(word, 1);
}

static inline void signal_await(atomic_uint *word)
{
    while (!atomic_load_explicit(word, memory_order_acquire))
        futex_wait(word, 0);
}
