/* What was said in a conversation, as the JSON that the daemon takes. */
#pragma once

#include <stddef.h>

#include "client/net/buffer.h"

struct chat_history {
    struct buffer json; /* {"messages":[{...},{...}, without its end */
};

/* Negative without memory; then nothing was added. Bytes that are no UTF-8 become U+FFFD. */
int chat_history_add(struct chat_history *history, const char *role, const char *text,
                     size_t length);
/* Where it stands, and back to there. */
size_t chat_history_mark(const struct chat_history *history);
void chat_history_rewind(struct chat_history *history, size_t mark);
/* The whole; valid until the next call. NULL without memory. */
const char *chat_history_text(struct chat_history *history, size_t *ret_length);
void chat_history_free(struct chat_history *history);
