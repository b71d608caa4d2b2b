/* Regular expressions as ECMA-262 writes them with its u flag, as part of a grammar.
 *
 * Known: alternatives, groups (captures and names are read over), classes, . \d \w \s and their
 * opposites, \p{L} and other general categories of Unicode (unicode.def), \t \n \v \f \r \0 \xHH
 * \uHHHH \u{H} \cX, quantifiers greedy or lazy (the same language), ^ and $ at the ends of the
 * whole pattern's alternatives, in groups that stand there too. What is no regular language or has
 * not been done is refused by name: references, looks around, \b, scripts, flags, ^ and $ inside.
 * One thread.
 */
#pragma once

#include "daemon/constrain/grammar/character.h"

#define PATTERN_MAX 8192u /* bytes */
#define PATTERN_DEPTH_MAX 64u

enum pattern_place {
    PATTERN_WHOLE, /* the text is what it describes */
    PATTERN_FOUND  /* the text has a part that it describes, as JSON Schema means `pattern` */
};

/* The node behind it. `path` names the pattern in errors. */
uint32_t pattern_build(struct grammar *grammar, uint32_t from, const char *pattern, size_t length,
                       enum pattern_place place, enum character_form form, const char *path);
