/* Stop strings, found in text that comes in pieces cut anywhere: the text before the first of them
 * is let through at once, but for the longest end that could still become one.
 *
 * A set does not change once made and may be shared; a matcher is the state of one sequence, of
 * fixed size and without memory of its own: what it holds back is always the start of a stop
 * string.
 *
 * The stop string that is complete first wins; of several that end at the same byte, the longest.
 * The result does not depend on how the text is cut.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "protocol/base/error.h"

#define STOP_STRINGS_MAX 16
#define STOP_BYTES_MAX 256

struct stop_set;

struct stop_string {
    const char *text; /* valid UTF-8, 1 to STOP_BYTES_MAX bytes */
    size_t length;
};

/* Refuses what is over a limit, empty, or no UTF-8; `strings` is copied. */
int stop_set_new(const struct stop_string *strings, size_t count, struct stop_set **ret_set,
                 struct error *error);
void stop_set_free(struct stop_set *set); /* NULL is allowed */

struct stop {
    const struct stop_set *set;         /* must outlive the matcher */
    uint16_t matched[STOP_STRINGS_MAX]; /* bytes of each string that the text ends with */
    uint16_t held;                      /* the most of them */
    uint16_t holder;                    /* of which string */
};

void stop_init(struct stop *stop, const struct stop_set *set);

/* Takes the next piece and writes what is certain to `out`, which has room for length +
 * STOP_BYTES_MAX bytes. Returns the index of the string that was found, or -1; when one was, the
 * text written so far ends right before it and no more may be pushed. */
int stop_push(struct stop *stop, const char *text, size_t length, char *out, size_t *ret_length);

/* The end of the text without a stop: what was held back, at most STOP_BYTES_MAX bytes. */
size_t stop_finish(struct stop *stop, char *out);
