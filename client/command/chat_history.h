/* What was said in a conversation, as the JSON that the daemon takes. */
#pragma once

#include <stddef.h>

#include "client/buffer.h"

struct talk {
    struct buffer json; /* {"messages":[{...},{...}, without its end */
};

/* Negative without memory; then nothing was added. Bytes that are no UTF-8 become U+FFFD. */
int talk_add(struct talk *talk, const char *role, const char *text, size_t length);
/* Where it stands, and back to there. */
size_t talk_mark(const struct talk *talk);
void talk_back(struct talk *talk, size_t mark);
/* The whole; valid until the next call. NULL without memory. */
const char *talk_conversation(struct talk *talk, size_t *ret_length);
void talk_free(struct talk *talk);
