/* Arrivals drawn ahead from a seed. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct arrival {
    double at_us;
    uint32_t prompt, output;
    bool counts; /* its first token does; its gaps do with `gaps` */
    bool gaps;
};

struct load {
    struct arrival *arrivals; /* in the order of time */
    uint32_t count;
};

/* Open loop: Poisson arrivals, 512 to 1,536 tokens in, 64 to 192 out. */
struct load load_poisson(double rate, double seconds, uint64_t seed);
/* 64 sequences decode; a prompt of 4,096 tokens arrives every second. */
struct load load_beside(double seconds);
/* All at once, 1,024 tokens in, 128 out. */
struct load load_saturated(uint32_t requests);
void load_free(struct load *load);
