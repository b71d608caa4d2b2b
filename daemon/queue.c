#include "daemon/queue.h"

#include <stddef.h>

void queue_init(struct queue *queue)
{
    pthread_mutex_init(&queue->lock, NULL);
    queue->first = NULL;
    queue->last = &queue->first;
}

void queue_destroy(struct queue *queue)
{
    pthread_mutex_destroy(&queue->lock);
}

bool queue_push(struct queue *queue, struct queue_link *link)
{
    link->next = NULL;
    pthread_mutex_lock(&queue->lock);
    bool was_empty = queue->first == NULL;
    *queue->last = link;
    queue->last = &link->next;
    pthread_mutex_unlock(&queue->lock);
    return was_empty;
}

struct queue_link *queue_drain(struct queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    struct queue_link *chain = queue->first;
    queue->first = NULL;
    queue->last = &queue->first;
    pthread_mutex_unlock(&queue->lock);
    return chain;
}
