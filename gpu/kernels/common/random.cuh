/* Philox-4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011) and the noise
 * that turns the greatest of scores into a draw; see sample.h. */
#pragma once

#include <math.h>
#include <stdint.h>

/* The words of the counter (block, position) under the seed. */
__device__ __forceinline__ uint4 random_words(uint64_t seed, uint32_t position, uint32_t block)
{
    uint32_t key0 = (uint32_t)seed, key1 = (uint32_t)(seed >> 32);
    uint32_t c0 = block, c1 = position, c2 = 0, c3 = 0;
#pragma unroll
    for (int round = 0; round < 10; round++) {
        uint32_t high0 = __umulhi(c0, 0xd2511f53u), low0 = c0 * 0xd2511f53u;
        uint32_t high1 = __umulhi(c2, 0xcd9e8d57u), low1 = c2 * 0xcd9e8d57u;
        c0 = high1 ^ c1 ^ key0;
        c1 = low1;
        c2 = high0 ^ c3 ^ key1;
        c3 = low0;
        key0 += 0x9e3779b9u;
        key1 += 0xbb67ae85u;
    }
    return {c0, c1, c2, c3};
}

/* One of them. */
__device__ static uint32_t random_word(uint64_t seed, uint32_t position, uint32_t block, int word)
{
    uint4 of = random_words(seed, position, block);
    return word == 0 ? of.x : word == 1 ? of.y : word == 2 ? of.z : of.w;
}

/* -log(-log(u)), at most RANDOM_NOISE_MAX. Small values of -log(u) decide, so u is taken from 1
 * downwards. */
#define RANDOM_NOISE_MAX 23.0f
__device__ static float random_noise(uint32_t word)
{
    float low = ((float)word + 0.5f) * 0x1p-32f;
    if (low >= 1.0f)
        low = 1.0f - 0x1p-24f;
    return -logf(-log1pf(-low));
}
