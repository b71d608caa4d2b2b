/* An answer's parts in their order, gathered from a reader's events: what APIs tell whose answers
 * are lists. Zeroed memory is an empty list. One thread.
 */
#pragma once

#include "daemon/answer/answer_reader.h"

struct answer_item {
    enum answer_part part; /* REASONING, CONTENT or CALL */
    uint32_t call;
    char *name;         /* of a call */
    struct buffer text; /* of a call its arguments */
};

struct answer_items {
    struct answer_item *list;
    uint32_t count;
    bool failed; /* out of memory */
};

/* Whether the event begins an item, or goes on with the last one. */
bool answer_items_begins(const struct answer_items *items, const struct answer_event *event);
/* An answer_sink, of the items. */
void answer_items_add(void *items, const struct answer_event *event);
void answer_items_free(struct answer_items *items);
