/* A compiled constraint that several hold: the cache, requests, and the masks of their sequences.
 *
 * Any thread. Who gives the last one up frees it, which may take milliseconds.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "protocol/base/error.h"
#include "protocol/base/list.h"

struct constraint;

struct constraint_held {
    atomic_uint holders;
    struct constraint *constraint; /* owned */
    uint32_t words;                /* of a mask */
    struct list link;              /* the cache's, by its lock */
};

/* Held once; the constraint is its own then, and stays the caller's on failure. */
int constraint_held_make(struct constraint *constraint, uint32_t words,
                         struct constraint_held **ret_held, struct error *error);
struct constraint_held *constraint_held_take(struct constraint_held *held);
/* True: it was the last, and constraint_held_free() is to follow. */
bool constraint_held_put(struct constraint_held *held);
void constraint_held_free(struct constraint_held *held);
