/* Which of many equal events are worth a line: the first few of each second, and then their number.
 *
 * At most REPEAT_KINDS kinds of events are counted at a time; a further one takes the place of the
 * one whose second began first, and what was held back of that is handed out. Not thread-safe. Owns
 * nothing but itself, and copies the text; zeroed memory is a valid start.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "protocol/base/clock.h"

#define REPEAT_KINDS 32
#define REPEAT_BURST 5
#define REPEAT_WINDOW_US 1000000u
#define REPEAT_TEXT_MAX 200

struct repeat_event {
    const char *place, *format; /* constant strings: events of one kind have both in common */
    const char *text;           /* what the event says */
    bool by_text;               /* events of one kind say the same, too */
    int level;
};

/* What was held back of one kind; count 0 when nothing was. */
struct repeat_held {
    const char *place;
    int level;
    uint64_t count;
    char text[REPEAT_TEXT_MAX]; /* of the first one of the kind, cut */
};

struct repeat_kind {
    const char *format; /* NULL when the slot is free */
    uint64_t text_hash;
    time_us window_us; /* when the present second began */
    uint32_t passed;   /* events let through in it */
    struct repeat_held held;
};

struct repeat {
    struct repeat_kind kind[REPEAT_KINDS];
    uint32_t kinds_held; /* kinds with something held back: mostly none, and nothing to look for */
};

/* Whether this event is let through. *ret_held is to be reported before it. */
bool repeat_pass(struct repeat *repeat, const struct repeat_event *event, time_us now_us,
                 struct repeat_held *ret_held);

/* Hands out one kind whose second is over, or any with `all`; false when there is none. */
bool repeat_due(struct repeat *repeat, time_us now_us, bool all, struct repeat_held *ret_held);
