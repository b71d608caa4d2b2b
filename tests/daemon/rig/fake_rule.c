#include "tests/daemon/rig/fake_inner.h"

uint64_t fake_mix(uint64_t hash, int32_t token)
{
    return (hash ^ (uint32_t)token) * 0x100000001b3u + 0x9e37u;
}

/* The token after a context whose full hash and window hash are these, at position `position`. */
int32_t fake_rule(uint64_t full, uint64_t window, const struct gpu_open *settings,
                  uint32_t position, const struct fake_knobs *knobs)
{
    uint64_t hash = fake_mix(full ^ (window << 1), (int32_t)settings->seed);
    hash ^= hash >> 29;
    int32_t token = 10 + (int32_t)(hash % (knobs->words ? knobs->words : FAKE_VOCAB - 10));
    bool end = knobs->eos_every > 0 && (hash >> 20) % knobs->eos_every == 0;
    return end && position >= settings->eos_from ? FAKE_EOS : token;
}

float fake_score(uint64_t full, int32_t target)
{
    return -(float)(fake_mix(full, target) % 1000u) / 100.0f;
}

float fake_embed(uint64_t full, uint32_t dimension)
{
    return (float)(fake_mix(full, (int32_t)dimension) % 1000u);
}
