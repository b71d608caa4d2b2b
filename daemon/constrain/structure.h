/* Texts of several parts, some of which are constrained: what a model may think first, content that
 * is free but for the mark that begins a call, calls whose arguments meet a schema.
 *
 * A structure is JSON, made by the daemon and not by users (daemon/answer/answer_structure.c):
 *
 * {"text": TEXT}         as it stands; with "special": true it is a special token's name
 * {"free": MARK}         any text without the mark, which may be "" (none); with "unlike": BYTE it
 *                        does not begin with that byte, white space aside
 * {"until": MARK}        any text up to the mark, and the mark; "special" likewise. With "budget":
 * N only the mark may follow after so many tokens of the output
 * {"kind": WORD, "of": TEXT, "name": NAME}
 *                        a constraint: json, object, schema, pattern, choice or grammar. The name
 *                        stands in errors
 * {"tagged": SCHEMA, "name": NAME, "types": [...], "key": [...], "value": [...], "last": [...],
 *  "mark": [...], "after": [...]}
 *                        an object's members as texts (schema.h: struct schema_tags): `key`, the
 *                        name, `value`, the text, `last`, `mark`, which no text has, and `after`
 * {"all": [...]}, {"any": [...]}, {"maybe": ...}
 *                        one behind the other; one of them; or nothing
 * {"each": ..., "between": ...}
 *                        once or more, with that between
 *
 * A special token is the byte STRUCTURE_SPECIAL and its name; no other token has that byte. One
 * thread.
 */
#pragma once

#include "daemon/constrain/grammar/grammar.h"

#define STRUCTURE_SPECIAL 0xffu
#define STRUCTURE_CUT 0xfeu /* the budget is used up: what a place reads then */
#define STRUCTURE_NO_BUDGET UINT32_MAX

/* A constraint of another kind. */
typedef uint32_t (*structure_kind)(struct grammar *grammar, uint32_t from, const char *kind,
                                   const char *text, size_t length);

/* The node behind it; the error stays in the grammar. *ret_budget: of tokens, or none. */
uint32_t structure_build(struct grammar *grammar, uint32_t from, const char *text, size_t length,
                         structure_kind kind, uint32_t *ret_budget);
