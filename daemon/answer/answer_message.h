/* A whole answer's parts, gathered from a reader's events. Zeroed memory is an empty one. One
 * thread.
 */
#pragma once

#include "daemon/answer/answer_reader.h"

struct answer_call {
    char *name;
    struct buffer arguments;
};

struct answer_message {
    struct buffer reasoning, content;
    struct answer_call *calls;
    uint32_t call_count;
    bool failed; /* out of memory */
};

/* An answer_sink, of the message. */
void answer_message_add(void *message, const struct answer_event *event);
void answer_message_free(struct answer_message *message);
