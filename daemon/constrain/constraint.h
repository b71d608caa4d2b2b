/* What an output must be, compiled once for a vocabulary, and where in it a sequence stands.
 *
 * A compiled constraint is used by any thread; calls of one take turns by a lock, which none holds
 * longer than MACHINE_STEPS_MAX steps. It remembers the masks and states that were needed, within
 * MACHINE_BYTES_MAX. The vocabulary must outlive it.
 *
 * A place is a sequence's: a pointer. constraint_start and constraint_copy hold it, constraint_drop
 * gives it back; the constraint must outlive its places.
 *
 * JSON comes in one form: members in the schema's order, additional ones last; compact, or with
 * one space after a colon or a comma; what needs no escape is raw in keys, constants, patterns and
 * formats (free strings may have any escape). So white space is bounded, and no loop of it exists.
 */
#pragma once

#include "daemon/constrain/vocabulary.h"

#define CONSTRAINT_TEXT_MAX ((size_t)1 << 20) /* of a schema or of choices */

enum constraint_kind {
    CONSTRAINT_JSON,     /* any JSON value; no text */
    CONSTRAINT_OBJECT,   /* any JSON object; no text */
    CONSTRAINT_SCHEMA,   /* JSON Schema, draft 2020-12: schema.h says which keywords */
    CONSTRAINT_PATTERN,  /* a regular expression that the whole output is: pattern.h */
    CONSTRAINT_CHOICE,   /* a JSON array of strings, of which the output is one */
    CONSTRAINT_GRAMMAR,  /* GBNF: grammar/gbnf.h */
    CONSTRAINT_STRUCTURE /* the daemon's own: free text and constrained parts: structure.h */
};

struct constraint;
struct machine_state;
struct constraint_place {
    struct machine_state *state;
};

struct constraint_allowed {
    uint32_t count; /* bits that are set */
    int32_t only;   /* the token where that is one; else -1 */
    bool ends;      /* the output may end here: the bits of the ends are among them */
    bool only_ends; /* `only` is an end */
};

/* What is wrong is told with the path of the schema and the keyword. */
int constraint_new(enum constraint_kind kind, const char *text, size_t length,
                   const struct vocabulary *vocabulary, struct constraint **ret_constraint,
                   struct error *error);
void constraint_free(struct constraint *constraint);

void constraint_start(struct constraint *constraint, struct constraint_place *ret_place);
void constraint_copy(struct constraint *constraint, const struct constraint_place *place,
                     struct constraint_place *ret_place);
void constraint_drop(struct constraint *constraint, struct constraint_place *place);

/* Sets vocabulary->words words: bit t % 32 of word t / 32 for each token that may come next. */
int constraint_mask(struct constraint *constraint, const struct constraint_place *place,
                    uint32_t *bits, struct constraint_allowed *ret_allowed, struct error *error);
/* Moves on by a token, or by bytes. ERR_BAD_TOKEN: it may not come here, and the place is as it
 * was. A token that ends an output may come where that may end, and stays there. */
int constraint_advance(struct constraint *constraint, struct constraint_place *place, int32_t token,
                       struct error *error);
int constraint_read(struct constraint *constraint, struct constraint_place *place,
                    const char *bytes, size_t length, struct error *error);
/* Tokens of an output after which constraint_cut() is due; UINT32_MAX: never. */
uint32_t constraint_budget(const struct constraint *constraint);
/* The budget is used up: a place within what it bounds moves on to its end, which is all that may
 * follow; any other stays where it is. */
int constraint_cut(struct constraint *constraint, struct constraint_place *place,
                   struct error *error);
bool constraint_may_end(const struct constraint_place *place);

/* What it takes now; and what of its states and masks nobody holds goes. */
size_t constraint_bytes(struct constraint *constraint);
void constraint_shrink(struct constraint *constraint);

/* States made so far: the work that was done, for tests. */
uint64_t constraint_states(struct constraint *constraint);
