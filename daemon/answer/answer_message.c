#include "daemon/answer/answer_message.h"

#include <stdlib.h>
#include <string.h>

static void add_call(struct answer_message *message, const struct answer_event *event)
{
    size_t size = (message->call_count + (size_t)1) * sizeof(*message->calls);
    struct answer_call *calls = realloc(message->calls, size);
    if (calls)
        message->calls = calls;
    char *name = calls ? malloc(event->length + 1) : NULL;
    message->failed |= !name;
    if (!name)
        return;
    memcpy(name, event->text, event->length); /* which no zero byte ends */
    name[event->length] = '\0';
    calls[message->call_count++] = (struct answer_call){.name = name};
}

void answer_message_add(void *context, const struct answer_event *event)
{
    struct answer_message *message = context;
    struct buffer *to = &message->content;
    if (message->failed)
        return;
    if (event->part == ANSWER_CALL) {
        add_call(message, event);
        return;
    }
    if (event->part == ANSWER_REASONING)
        to = &message->reasoning;
    else if (event->part == ANSWER_ARGUMENTS)
        to = &message->calls[event->call].arguments;
    message->failed |= !buffer_append(to, event->text, event->length, SIZE_MAX);
}

void answer_message_free(struct answer_message *message)
{
    for (uint32_t i = 0; i < message->call_count; i++) {
        free(message->calls[i].name);
        buffer_free(&message->calls[i].arguments);
    }
    free(message->calls);
    buffer_free(&message->reasoning);
    buffer_free(&message->content);
    *message = (struct answer_message){0};
}
