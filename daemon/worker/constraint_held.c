#include "daemon/worker/constraint_held.h"

#include <stdlib.h>

#include "daemon/constrain/constraint.h"

#define RETRY_MS 1000u

/* ---- the budget --------------------------------------------------------------------------------
 */

int constraint_budget_make(size_t max, struct constraint_budget **ret_budget, struct error *error)
{
    struct constraint_budget *budget = calloc(1, sizeof(*budget));
    if (!budget)
        return error_set(error, ERR_NO_MEMORY, "no memory for constraints");
    atomic_init(&budget->holders, 1);
    budget->max = max;
    *ret_budget = budget;
    return 0;
}

struct constraint_budget *constraint_budget_take(struct constraint_budget *budget)
{
    atomic_fetch_add_explicit(&budget->holders, 1, memory_order_relaxed);
    return budget;
}

void constraint_budget_put(struct constraint_budget *budget)
{
    if (budget && atomic_fetch_sub_explicit(&budget->holders, 1, memory_order_acq_rel) == 1)
        free(budget);
}

/* Less is more by a number that goes round. */
static size_t charge(struct constraint_held *held, size_t bytes)
{
    size_t more = bytes - atomic_exchange(&held->bytes, bytes);
    atomic_fetch_add(&held->budget->share[held->share], more);
    return atomic_fetch_add(&held->budget->all, more) + more;
}

/* All that is there counts, that of others' threads as well: two at a time may both be refused. */
static int take_room(struct constraint_held *held, struct error *error)
{
    const struct constraint_budget *budget = held->budget;
    size_t bytes = constraint_bytes(held->constraint);
    if (bytes > budget->max / 2)
        return error_limit(error, ERR_TOO_LARGE, budget->max / 2, bytes,
                           "the constraint takes %zu bytes, at most %zu are one user's (half of "
                           "constraints-max)",
                           bytes, budget->max / 2);
    size_t all = charge(held, bytes);
    if (all <= budget->max && atomic_load(&budget->share[held->share]) <= budget->max / 2)
        return 0;
    (void)charge(held, 0);
    error_limit(error, ERR_BUSY, budget->max, all,
                "the constraints of requests take %zu bytes (constraints-max)", all);
    if (error)
        error->retry_after_ms = RETRY_MS;
    return -ERR_BUSY;
}

/* ---- a constraint ------------------------------------------------------------------------------
 */

int constraint_held_make(struct constraint *constraint, uint32_t words,
                         struct constraint_budget *budget, uint64_t user,
                         struct constraint_held **ret_held, struct error *error)
{
    struct constraint_held *held = calloc(1, sizeof(*held));
    if (!held)
        return error_set(error, ERR_NO_MEMORY, "no memory for a constraint");
    atomic_init(&held->holders, 1);
    held->constraint = constraint;
    held->words = words;
    held->budget = budget;
    held->share = (uint32_t)(user % CONSTRAINT_SHARES);
    int rc = budget ? take_room(held, error) : 0;
    if (rc) {
        free(held);
        return rc;
    }
    if (budget)
        atomic_fetch_add_explicit(&budget->holders, 1, memory_order_relaxed);
    *ret_held = held;
    return 0;
}

struct constraint_held *constraint_held_take(struct constraint_held *held)
{
    atomic_fetch_add_explicit(&held->holders, 1, memory_order_relaxed);
    return held;
}

void constraint_held_measure(struct constraint_held *held)
{
    if (!held->budget || charge(held, constraint_bytes(held->constraint)) <= held->budget->max)
        return;
    constraint_shrink(held->constraint);
    (void)charge(held, constraint_bytes(held->constraint));
}

bool constraint_held_put(struct constraint_held *held)
{
    return atomic_fetch_sub_explicit(&held->holders, 1, memory_order_acq_rel) == 1;
}

void constraint_held_free(struct constraint_held *held)
{
    constraint_free(held->constraint);
    if (held->budget) {
        (void)charge(held, 0);
        constraint_budget_put(held->budget);
    }
    free(held);
}
