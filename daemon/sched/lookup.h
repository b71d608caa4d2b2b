/* Guesses of what a text goes on with, found in the text itself: what stood behind its last few
 * tokens when they stood there last.
 *
 * Two tables, of the last LOOKUP_LONG tokens and of the last LOOKUP_SHORT, hold by a hash where
 * such a run ended last; what a place says is compared with the text, so that another run's place
 * is found to be nothing. The text is read once, as far at a time as the caller has time. A guess
 * is only ever a guess: nothing that is right depends on it.
 *
 * Pure, one thread, no allocation.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define LOOKUP_LONG 4u
#define LOOKUP_SHORT 2u
#define LOOKUP_PLACES 4096u /* of each table */

/* A prompt and what followed. */
struct lookup_text {
    const int32_t *prompt, *out;
    uint32_t prompt_len, len; /* of both together */
};

struct lookup {
    uint32_t read;                   /* runs that end below are in the tables */
    uint32_t ends[2][LOOKUP_PLACES]; /* 0: nothing */
};

void lookup_clear(struct lookup *lookup);
/* The text is longer by now; *left: tokens that may be read, less those read. True: all is read. */
bool lookup_read(struct lookup *lookup, const struct lookup_text *text, uint32_t *left);
/* Up to `most` tokens that may follow; returns how many, 0 where nothing was found. */
uint32_t lookup_find(const struct lookup *lookup, const struct lookup_text *text, int32_t *guesses,
                     uint32_t most);
