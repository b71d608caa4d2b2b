/* A stream's queue: works in the order in which they came, and the memory that they lie in.
 *
 * The stream's lock is held for every call but fifo_free(). Only the head is run, and it stays
 * where it is until it is popped: its owner reads it without the lock. Storage is used again, and
 * given back by fifo_free() alone.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct work;

struct fifo {
    struct work *head, *tail;
    struct chunk *chunk, *spare; /* where new work is put; emptied ones */
    uint64_t issued;             /* number of the work pushed last */
};

/* Copies the template and its arguments to the end, with the next number. NULL for want of memory.
 */
struct work *fifo_push(struct fifo *fifo, const struct work *from, const void *args, size_t size);
void fifo_pop(struct fifo *fifo); /* the head is done */
/* What is still there is dropped. Nobody uses the queue any more. */
void fifo_free(struct fifo *fifo);
