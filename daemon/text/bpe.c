#include "daemon/text/bpe.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/text/bpe_merge.h"
#include "daemon/text/codepoint.h"

#define CUT_MIN 64 /* shorter pieces are not worth looking for seams */

#define CACHE_WORDS 8192
#define CACHE_KEY_MAX 26
#define CACHE_IDS_MAX 8

/* One cache line. */
struct bpe_word {
    uint32_t hash;
    uint8_t length, count; /* length 0: empty */
    char key[CACHE_KEY_MAX];
    int32_t ids[CACHE_IDS_MAX];
};
static_assert(sizeof(struct bpe_word) == 64, "a cache entry is one cache line");

bool bpe_scratch_init(struct bpe_scratch *scratch)
{
    *scratch = (struct bpe_scratch){.cache = calloc(CACHE_WORDS, sizeof(struct bpe_word))};
    return scratch->cache != NULL;
}

void bpe_scratch_free(struct bpe_scratch *scratch)
{
    free(scratch->symbols);
    free(scratch->heap);
    free(scratch->cache);
    *scratch = (struct bpe_scratch){0};
}

static enum bpe_outcome put(struct bpe_ids *ids, uint32_t id)
{
    if (ids->count == ids->max)
        return BPE_FULL;
    ids->ids[ids->count++] = (int32_t)id;
    return BPE_DONE;
}

/* The token of the symbol at `at`, which is moved past it; IDMAP_NONE when no token is that symbol.
 */
static uint32_t symbol_at(const struct bpe *bpe, const char *piece, size_t *at)
{
    if (bpe->flags.byte_level)
        return bpe->byte_ids[(unsigned char)piece[(*at)++]];
    size_t start = *at;
    *at += codepoint_bytes((unsigned char)piece[start]);
    return vocab_find(&bpe->words, piece + start, *at - start);
}

/* The tokens <0xHH> of an unknown character, when all of its bytes have one. */
static size_t fall_back(const struct bpe *bpe, const char *bytes, size_t count,
                        struct bpe_symbol *symbols)
{
    if (!bpe->flags.byte_fallback)
        return 0;
    for (size_t i = 0; i < count; i++)
        if (bpe->byte_ids[(unsigned char)bytes[i]] == IDMAP_NONE)
            return 0;
    for (size_t i = 0; i < count; i++)
        symbols[i].id = bpe->byte_ids[(unsigned char)bytes[i]];
    return count;
}

/* Known characters, bytes of unknown ones, and <unk>, which waits for the next known character
 * before it takes its place. That order is the reference's, byte fallback included. */
static size_t make_symbols(const struct bpe *bpe, const char *piece, size_t length,
                           struct bpe_symbol *symbols)
{
    size_t count = 0, at = 0;
    bool unk_waits = false;
    while (at < length) {
        size_t start = at;
        uint32_t id = symbol_at(bpe, piece, &at);
        if (id == IDMAP_NONE) {
            size_t bytes = fall_back(bpe, piece + start, at - start, symbols + count);
            count += bytes;
            if (bytes > 0 || bpe->unk == IDMAP_NONE)
                continue;
            if (unk_waits && !bpe->flags.fuse_unk)
                symbols[count++].id = bpe->unk;
            unk_waits = true;
            continue;
        }
        if (unk_waits)
            symbols[count++].id = bpe->unk;
        unk_waits = false;
        symbols[count++].id = id;
    }
    if (unk_waits)
        symbols[count++].id = bpe->unk;
    return count;
}

static enum bpe_outcome merge_piece(const struct bpe *bpe, struct bpe_scratch *scratch,
                                    const char *piece, size_t length, struct bpe_ids *ids)
{
    if (!bpe_scratch_reserve(scratch, length + 1))
        return BPE_NO_MEMORY;
    size_t count = make_symbols(bpe, piece, length, scratch->symbols);
    if (count > 1)
        count = bpe_merge_symbols(bpe, scratch, count);
    if (length >= CUT_MIN && halt_code(scratch->halt))
        return BPE_HALTED;
    if (count > ids->max - ids->count)
        return BPE_FULL;
    for (size_t i = 0; i < count; i++)
        ids->ids[ids->count++] = (int32_t)scratch->symbols[i].id;
    return BPE_DONE;
}

