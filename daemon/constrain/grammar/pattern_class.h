/* One character or class of a pattern; private to pattern.c. One thread. */
#pragma once

#include "daemon/constrain/grammar/character.h"

struct pattern_text {
    const char *text, *path;
    size_t length, at;
    struct grammar *grammar; /* keeps the first error */
};

bool pattern_sees(const struct pattern_text *in, const char *word);
bool pattern_take(struct pattern_text *in, const char *word); /* and goes past it */
/* Always false. */
bool pattern_refuse(struct pattern_text *in, const char *what);

/* What stands at `at` and is no group: a character, an escape, a dot or a class in brackets. */
bool pattern_character_set(struct pattern_text *in, struct character_set *set);
