/* What CUDA orders, told to ThreadSanitizer; nothing in other builds.
 *
 * An order runs from an order_give on a key to the order_take on the same key by another thread:
 * enqueue to execution, a stream's work to whoever waits for it by an event or by synchronising.
 * EMU_TSAN comes from the build, since the files that use this are compiled without -fsanitize.
 */
#pragma once

#ifdef EMU_TSAN
#ifdef __SANITIZE_THREAD__
#error "this file must be compiled with -fno-sanitize=thread"
#endif
void __tsan_acquire(void *key);
void __tsan_release(void *key);
#define order_take(key) __tsan_acquire(key)
#define order_give(key) __tsan_release(key)
#define ORDER_SEEN 1
#else
#define order_take(key) ((void)(key))
#define order_give(key) ((void)(key))
#define ORDER_SEEN 0
#endif
