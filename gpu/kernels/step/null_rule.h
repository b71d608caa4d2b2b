/* The rule of synthetic:null, the model that computes nothing: what it answers follows from the
 * tokens alone, so that whoever knows them can check every answer.
 *
 * Each position has a 64-bit state, made of the state of the position before and its own token; the
 * model's KV entry of a position is its state, read through the block table when the next position
 * is computed. A block swapped, a wait missed or an append lost gives other states from there on,
 * and other answers.
 *
 * Vocabulary: the bytes, and one end token. After the token at a position with state s, the model's
 * own next token is null_next(s): mostly a byte, the end token for one state in NULL_END_RARITY.
 * Where end tokens are masked, the byte of the same state takes its place. Sampling parameters are
 * ignored.
 *
 * Plain C without CUDA: shared by the kernel, tests, the simulation and the client's benchmark.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define NULL_VOCAB 257
#define NULL_END 256
#define NULL_END_RARITY 512
#define NULL_HIDDEN 8
#define NULL_CONTEXT 8192
#define NULL_BLOCK_TOKENS 32

#ifdef __CUDACC__
#define NULL_RULE static inline __host__ __device__
#else
#define NULL_RULE static inline
#endif

/* The state before position 0. */
#define NULL_START UINT64_C(0x6a09e667f3bcc908)

/* The state of a position with this token, `before` being that of the position before. */
NULL_RULE uint64_t null_state(uint64_t before, int32_t token)
{
    uint64_t x = before + UINT64_C(0x9e3779b97f4a7c15) * ((uint64_t)(uint32_t)token + 1);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

NULL_RULE int32_t null_byte(uint64_t state)
{
    return (int32_t)(state >> 56);
}

NULL_RULE int32_t null_next(uint64_t state)
{
    return (state >> 32) % NULL_END_RARITY == 0 ? NULL_END : null_byte(state);
}

/* The token that is sampled; `may_end`: the sampled position is not below eos_from. */
NULL_RULE int32_t null_sample(uint64_t state, bool may_end)
{
    return may_end ? null_next(state) : null_byte(state);
}

/* The token that is sampled by a mask, of which some bit is set. */
NULL_RULE int32_t null_sample_masked(uint64_t state, bool may_end, const uint32_t *mask)
{
    uint32_t first = (uint32_t)null_sample(state, may_end), token = first;
    for (uint32_t i = 0; i < NULL_VOCAB; i++) {
        token = (first + i) % NULL_VOCAB;
        if (mask[token / 32] >> token % 32 & 1)
            break;
    }
    return (int32_t)token;
}

/* Log-probability of a token: null_next is the likeliest, those above it follow in turn, modulo the
 * vocabulary. Exact in float32. */
NULL_RULE float null_logprob(uint64_t state, int32_t token)
{
    uint32_t behind = (uint32_t)(token + NULL_VOCAB - null_next(state)) % NULL_VOCAB;
    return -(float)(1 + (state & 15) + 8 * (uint64_t)behind) / 64;
}

/* The n-th likeliest token, 0 being the likeliest. */
NULL_RULE int32_t null_top(uint64_t state, uint32_t n)
{
    return (int32_t)(((uint32_t)null_next(state) + n) % NULL_VOCAB);
}

/* Element i of the final hidden state, i below NULL_HIDDEN; sums over a context are exact. */
NULL_RULE float null_hidden(uint64_t state, uint32_t i)
{
    return (float)((int32_t)(state >> 8 * i & 255) - 128) / 128;
}
