/* Sets of characters (Unicode code points, no surrogates), and how a character stands in bytes:
 * bare UTF-8, or inside a JSON string, where each has one form: raw, but for the quote, the
 * backslash and controls, which have their short escape or \u00xx.
 *
 * One form each, so that what a set leaves out cannot come in by another spelling. One thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/constrain/grammar/grammar.h"

#define CHARACTER_MAX 0x10ffffu
#define CHARACTER_RANGES_MAX 2048u

struct character_range {
    uint32_t low, high;
};

struct character_set {
    struct character_range ranges[CHARACTER_RANGES_MAX];
    uint32_t count;
    bool full; /* had no room for a range */
};

enum character_form { CHARACTER_BARE, CHARACTER_IN_JSON };

/* Large: made empty by this, or by {0}, which takes longer. */
static inline void character_none(struct character_set *set)
{
    set->count = 0;
    set->full = false;
}

void character_add(struct character_set *set, uint32_t low, uint32_t high);
void character_merge(struct character_set *set, const struct character_set *other);
/* Sorted, joined, or turned to all that it does not hold. */
void character_sort(struct character_set *set);
void character_invert(struct character_set *set);

/* Edges for every character of the set; what lies between several bytes are new nodes. Returns
 * `to`, or the node made where it was GRAMMAR_NONE. What takes many edges, escapes and characters
 * of several bytes, is a rule that all sets share that have the same of these. */
uint32_t character_edges(struct grammar *grammar, uint32_t from, uint32_t to,
                         struct character_set *set, enum character_form form);
/* The same without calls. */
uint32_t character_bytes(struct grammar *grammar, uint32_t from, uint32_t to,
                         struct character_set *set, enum character_form form);
/* The characters of a text of valid UTF-8. False: it is none. */
bool character_next(const char *text, size_t length, size_t *at, uint32_t *ret_character);
