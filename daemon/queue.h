/* A mailbox between two threads: many push, one drains.
 *
 * Links are embedded in what is sent, so pushing cannot fail and allocates nothing; what bounds a
 * mailbox is what bounds the things that travel in it (admission). Pushing moves ownership. Drain
 * takes everything under one lock, in the order of pushing.
 *
 * queue_push: any thread. queue_drain: the owner's thread.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>

struct queue_link {
    struct queue_link *next;
};

struct queue {
    pthread_mutex_t lock;
    struct queue_link *first, **last;
};

void queue_init(struct queue *queue);
void queue_destroy(struct queue *queue);

/* True when the queue was empty before: only then does the owner need waking. */
bool queue_push(struct queue *queue, struct queue_link *link);

/* The whole chain in order, linked by ->next; NULL when empty. */
struct queue_link *queue_drain(struct queue *queue);
