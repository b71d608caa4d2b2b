/* Server-sent events of a streamed completion, read as they come, in pieces of any size.
 *
 * Only what a measurement needs is looked for, in the bare text: whether an event has choices, and
 * the usage counts. Full parsing would cost more than the server's stamps are apart, and would
 * refuse generated text that strict JSON does not carry. Zeroed memory is a fresh reader;
 * event_free() it.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EVENT_LINE_MAX (16u << 20)

struct event_reader {
    char *line; /* the part of a line that has come */
    size_t used, room;
};

struct event {
    bool done;    /* the [DONE] at the end */
    bool choices; /* with at least one choice */
    bool error;
    bool usage;
    uint32_t completion_tokens, prompt_tokens; /* with usage */
    uint32_t cached_tokens; /* of the prompt's; 0 where the usage does not tell them */
};

/* Takes bytes until an event is whole: 1 and *ret_event, 0 when all of it was taken without one,
 * negative on a line over EVENT_LINE_MAX or without memory. *text and *length are moved. */
int event_read(struct event_reader *reader, const char **text, size_t *length,
               struct event *ret_event);
void event_free(struct event_reader *reader);
/* The event's text as it stands behind "data:". */
void event_parse(const char *text, size_t length, struct event *ret_event);
