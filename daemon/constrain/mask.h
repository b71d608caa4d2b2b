/* Which tokens a state allows: kept with the state, as bits or, where few are, as a list.
 *
 * Private to the folder; one thread at a time (constraint.c has the lock).
 */
#pragma once

#include "daemon/constrain/machine.h"
#include "daemon/constrain/vocabulary.h"

struct machine_mask {
    uint32_t count; /* tokens allowed; those that end an output are not among them */
    uint32_t only;  /* the first of them */
    uint32_t words; /* of data */
    bool listed;    /* data is tokens, not bits */
    uint32_t data[];
};

static inline size_t mask_bytes(const struct machine_mask *mask)
{
    return mask ? sizeof(*mask) + mask->words * sizeof(uint32_t) : 0;
}

/* Into state->mask; `bits` is room of the vocabulary's words. */
int mask_make(struct machine *machine, struct machine_state *state,
              const struct vocabulary *vocabulary, uint32_t *bits, struct error *error);
/* `bits` becomes the mask that state->mask keeps. */
void mask_copy(const struct machine_mask *mask, const struct vocabulary *vocabulary,
               uint32_t *bits);
