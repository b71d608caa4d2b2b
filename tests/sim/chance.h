/* Drawn numbers: splitmix64 over a word that the caller keeps. The same word, the same draws. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

static inline uint64_t chance_draw(uint64_t *state)
{
    uint64_t x = *state += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* 0 to bound - 1; bound > 0. */
static inline uint32_t chance_below(uint64_t *state, uint32_t bound)
{
    return (uint32_t)((chance_draw(state) >> 32) * bound >> 32);
}

/* From `low` to `high`, both included. */
static inline uint32_t chance_between(uint64_t *state, uint32_t low, uint32_t high)
{
    return low + chance_below(state, high - low + 1);
}

/* True once in `count` times. */
static inline bool chance_one_in(uint64_t *state, uint32_t count)
{
    return chance_below(state, count) == 0;
}
