#include "daemon/constrain/constraint.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/constrain/grammar/gbnf.h"
#include "daemon/constrain/grammar/pattern.h"
#include "daemon/constrain/mask.h"
#include "daemon/constrain/schema/schema.h"
#include "daemon/constrain/structure.h"

struct constraint {
    struct grammar grammar;
    struct machine machine;
    const struct vocabulary *vocabulary;
    uint32_t budget;
    pthread_mutex_t lock;
};

static uint32_t build_part(struct grammar *grammar, uint32_t start, enum constraint_kind kind,
                           const char *text, size_t length)
{
    switch (kind) {
    case CONSTRAINT_JSON:
        return json_any(grammar, start);
    case CONSTRAINT_OBJECT:
        return json_any_object(grammar, start);
    case CONSTRAINT_SCHEMA:
        return schema_build(grammar, start, text, length);
    case CONSTRAINT_PATTERN:
        return pattern_build(grammar, start, text, length, PATTERN_WHOLE, CHARACTER_BARE,
                             "pattern");
    case CONSTRAINT_CHOICE:
        return schema_choices(grammar, start, text, length);
    case CONSTRAINT_GRAMMAR:
        return gbnf_build(grammar, start, text, length);
    case CONSTRAINT_STRUCTURE: /* of which none is part of another */
        break;
    }
    grammar_fail(grammar, ERR_BAD_VALUE, "a constraint of no kind that is known");
    return start;
}

/* Of a structure: by its name. */
static uint32_t build_named(struct grammar *grammar, uint32_t from, const char *kind,
                            const char *text, size_t length)
{
    static const char *const names[] = {
        [CONSTRAINT_JSON] = "json",          [CONSTRAINT_OBJECT] = "object",
        [CONSTRAINT_SCHEMA] = "schema",      [CONSTRAINT_PATTERN] = "pattern",
        [CONSTRAINT_CHOICE] = "choice",      [CONSTRAINT_GRAMMAR] = "grammar",
        [CONSTRAINT_STRUCTURE] = "structure"};
    unsigned at = 0;
    while (at < CONSTRAINT_STRUCTURE && strcmp(kind, names[at]) != 0)
        at++;
    return build_part(grammar, from, (enum constraint_kind)at, text, length);
}

static int build(struct constraint *constraint, enum constraint_kind kind, const char *text,
                 size_t length)
{
    struct grammar *grammar = &constraint->grammar;
    uint32_t start = grammar_node(grammar), end;
    constraint->budget = STRUCTURE_NO_BUDGET;
    if (kind == CONSTRAINT_STRUCTURE)
        end = structure_build(grammar, start, text, length, build_named, &constraint->budget);
    else
        end = build_part(grammar, start, kind, text, length);
    grammar_final(grammar, end);
    return grammar_finish(grammar, start);
}

int constraint_new(enum constraint_kind kind, const char *text, size_t length,
                   const struct vocabulary *vocabulary, struct constraint **ret_constraint,
                   struct error *error)
{
    struct error own; /* texts are kept while building, whether or not the caller wants them */
    if (length > CONSTRAINT_TEXT_MAX)
        return error_limit(error, ERR_TOO_LARGE, CONSTRAINT_TEXT_MAX, length,
                           "a constraint of more than %zu bytes", CONSTRAINT_TEXT_MAX);
    struct constraint *constraint = calloc(1, sizeof(*constraint));
    if (!constraint)
        return error_set(error, ERR_NO_MEMORY, "no memory for a constraint");
    grammar_init(&constraint->grammar, error ? error : &own);
    int code = build(constraint, kind, text, length);
    if (code == 0)
        code = machine_init(&constraint->machine, &constraint->grammar, error);
    if (code == 0 && pthread_mutex_init(&constraint->lock, NULL))
        code = error_set(error, ERR_NO_MEMORY, "no lock for a constraint");
    if (code) {
        machine_free(&constraint->machine);
        grammar_free(&constraint->grammar);
        free(constraint);
        return code;
    }
    constraint->grammar.error = NULL;
    constraint->vocabulary = vocabulary;
    *ret_constraint = constraint;
    return 0;
}

void constraint_free(struct constraint *constraint)
{
    if (!constraint)
        return;
    pthread_mutex_destroy(&constraint->lock);
    machine_free(&constraint->machine);
    grammar_free(&constraint->grammar);
    free(constraint);
}

static void hold(struct constraint *constraint, struct machine_state *state,
                 struct constraint_place *ret_place)
{
    pthread_mutex_lock(&constraint->lock);
    state->holds++;
    pthread_mutex_unlock(&constraint->lock);
    ret_place->state = state;
}

void constraint_start(struct constraint *constraint, struct constraint_place *ret_place)
{
    hold(constraint, constraint->machine.start, ret_place);
}

void constraint_copy(struct constraint *constraint, const struct constraint_place *place,
                     struct constraint_place *ret_place)
{
    hold(constraint, place->state, ret_place);
}

