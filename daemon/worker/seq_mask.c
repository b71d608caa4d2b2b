/* Making and freeing what seq_mask.h has; apart from the crew, which starts threads. */
#include <stdlib.h>

#include "daemon/constrain/constraint.h"
#include "daemon/worker/constraint_held.h"
#include "daemon/worker/mask_crew.h"

int seq_mask_make(struct constraint_held *held, struct seq_mask **ret_mask, struct error *error)
{
    struct seq_mask *mask = calloc(1, sizeof(*mask) + held->words * sizeof(mask->bits[0]));
    if (!mask)
        return error_set(error, ERR_NO_MEMORY, "no memory for a mask");
    atomic_init(&mask->state, SEQ_MASK_NONE);
    mask->held = constraint_held_take(held);
    mask->words = held->words;
    *ret_mask = mask;
    return 0;
}

void seq_mask_free(struct seq_mask *mask)
{
    if (!mask)
        return;
    struct constraint_place place = {.state = mask->place};
    constraint_drop(mask->held->constraint, &place);
    if (constraint_held_put(mask->held))
        constraint_held_free(mask->held);
    free(mask);
}
