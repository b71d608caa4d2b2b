/* A doubly linked list whose links are embedded in its elements: inserting and removing cannot fail.
 *
 * An element not on a list has both links null (after list_remove, or zeroed memory). A list owns
 * nothing and locks nothing: whoever has the head says which thread uses it.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct list {
    struct list *next, *prev;
};

#define container_of(pointer, type, member)                                                        \
    ((type *)((char *)(pointer) - offsetof(type, member)))

static inline void list_init(struct list *head)
{
    head->next = head->prev = head;
}

static inline bool list_empty(const struct list *head)
{
    return head->next == head;
}

static inline bool list_linked(const struct list *link)
{
    return link->next != NULL;
}

static inline void list_insert_before(struct list *place, struct list *link)
{
    link->next = place;
    link->prev = place->prev;
    place->prev->next = link;
    place->prev = link;
}

static inline void list_append(struct list *head, struct list *link)
{
    list_insert_before(head, link);
}

static inline void list_prepend(struct list *head, struct list *link)
{
    list_insert_before(head->next, link);
}

static inline void list_remove(struct list *link)
{
    link->prev->next = link->next;
    link->next->prev = link->prev;
    link->next = link->prev = NULL;
}

/* The first element, taken off the list; NULL when empty. */
static inline struct list *list_take(struct list *head)
{
    struct list *link = head->next;
    if (link == head)
        return NULL;
    list_remove(link);
    return link;
}

#define list_each(link, head) for (struct list *link = (head)->next; link != (head); link = link->next)
#define list_each_safe(link, head)                                                                 \
    for (struct list *link = (head)->next, *link##_next = link->next; link != (head);             \
         link = link##_next, link##_next = link->next)
