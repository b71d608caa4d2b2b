#include "gpu/kernels/cpu/choose.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "gpu/kernels/cpu/number.h"
#include "gpu/kernels/cpu/simd.h"

/* What is kept: keys above `key`, and of those equal to it the `ties` lowest ids. */
struct cut {
    uint32_t key;
    uint32_t ties;
};

/* Greater floats have greater keys; both zeros have the same. */
static uint32_t key_of(float score)
{
    uint32_t bits = float_bits(score + 0.0f);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

static bool cut_keeps(const struct cut *cut, uint32_t key, uint32_t *ties_seen)
{
    if (key != cut->key)
        return key > cut->key;
    return (*ties_seen)++ < cut->ties;
}

static uint64_t mass_of(float score, float greatest)
{
    return (uint64_t)(simd_exp(score - greatest) * 0x1p40f);
}

uint32_t choose_greatest(const float *scores, uint32_t vocab)
{
    uint32_t best = 0;
    float greatest = -INFINITY;
    for (uint32_t i = 0; i < vocab; i++)
        if (scores[i] > greatest) {
            greatest = scores[i];
            best = i;
        }
    return best;
}

static uint64_t mass_within(const struct choose *c, const struct cut *within, float greatest)
{
    uint64_t sum = 0;
    uint32_t ties = 0;
    for (uint32_t i = 0; i < c->vocab; i++)
        if (cut_keeps(within, key_of(c->scores[i]), &ties))
            sum += mass_of(c->scores[i], greatest);
    return sum;
}

/* The smallest set of greatest scores within `within` that weighs `target` or more; a token weighs
 * its mass, or 1. Finds the key digit by digit. At most all of `within`. */
static struct cut cut_at(const struct choose *c, const struct cut *within, bool by_mass,
                         float greatest, uint64_t target)
{
    uint32_t prefix = 0, mask = 0;
    uint64_t left = target;
    for (int shift = 24; shift >= 0; shift -= 8) {
        uint64_t bins[256] = {0};
        uint32_t ties = 0, digit = 255;
        for (uint32_t i = 0; i < c->vocab; i++) {
            uint32_t key = key_of(c->scores[i]);
            if ((key & mask) == prefix && cut_keeps(within, key, &ties))
                bins[(key >> shift) & 255] += by_mass ? mass_of(c->scores[i], greatest) : 1;
        }
        while (digit > 0 && bins[digit] < left)
            left -= bins[digit--];
        prefix |= digit << shift;
        mask |= 255u << shift;
    }
    float score = bits_float(prefix & 0x80000000u ? prefix & 0x7fffffffu : ~prefix);
    uint64_t each = by_mass ? mass_of(score, greatest) : 1;
    uint64_t ties = each ? (left + each - 1) / each : 0;
    struct cut cut = {prefix, ties < c->vocab ? (uint32_t)ties : c->vocab};
    if (cut.key == within->key && cut.ties > within->ties)
        cut.ties = within->ties;
    return cut;
}

static struct cut cut_of(const struct choose *c, float greatest)
{
    struct cut cut = {0, c->vocab};
    if (c->sampler->top_k > 0 && (uint32_t)c->sampler->top_k < c->vocab)
        cut = cut_at(c, &cut, false, greatest, (uint32_t)c->sampler->top_k);
    if (c->sampler->top_p < 1.0f) {
        double mass = (double)mass_within(c, &cut, greatest) * (double)c->sampler->top_p;
        uint64_t target = (uint64_t)mass;
        target += (double)target < mass;
        cut = cut_at(c, &cut, true, greatest, target ? target : 1);
    }
    return cut;
}

void choose_random(uint64_t seed, uint32_t position, uint32_t block, uint32_t words[4])
{
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t c[4] = {block, position, 0, 0};
    for (int round = 0; round < 10; round++) {
        uint64_t first = (uint64_t)c[0] * 0xd2511f53u, second = (uint64_t)c[2] * 0xcd9e8d57u;
        uint32_t next[4] = {(uint32_t)(second >> 32) ^ c[1] ^ key[0], (uint32_t)second,
                            (uint32_t)(first >> 32) ^ c[3] ^ key[1], (uint32_t)first};
        memcpy(c, next, sizeof c);
        key[0] += 0x9e3779b9u;
        key[1] += 0xbb67ae85u;
    }
    memcpy(words, c, sizeof c);
}

/* -log(-log(u)) for a random word: at most NOISE_MAX. Small values of -log(u) decide, so u is taken
 * from 1 downwards. */
#define NOISE_MAX 23.0f
static float noise_of(uint32_t word)
{
    float low = ((float)word + 0.5f) * 0x1p-32f;
    if (low >= 1.0f)
        low = 1.0f - 0x1p-24f;
    return -logf(-log1pf(-low));
}

uint32_t choose_draw(const struct choose *c)
{
    uint32_t best = choose_greatest(c->scores, c->vocab), words[4], block = UINT32_MAX, ties = 0;
    float greatest = c->scores[best], best_score = -INFINITY;
    struct cut cut = cut_of(c, greatest);
    float least = c->sampler->min_p > 0 ? logf(c->sampler->min_p) : -INFINITY;
    for (uint32_t i = 0; i < c->vocab; i++) {
        float score = c->scores[i];
        if (!cut_keeps(&cut, key_of(score), &ties) || !(score - greatest >= least) ||
            score + NOISE_MAX <= best_score)
            continue;
        if (i / 4 != block) {
            block = i / 4;
            choose_random(c->seed, c->position, block, words);
        }
        float noisy = score + noise_of(words[i % 4]);
        if (noisy > best_score) {
            best_score = noisy;
            best = i;
        }
    }
    return best;
}
