/* What all parts of a simulated run share: the seed's draws, the virtual clock, the trace, and what
 * was found wrong first. One thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "protocol/base/clock.h"
#include "tests/sim/chance.h"

struct scene {
    uint64_t random; /* state of chance.h */
    time_us now_us;
    uint64_t trace; /* hash of all that happened, in order: equal runs have equal ones */
    uint64_t events;
    FILE *story; /* where events are told in words, or NULL */
    bool failed;
    char failure[512];
};

/* The first one stays. */
void scene_fail(struct scene *scene, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* An event: a constant name and two numbers. */
void scene_note(struct scene *scene, const char *what, uint64_t a, uint64_t b);
void scene_note_bytes(struct scene *scene, const void *bytes, size_t length);

static inline uint32_t scene_below(struct scene *scene, uint32_t bound)
{
    return chance_below(&scene->random, bound);
}
static inline uint32_t scene_between(struct scene *scene, uint32_t low, uint32_t high)
{
    return chance_between(&scene->random, low, high);
}
static inline bool scene_one_in(struct scene *scene, uint32_t count)
{
    return chance_one_in(&scene->random, count);
}
