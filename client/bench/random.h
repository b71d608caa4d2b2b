/* Random numbers of a load: the same seed gives the same numbers on every machine.
 *
 * A generator is for one purpose (`stream`), so that an option which needs more draws of one kind
 * leaves the others as they were. xoshiro256**, seeded by splitmix64. Any thread, one at a time.
 */
#pragma once

#include <stdint.h>

struct random {
    uint64_t state[4];
};

void random_init(struct random *random, uint64_t seed, uint64_t stream);
uint64_t random_next(struct random *random);
double random_unit(struct random *random); /* above 0, at most 1 */
/* A whole number of [0, count), all equally likely. */
uint64_t random_below(struct random *random, uint64_t count);
/* Gamma of that shape and scale 1: its mean is `shape`. */
double random_gamma(struct random *random, double shape);
