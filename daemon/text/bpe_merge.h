/* The merge table and the merging itself. Private to bpe.c. */
#pragma once

#include "daemon/text/bpe.h"

#define BPE_JOINABLE_BITS (1u << 20)

/* Of the list that a long piece is while it is merged; `rank` serves a short one. */
struct bpe_symbol {
    uint32_t id;
    uint32_t prev, next;
    uint32_t rank;
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

bool bpe_scratch_reserve(struct bpe_scratch *scratch, size_t symbols);

/* Merges the first `count` symbols in place; returns how many are left, packed at the front. Once
 * halted it leaves merges out. */
size_t bpe_merge_symbols(const struct bpe *bpe, struct bpe_scratch *scratch, size_t count);
