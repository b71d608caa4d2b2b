/* A client that behaves, in a thread of its own, while others do not: it asks one small thing after
 * the other, and every answer must be there in time, and be the rule's.
 *
 * The thread is canary.c's alone; what it found wrong is read after canary_stop().
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct canary {
    pthread_t thread;
    atomic_bool stop;
    char socket[128];
    uint64_t seed;
    _Atomic uint64_t answers; /* that were right, so far */
    char wrong[512];          /* "" when nothing was */
};

void canary_start(struct canary *canary, const char *socket, uint64_t seed);
/* Until it had so many further answers. False when it found something wrong first. */
bool canary_sings(struct canary *canary, uint64_t further);
void canary_stop(struct canary *canary);
