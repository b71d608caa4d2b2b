/* A mailbox between two threads: many push, one drains.
 *
 * Links are embedded in what is sent, so pushing cannot fail and allocates nothing; what bounds a
 * mailbox is what bounds the things that travel in it (admission). Pushing moves ownership. Drain
 * takes everything under one lock, in the order of pushing.
 *
 * mailbox_push: any thread. mailbox_drain: the owner's thread.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>

struct mailbox_link {
    struct mailbox_link *next;
};

struct mailbox {
    pthread_mutex_t lock;
    struct mailbox_link *first, **last;
};

void mailbox_init(struct mailbox *queue);
void mailbox_destroy(struct mailbox *queue);

/* True when the queue was empty before: only then does the owner need waking. */
bool mailbox_push(struct mailbox *queue, struct mailbox_link *link);

/* The whole chain in order, linked by ->next; NULL when empty. */
struct mailbox_link *mailbox_drain(struct mailbox *queue);
