/* Where a long piece may be cut though merges could reach across: so that it is merged a window at
 * a time, with the result of merging it whole. Private to bpe.c; its tests.
 *
 * Merges go by rank, the lowest of all first. So what happens to the symbols of one token of the
 * result, and to those of the next, is what happens to the two of them alone: the result of two
 * texts together is the results of both, one behind the other, exactly where the last token of the
 * one and the first token of the other, together alone, stay two. Of the text behind a cut only
 * the beginning is looked at; every token that it could begin with must stay apart from the token
 * before the cut, but for those behind which no tokens could follow.
 */
#pragma once

#include "daemon/text/bpe_merge.h"

#define BPE_LOOK_MAX 256 /* bytes: with longer tokens no cut is ever certain */

struct bpe_cut {
    const struct bpe *bpe;
    const char *piece;
    size_t length;           /* of the whole piece */
    size_t budget;           /* of work that may still be done; at 0 nothing is certain any more */
    const struct halt *halt; /* sets it to 0; NULL: none */
};

/* Whether the result of the piece has a boundary at `at`, where merging a part that ends there or
 * later gave the token `left`, `left_at` to `at`, in front of it. */
bool bpe_cut_certain(struct bpe_cut *cut, uint32_t left, size_t left_at, size_t at);
