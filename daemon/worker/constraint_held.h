/* A compiled constraint that several hold: the cache, requests, and the masks of their sequences; and
 * the memory that all of them take.
 *
 * Whoever compiles one is charged for it, and for what its states and masks come to, until the last
 * holder has given it up. A user has half of the budget. Over it nothing more is compiled, and what
 * is there keeps no state that it can make again.
 *
 * Any thread. Who gives the last one up frees it, which may take milliseconds.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "protocol/base/error.h"
#include "protocol/base/list.h"

struct constraint;

#define CONSTRAINT_SHARES 1024u /* users are told apart by so much of their number */

struct constraint_budget {
    atomic_uint holders; /* caches, and each constraint */
    size_t max;
    atomic_size_t all, share[CONSTRAINT_SHARES];
};

struct constraint_held {
    atomic_uint holders;
    struct constraint *constraint;    /* owned */
    struct constraint_budget *budget; /* a reference; NULL: nobody counts */
    uint32_t share;
    atomic_size_t bytes; /* that are charged */
    uint32_t words;      /* of a mask */
    struct list link;    /* the cache's, by its lock */
};

int constraint_budget_make(size_t max, struct constraint_budget **ret_budget, struct error *error);
struct constraint_budget *constraint_budget_take(struct constraint_budget *budget);
void constraint_budget_put(struct constraint_budget *budget); /* NULL is allowed */

/* Held once; the constraint is its own then, and stays the caller's on failure. ERR_BUSY: the
 * budget, or the user's half of it, is used up; ERR_TOO_LARGE: it is too small for this one. */
int constraint_held_make(struct constraint *constraint, uint32_t words,
                         struct constraint_budget *budget, uint64_t user,
                         struct constraint_held **ret_held, struct error *error);
struct constraint_held *constraint_held_take(struct constraint_held *held);
/* It was used: what it takes now is charged. */
void constraint_held_measure(struct constraint_held *held);
/* True: it was the last, and constraint_held_free() is to follow. */
bool constraint_held_put(struct constraint_held *held);
void constraint_held_free(struct constraint_held *held);
