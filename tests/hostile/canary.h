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

struct canary_song;

struct canary {
    pthread_t thread;
    atomic_bool stop;
    char socket[128];
    uint64_t seed;
    const struct canary_song *song;
    _Atomic uint64_t answers; /* that were right, so far */
    char wrong[512];          /* "" when nothing was */
};

/* One question with one right answer, for a model that knows no rule. */
struct canary_song {
    const int32_t *prompt, *answer; /* the answer without its end token */
    uint32_t prompt_len, answer_len;
};

/* song NULL: what synthetic:null would say, drawn from the seed. */
void canary_start(struct canary *canary, const char *socket, uint64_t seed,
                  const struct canary_song *song);
/* Until it had so many further answers. False when it found something wrong first. */
bool canary_sings(struct canary *canary, uint64_t further);
void canary_stop(struct canary *canary);
