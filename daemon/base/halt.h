/* Halt: says that work on a text is not wanted any more. Whoever does the work looks at it every so
 * many steps and ends with the code that was set.
 *
 * Zeroed memory lets the work go on. Any thread sets it and any looks; nothing else is passed by
 * it.
 */
#pragma once

#include <stdatomic.h>
#include <stddef.h>

#include "protocol/base/error.h"

#define HALT_LOOK 4096 /* of short things that are done between two looks at a halt */

struct halt {
    atomic_int code; /* of enum error_code; 0: go on */
};

/* The first code stays. */
static inline void halt_set(struct halt *halt, int code)
{
    int none = 0;
    atomic_compare_exchange_strong_explicit(&halt->code, &none, code, memory_order_relaxed,
                                            memory_order_relaxed);
}

/* 0, or the code to end with; NULL: nothing stops this work. */
static inline int halt_code(const struct halt *halt)
{
    return halt ? atomic_load_explicit(&halt->code, memory_order_relaxed) : 0;
}

/* The same, looked at once in HALT_LOOK bytes: by who has gone from one place to another. */
static inline int halt_between(const struct halt *halt, size_t from, size_t to)
{
    return from / HALT_LOOK != to / HALT_LOOK ? halt_code(halt) : 0;
}

/* The same as an error. */
static inline int halt_error(const struct halt *halt, struct error *error)
{
    int code = halt_code(halt);
    return code ? error_set(error, code, "stopped: %s", error_text(code)) : 0;
}
