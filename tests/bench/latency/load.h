/* Arrivals drawn ahead from a seed. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct arrival {
    double at_us; /* INFINITY: when the one before it in its session has ended */
    uint32_t prompt, output;
    bool counts; /* its first token does; its gaps do with `gaps` */
    bool gaps;
};

struct load {
    struct arrival *arrivals; /* in the order of time, or session by session */
    uint32_t count;
    uint32_t turns; /* of each session; 0: there are none */
};

/* Open loop: Poisson arrivals, 512 to 1,536 tokens in, 64 to 192 out. */
struct load load_poisson(double rate, double seconds, uint64_t seed);
/* Such a load, of the very requests that `sluice bench --seed` sends. */
struct load load_drawn(double rate, double seconds, uint64_t seed);
/* 64 sequences decode; a prompt of 4,096 tokens arrives every second. */
struct load load_beside(double seconds);
/* All at once, 1,024 tokens in, 128 out. */
struct load load_saturated(uint32_t requests);
/* Sessions that begin all at once, each turn as soon as the one before it has ended: what `sluice
 * bench --workload conversations --think-time 0` sends. */
struct load load_conversations(uint32_t sessions);
/* The first `count` tokens of a session of that load; answers are zeros. */
void load_text(uint32_t session, uint32_t count, int32_t *tokens);
void load_free(struct load *load);
