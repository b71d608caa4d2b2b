#include "daemon/answer/answer_items.h"

#include <stdlib.h>
#include <string.h>

bool answer_items_begins(const struct answer_items *items, const struct answer_event *event)
{
    if (event->part == ANSWER_CALL || items->count == 0)
        return true;
    return event->part != ANSWER_ARGUMENTS && items->list[items->count - 1].part != event->part;
}

/* With a zero byte behind it, which it need not have where it stands. */
static char *copied(const char *text, size_t length)
{
    char *copy = malloc(length + 1);
    if (copy) {
        memcpy(copy, text, length);
        copy[length] = '\0';
    }
    return copy;
}

static void begin(struct answer_items *items, const struct answer_event *event)
{
    struct answer_item *list = realloc(items->list, (items->count + (size_t)1) * sizeof(*list));
    bool call = event->part == ANSWER_CALL;
    if (list)
        items->list = list;
    char *name = list && call ? copied(event->text, event->length) : NULL;
    items->failed |= !list || (call && !name);
    if (!items->failed)
        list[items->count++] =
            (struct answer_item){.part = event->part, .call = event->call, .name = name};
}

void answer_items_add(void *context, const struct answer_event *event)
{
    struct answer_items *items = context;
    if (!items->failed && answer_items_begins(items, event))
        begin(items, event);
    if (items->failed || event->part == ANSWER_CALL)
        return;
    struct buffer *text = &items->list[items->count - 1].text;
    items->failed |= !buffer_append(text, event->text, event->length, SIZE_MAX);
}

void answer_items_free(struct answer_items *items)
{
    for (uint32_t i = 0; i < items->count; i++) {
        free(items->list[i].name);
        buffer_free(&items->list[i].text);
    }
    free(items->list);
    *items = (struct answer_items){0};
}
