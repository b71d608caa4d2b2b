/* Which tokens of a row are kept: the likeliest ones, down to a key and an id.
 *
 * Found by a radix select over sortable keys, eight bits a pass, with a histogram per warp so that
 * atomics on the few busy bins stay within a warp. Weights are integers, so the sums know no order.
 * Called by whole blocks of CUT_WARPS warps. */
#pragma once

#include "gpu/kernels/common/argmax.cuh"

#define CUT_WARPS 16
#define CUT_THREADS (CUT_WARPS * WARP)
#define CUT_BINS 256

struct cut {
    uint32_t key; /* greater keys are kept */
    uint32_t id;  /* and of equal ones those with ids up to this one */
};

struct cut_scratch {
    unsigned long long bins[CUT_WARPS][CUT_BINS];
    unsigned long long left;
    uint32_t digit, id;
    uint32_t counts[CUT_WARPS];
};

/* Greater floats have greater keys; both zeros have the same. */
__device__ __forceinline__ uint32_t key_of(float score)
{
    uint32_t bits = __float_as_uint(score + 0.0f);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

__device__ __forceinline__ float score_of(uint32_t key)
{
    return __uint_as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key);
}

__device__ __forceinline__ bool cut_keeps(cut within, uint32_t key, uint32_t id)
{
    return key > within.key || (key == within.key && id <= within.id);
}

/* 2^40 is the likeliest token's. */
__device__ __forceinline__ unsigned long long mass_of(float score, float greatest)
{
    return (unsigned long long)(expf(score - greatest) * 0x1p40f);
}

__device__ static unsigned long long cut_mass(const float *scores, uint32_t vocab, cut within,
                                              float greatest, struct cut_scratch *scratch)
{
    __syncthreads();
    if (threadIdx.x == 0)
        scratch->left = 0;
    __syncthreads();
    unsigned long long sum = 0;
    for (uint32_t i = threadIdx.x; i < vocab; i += CUT_THREADS)
        if (cut_keeps(within, key_of(scores[i]), i))
            sum += mass_of(scores[i], greatest);
    for (int offset = WARP / 2; offset; offset /= 2)
        sum += __shfl_xor_sync(FULL_MASK, sum, offset);
    if (threadIdx.x % WARP == 0)
        atomicAdd(&scratch->left, sum);
    __syncthreads();
    return scratch->left;
}

/* The `nth` lowest id (from 1) with this key among ids up to `last`; `last` if there are fewer. */
__device__ static uint32_t cut_tie(const float *scores, uint32_t vocab, uint32_t key, uint32_t last,
                                   unsigned long long nth, struct cut_scratch *scratch)
{
    uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    unsigned long long before = 0;
    __syncthreads();
    if (threadIdx.x == 0)
        scratch->id = last;
    for (uint32_t base = 0; base < vocab && before < nth; base += CUT_THREADS) {
        uint32_t i = base + threadIdx.x;
        bool mine = i < vocab && i <= last && key_of(scores[i]) == key;
        unsigned equal = __ballot_sync(FULL_MASK, mine);
        __syncthreads();
        if (lane == 0)
            scratch->counts[warp] = __popc(equal);
        __syncthreads();
        unsigned long long rank = before + __popc(equal & ((2u << lane) - 1));
        for (uint32_t w = 0; w < CUT_WARPS; w++) {
            rank += w < warp ? scratch->counts[w] : 0;
            before += scratch->counts[w];
        }
        if (mine && rank == nth)
            scratch->id = i;
    }
    __syncthreads();
    return scratch->id;
}

/* The smallest set of greatest scores within `within` that weighs `target` or more; a token weighs
 * its mass, or 1. At most all of `within`. */
__device__ static cut cut_at(const float *scores, uint32_t vocab, cut within, bool by_mass,
                             float greatest, unsigned long long target, struct cut_scratch *scratch)
{
    uint32_t warp = threadIdx.x / WARP, prefix = 0, mask = 0;
    unsigned long long left = target;
    for (int shift = 24; shift >= 0; shift -= 8) {
        __syncthreads();
        for (uint32_t i = threadIdx.x; i < CUT_WARPS * CUT_BINS; i += CUT_THREADS)
            (&scratch->bins[0][0])[i] = 0;
        __syncthreads();
        for (uint32_t i = threadIdx.x; i < vocab; i += CUT_THREADS) {
            uint32_t key = key_of(scores[i]);
            if ((key & mask) != prefix || !cut_keeps(within, key, i))
                continue;
            unsigned long long weight = by_mass ? mass_of(scores[i], greatest) : 1;
            if (weight)
                atomicAdd(&scratch->bins[warp][(key >> shift) & 255], weight);
        }
        __syncthreads();
        for (uint32_t bin = threadIdx.x; bin < CUT_BINS; bin += CUT_THREADS)
            for (uint32_t w = 1; w < CUT_WARPS; w++)
                scratch->bins[0][bin] += scratch->bins[w][bin];
        __syncthreads();
        if (threadIdx.x == 0) {
            uint32_t digit = 255;
            while (digit > 0 && scratch->bins[0][digit] < left)
                left -= scratch->bins[0][digit--];
            scratch->digit = digit;
            scratch->left = left;
        }
        __syncthreads();
        left = scratch->left;
        prefix |= scratch->digit << shift;
        mask |= 255u << shift;
    }
    unsigned long long each = by_mass ? mass_of(score_of(prefix), greatest) : 1;
    unsigned long long ties = each ? (left + each - 1) / each : 0;
    uint32_t last = prefix == within.key ? within.id : vocab - 1;
    cut found = {prefix, 0};
    if (ties == 0) {
        found.key = prefix + 1;
        found.id = vocab - 1;
        return found;
    }
    found.id = cut_tie(scores, vocab, prefix, last, ties, scratch);
    return found;
}
