/* Byte pair encoding: the merge table, and the merging of one piece of text, in O(n log n).
 *
 * The table is filled by the loader and then read by any thread; scratch belongs to one caller.
 *
 * Merges go by rank, the lowest first and of equal ones the leftmost, as the reference does it. A
 * long piece is cut beforehand where no merge could ever reach across, which changes no result. One
 * that goes on all the same is merged a window at a time (bpe_cut.h), which changes none either:
 * scratch is that of a window. A window grows where its second half has no certain place to end,
 * up to BPE_WINDOW_MAX; what goes on from there is refused.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/base/halt.h"
#include "daemon/text/vocab.h"

#define BPE_MERGES_MAX (1 << 20)
#define BPE_WINDOW                                                                                 \
    (47u << 10) /* symbols that are merged at a time, with 32 bytes of scratch each */
#define BPE_WINDOW_MAX (1u << 20)

/* The names are those of the file's fields, but byte_level: there a symbol is a byte, else a
 * code point. */
struct bpe_flags {
    bool byte_level, byte_fallback, ignore_merges, fuse_unk;
};

struct bpe_merge {
    uint32_t left, right, rank, id; /* left IDMAP_NONE: empty */
};

struct bpe {
    struct bpe_flags flags;
    struct vocab words;     /* what text is looked up in: bytes or characters, no added tokens */
    uint32_t byte_ids[256]; /* byte level: of the byte's token; byte fallback: of <0xHH> */
    uint32_t unk;           /* IDMAP_NONE where there is none */
    struct bpe_merge *merges;
    uint32_t merges_mask;
    uint64_t *joinable; /* bits, by hash of the two symbols on either side of a merge's seam */
    uint64_t *known;    /* bits, by code point: is a token (not with byte_level) */
    size_t longest;     /* bytes of a token that is a symbol or is merged, at most */
    bool bytes_alone;   /* every unknown character is its bytes, which are merged with nothing */
};

/* After `words`, `byte_ids` and `flags` are set. False: out of memory. */
bool bpe_init(struct bpe *bpe, size_t merges_max);
void bpe_free(struct bpe *bpe);
/* A later merge of the same pair replaces the rank. False: too many entries collide. */
bool bpe_add_merge(struct bpe *bpe, const struct bpe_merge *merge);
/* After the last merge, with the `byte_ids` of byte fallback set. */
void bpe_ready(struct bpe *bpe);

struct bpe_symbol;
struct bpe_word;

struct bpe_scratch {
    struct bpe_symbol *symbols;
    uint64_t *heap;
    size_t room;             /* of symbols; the heap has twice as much */
    size_t window;           /* symbols; 0: BPE_WINDOW */
    struct bpe_word *cache;  /* recent pieces; of one tokenizer */
    const struct halt *halt; /* NULL: none */
};

bool bpe_scratch_init(struct bpe_scratch *scratch);
void bpe_scratch_trim(struct bpe_scratch *scratch); /* gives back what only a huge text needed */
void bpe_scratch_free(struct bpe_scratch *scratch);

struct bpe_ids {
    int32_t *ids;
    size_t count, max;
};

enum bpe_outcome { BPE_DONE, BPE_FULL, BPE_NO_MEMORY, BPE_HALTED, BPE_ENDLESS };

/* Appends the ids of one piece of valid UTF-8. */
enum bpe_outcome bpe_encode(const struct bpe *bpe, struct bpe_scratch *scratch, const char *piece,
                            size_t length, struct bpe_ids *ids);
