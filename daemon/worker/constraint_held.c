#include "daemon/worker/constraint_held.h"

#include <stdlib.h>

#include "daemon/constrain/constraint.h"

int constraint_held_make(struct constraint *constraint, uint32_t words,
                         struct constraint_held **ret_held, struct error *error)
{
    struct constraint_held *held = calloc(1, sizeof(*held));
    if (!held)
        return error_set(error, ERR_NO_MEMORY, "no memory for a constraint");
    atomic_init(&held->holders, 1);
    held->constraint = constraint;
    held->words = words;
    *ret_held = held;
    return 0;
}

struct constraint_held *constraint_held_take(struct constraint_held *held)
{
    atomic_fetch_add_explicit(&held->holders, 1, memory_order_relaxed);
    return held;
}

bool constraint_held_put(struct constraint_held *held)
{
    return atomic_fetch_sub_explicit(&held->holders, 1, memory_order_acq_rel) == 1;
}

void constraint_held_free(struct constraint_held *held)
{
    constraint_free(held->constraint);
    free(held);
}
