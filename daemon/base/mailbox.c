#include "daemon/base/mailbox.h"

#include <stddef.h>

void mailbox_init(struct mailbox *queue)
{
    pthread_mutex_init(&queue->lock, NULL);
    queue->first = NULL;
    queue->last = &queue->first;
}

void mailbox_destroy(struct mailbox *queue)
{
    pthread_mutex_destroy(&queue->lock);
}

bool mailbox_push(struct mailbox *queue, struct mailbox_link *link)
{
    link->next = NULL;
    pthread_mutex_lock(&queue->lock);
    bool was_empty = queue->first == NULL;
    *queue->last = link;
    queue->last = &link->next;
    pthread_mutex_unlock(&queue->lock);
    return was_empty;
}

struct mailbox_link *mailbox_drain(struct mailbox *queue)
{
    pthread_mutex_lock(&queue->lock);
    struct mailbox_link *chain = queue->first;
    queue->first = NULL;
    queue->last = &queue->first;
    pthread_mutex_unlock(&queue->lock);
    return chain;
}