static void remember(struct bpe_word *word, uint32_t hash, const char *piece, size_t length,
                     const int32_t *ids, size_t count)
{
    if (count > CACHE_IDS_MAX)
        return;
    word->hash = hash;
    word->length = (uint8_t)length;
    word->count = (uint8_t)count;
    memcpy(word->key, piece, length);
    memcpy(word->ids, ids, count * sizeof(*ids));
}

static enum bpe_outcome recall(const struct bpe_word *word, struct bpe_ids *ids)
{
    if (word->count > ids->max - ids->count)
        return BPE_FULL;
    for (size_t i = 0; i < word->count; i++)
        ids->ids[ids->count++] = word->ids[i];
    return BPE_DONE;
}

/* A piece, or a part of one that no merge leaves. With ignore_merges only whole pieces come here,
 * so that a cached word never answers for a part. */
static enum bpe_outcome encode_word(const struct bpe *bpe, struct bpe_scratch *scratch,
                                    const char *piece, size_t length, struct bpe_ids *ids)
{
    struct bpe_word *word = NULL;
    uint32_t hash = idmap_hash(piece, length);
    if (length <= CACHE_KEY_MAX) {
        word = &scratch->cache[hash % CACHE_WORDS];
        if (word->hash == hash && word->length == length && memcmp(word->key, piece, length) == 0)
            return recall(word, ids);
    }
    size_t first = ids->count;
    enum bpe_outcome outcome = BPE_DONE;
    uint32_t whole = bpe->flags.ignore_merges ? vocab_find(&bpe->words, piece, length) : IDMAP_NONE;
    if (whole != IDMAP_NONE)
        outcome = put(ids, whole);
    else
        outcome = merge_piece(bpe, scratch, piece, length, ids);
    if (word && outcome == BPE_DONE)
        remember(word, hash, piece, length, ids->ids + first, ids->count - first);
    return outcome;
}

/* The code of the symbol at `at`, which is moved past it, and whether it is a token: beside a
 * symbol that is none there is no seam, for what stands for it depends on its neighbours. */
static bool code_at(const struct bpe *bpe, const char *piece, size_t *at, uint32_t *ret_code)
{
    if (bpe->flags.byte_level) {
        *ret_code = (unsigned char)piece[(*at)++];
        return bpe->byte_ids[*ret_code] != IDMAP_NONE;
    }
    *ret_code = codepoint_next(piece, at);
    return bpe->known[*ret_code / 64] >> *ret_code % 64 & 1;
}

/* The end of the part that begins at `start`. */
static size_t part_end(const struct bpe *bpe, const char *piece, size_t length, size_t start)
{
    uint32_t left, right;
    size_t at = start;
    bool left_known = code_at(bpe, piece, &at, &left);
    while (at < length) {
        size_t seam = at;
        bool right_known = code_at(bpe, piece, &at, &right);
        if (left_known && right_known && !bpe_joinable(bpe, left, right))
            return seam;
        left = right;
        left_known = right_known;
    }
    return length;
}

enum bpe_outcome bpe_encode(const struct bpe *bpe, struct bpe_scratch *scratch, const char *piece,
                            size_t length, struct bpe_ids *ids)
{
    if (length < CUT_MIN)
        return length > 0 ? encode_word(bpe, scratch, piece, length, ids) : BPE_DONE;
    if (bpe->flags.ignore_merges) {
        uint32_t whole = vocab_find(&bpe->words, piece, length);
        if (whole != IDMAP_NONE)
            return put(ids, whole);
    }
    for (size_t start = 0, end; start < length; start = end) {
        if (halt_code(scratch->halt))
            return BPE_HALTED;
        end = part_end(bpe, piece, length, start);
        enum bpe_outcome outcome = bpe->flags.ignore_merges
                                       ? merge_piece(bpe, scratch, piece + start, end - start, ids)
                                       : encode_word(bpe, scratch, piece + start, end - start, ids);
        if (outcome != BPE_DONE)
            return outcome;
    }
    return BPE_DONE;
}
