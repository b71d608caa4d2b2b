/* The merge table and the merging itself. Private to bpe.c. */
#pragma once

#include "daemon/text/bpe.h"

#define BPE_JOINABLE_BITS (1u << 20)

/* Of the list that a long piece is while it is merged. */
struct bpe_symbol {
    uint32_t id;
    uint32_t prev, next;
    union {
        uint32_t rank; /* in a short one */
        uint32_t at;   /* in a long one: the byte where its text begins; UINT32_MAX: of <unk> */
    };
};

static inline uint32_t bpe_seam(uint32_t left, uint32_t right)
{
    return (left * 0x9e3779b1u ^ right * 0x85ebca6bu) >> 7 & (BPE_JOINABLE_BITS - 1);
}

static inline bool bpe_joinable(const struct bpe *bpe, uint32_t left, uint32_t right)
{
    uint32_t bit = bpe_seam(left, right);
    return bpe->joinable[bit / 64] >> bit % 64 & 1;
}

/* The token of the symbol at `at`, which is moved past it; IDMAP_NONE when no token is that symbol.
 */
uint32_t bpe_symbol_at(const struct bpe *bpe, const char *piece, size_t *at);

bool bpe_scratch_reserve(struct bpe_scratch *scratch, size_t symbols);

/* Merges the first `count` symbols in place; returns how many are left, packed at the front. Once
 * halted it leaves merges out. */
size_t bpe_merge_symbols(const struct bpe *bpe, struct bpe_scratch *scratch, size_t count);
/* The same as a long piece, however short it is: `at` is kept. */
size_t bpe_merge_long(const struct bpe *bpe, struct bpe_scratch *scratch, size_t count);
/* The same in the square of `count`, without scratch. */
size_t bpe_merge_short(const struct bpe *bpe, struct bpe_symbol *symbols, size_t count);