void constraint_drop(struct constraint *constraint, struct constraint_place *place)
{
    if (!place->state)
        return;
    pthread_mutex_lock(&constraint->lock);
    place->state->holds--;
    pthread_mutex_unlock(&constraint->lock);
    place->state = NULL;
}

static void add_ends(const struct vocabulary *vocabulary, uint32_t *bits,
                     struct constraint_allowed *allowed)
{
    for (uint32_t i = 0; i < vocabulary->ends_count; i++) {
        uint32_t end = (uint32_t)vocabulary->ends[i];
        allowed->count += !(bits[end / 32] >> end % 32 & 1);
        bits[end / 32] |= 1u << end % 32;
        allowed->only = vocabulary->ends[i];
        allowed->only_ends = true;
    }
}

int constraint_mask(struct constraint *constraint, const struct constraint_place *place,
                    uint32_t *bits, struct constraint_allowed *ret_allowed, struct error *error)
{
    struct constraint_allowed allowed = {.ends = place->state->ends, .only = -1};
    int code = 0;
    pthread_mutex_lock(&constraint->lock);
    machine_begin(&constraint->machine);
    if (!place->state->mask)
        code = mask_make(&constraint->machine, place->state, constraint->vocabulary, bits, error);
    if (code == 0) {
        const struct machine_mask *mask = place->state->mask;
        mask_copy(mask, constraint->vocabulary, bits);
        allowed.count = mask->count;
        if (mask->count)
            allowed.only = (int32_t)mask->only;
    }
    pthread_mutex_unlock(&constraint->lock);
    if (code)
        return code;
    if (allowed.ends)
        add_ends(constraint->vocabulary, bits, &allowed);
    if (allowed.count != 1) {
        allowed.only = -1;
        allowed.only_ends = false;
    }
    *ret_allowed = allowed;
    return 0;
}

int constraint_read(struct constraint *constraint, struct constraint_place *place,
                    const char *bytes, size_t length, struct error *error)
{
    struct machine *machine = &constraint->machine;
    int code = 0;
    pthread_mutex_lock(&constraint->lock);
    machine_begin(machine);
    struct machine_state *state = place->state;
    for (size_t i = 0; i < length && code == 0; i++) {
        state = machine_step(machine, state, (uint8_t)bytes[i], error);
        if (!state)
            code = -ERR_TOO_LARGE;
        else if (state == &machine_dead)
            code = error_set(error, ERR_BAD_TOKEN, "byte %zu may not come here", i);
    }
    if (code == 0) {
        place->state->holds--;
        state->holds++;
        place->state = state;
    }
    pthread_mutex_unlock(&constraint->lock);
    return code;
}

int constraint_advance(struct constraint *constraint, struct constraint_place *place, int32_t token,
                       struct error *error)
{
    const struct vocabulary *vocabulary = constraint->vocabulary;
    if (token < 0 || (uint32_t)token >= vocabulary->tokens)
        return error_set(error, ERR_BAD_TOKEN, "token %d is not in the vocabulary", token);
    for (uint32_t i = 0; i < vocabulary->ends_count; i++)
        if (vocabulary->ends[i] == token && place->state->ends)
            return 0;
    uint32_t from = vocabulary->offset[token], to = vocabulary->offset[token + 1];
    if (from == to)
        return error_set(error, ERR_BAD_TOKEN, "token %d may not come here", token);
    return constraint_read(constraint, place, vocabulary->bytes + from, to - from, error);
}

uint32_t constraint_budget(const struct constraint *constraint)
{
    return constraint->budget;
}

int constraint_cut(struct constraint *constraint, struct constraint_place *place,
                   struct error *error)
{
    static const char cut = (char)STRUCTURE_CUT;
    struct error none;
    int rc = constraint_read(constraint, place, &cut, 1, &none);
    return rc == 0 || none.code == ERR_BAD_TOKEN ? 0 : error_set(error, none.code, "%s", none.text);
}

bool constraint_may_end(const struct constraint_place *place)
{
    return place->state->ends;
}

uint64_t constraint_states(struct constraint *constraint)
{
    pthread_mutex_lock(&constraint->lock);
    uint64_t made = constraint->machine.made;
    pthread_mutex_unlock(&constraint->lock);
    return made;
}

size_t constraint_bytes(struct constraint *constraint)
{
    const struct grammar *grammar = &constraint->grammar;
    size_t bytes = sizeof(*constraint) + grammar->nodes_room * sizeof(*grammar->nodes) +
                   grammar->edges_room * sizeof(*grammar->edges);
    for (const struct grammar_set *set = grammar->sets; set; set = set->next)
        bytes += sizeof(*set) + 2 * set->count * sizeof(set->ranges[0]);
    pthread_mutex_lock(&constraint->lock);
    bytes += machine_bytes(&constraint->machine);
    pthread_mutex_unlock(&constraint->lock);
    return bytes;
}

void constraint_shrink(struct constraint *constraint)
{
    pthread_mutex_lock(&constraint->lock);
    machine_shrink(&constraint->machine);
    pthread_mutex_unlock(&constraint->lock);
}
