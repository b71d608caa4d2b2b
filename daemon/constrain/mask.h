/* Which tokens a state allows: kept with the state, as bits or, where few are, as a list.
 *
 * Private to the folder; one thread at a time (constraint.c has the lock).
 */
#pragma once

#include "daemon/constrain/machine/machine.h"
#include "daemon/constrain/vocabulary.h"

/* Into state->mask; `bits` is room of the vocabulary's words. */
int mask_make(struct machine *machine, struct machine_state *state,
              const struct vocabulary *vocabulary, uint32_t *bits, struct error *error);
/* `bits` becomes the mask that state->mask keeps. */
void mask_copy(const struct machine_mask *mask, const struct vocabulary *vocabulary,
               uint32_t *bits);
