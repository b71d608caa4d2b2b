#include "daemon/text/bpe.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/text/bpe_cut.h"
#include "daemon/text/bpe_merge.h"
#include "daemon/text/codepoint.h"

#define CUT_MIN 64   /* shorter pieces are not worth looking for seams */
#define CUT_TRIES 64 /* from a window's end; from there on the distance doubles */
#define CUT_WORK 32  /* for each byte of a window: to find its end */
#define CUT_WORK_LEAST 65536
#define SYMBOLS_MORE 8 /* than a window's: of its last character, and <unk> */

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

static struct bpe_symbol symbol_of(uint32_t id, uint32_t at)
{
    return (struct bpe_symbol){.id = id, .at = at};
}

/* The tokens <0xHH> of an unknown character, when all of its bytes have one. */
static size_t fall_back(const struct bpe *bpe, const char *bytes, size_t count, uint32_t at,
                        struct bpe_symbol *symbols)
{
    if (!bpe->flags.byte_fallback)
        return 0;
    for (size_t i = 0; i < count; i++)
        if (bpe->byte_ids[(unsigned char)bytes[i]] == IDMAP_NONE)
            return 0;
    for (size_t i = 0; i < count; i++)
        symbols[i] = symbol_of(bpe->byte_ids[(unsigned char)bytes[i]], at);
    return count;
}

/* Known characters, bytes of unknown ones, and <unk>, which waits for the next known character
 * before it takes its place. That order is the reference's, byte fallback included. It ends with
 * the text, *ret_bytes of it, or the character by which there are `most` symbols, or once halted.
 */
static size_t make_symbols(const struct bpe *bpe, const char *piece, size_t length,
                           struct bpe_symbol *symbols, size_t most, const struct halt *halt,
                           size_t *ret_bytes)
{
    const struct bpe_symbol unk = symbol_of(bpe->unk, UINT32_MAX);
    size_t count = 0, at = 0, start = 0;
    bool unk_waits = false;
    while (at < length && count < most && !halt_between(halt, start, at)) {
        start = at;
        uint32_t id = bpe_symbol_at(bpe, piece, &at);
        if (id == IDMAP_NONE) {
            size_t bytes =
                fall_back(bpe, piece + start, at - start, (uint32_t)start, symbols + count);
            count += bytes;
            if (bytes > 0 || bpe->unk == IDMAP_NONE)
                continue;
            if (unk_waits && !bpe->flags.fuse_unk)
                symbols[count++] = unk;
            unk_waits = true;
            continue;
        }
        if (unk_waits)
            symbols[count++] = unk;
        unk_waits = false;
        symbols[count++] = symbol_of(id, (uint32_t)start);
    }
    if (unk_waits)
        symbols[count++] = unk;
    *ret_bytes = at;
    return count;
}

static enum bpe_outcome put_symbols(const struct bpe_symbol *symbols, size_t count,
                                    struct bpe_ids *ids)
{
    if (count > ids->max - ids->count)
        return BPE_FULL;
    for (size_t i = 0; i < count; i++)
        ids->ids[ids->count++] = (int32_t)symbols[i].id;
    return BPE_DONE;
}

/* How many of the tokens that a window came to are the whole piece's, too, whatever comes: those in
 * front of a certain cut in its second half; 0: there is none. The nearest to the end are tried,
 * then some farther away. */
static size_t certain_tokens(const struct bpe *bpe, const struct bpe_symbol *symbols, size_t count,
                             size_t window, const char *piece, size_t length,
                             const struct halt *halt)
{
    struct bpe_cut cut = {.bpe = bpe,
                          .piece = piece,
                          .length = length,
                          .budget = window * CUT_WORK + CUT_WORK_LEAST,
                          .halt = halt};
    for (size_t back = 1; back < count; back += back < CUT_TRIES ? 1 : back) {
        const struct bpe_symbol *left = &symbols[count - back - 1], *right = left + 1;
        if (right->at < window / 2 || cut.budget == 0)
            return 0;
        if (left->at < right->at && bpe_cut_certain(&cut, left->id, left->at, right->at))
            return count - back;
    }
    return 0;
}

/* The first `window` symbols of a piece, or all that it has. *ret_bytes of it are dealt with: 0
 * where the window has no certain cut. */
static enum bpe_outcome merge_window(const struct bpe *bpe, struct bpe_scratch *scratch,
                                     const char *piece, size_t length, size_t window,
                                     struct bpe_ids *ids, size_t *ret_bytes)
{
    size_t room = (length < window ? length : window) + SYMBOLS_MORE;
    if (!bpe_scratch_reserve(scratch, room))
        return BPE_NO_MEMORY;
    struct bpe_symbol *symbols = scratch->symbols;
    size_t bytes, count = make_symbols(bpe, piece, length, symbols, window, scratch->halt, &bytes);
    if (bytes == length)
        count = count > 1 ? bpe_merge_symbols(bpe, scratch, count) : count;
    else
        count = bpe_merge_long(bpe, scratch, count);
    if (length >= CUT_MIN && halt_code(scratch->halt))
        return BPE_HALTED;
    if (bytes < length) {
        count = certain_tokens(bpe, symbols, count, bytes, piece, length, scratch->halt);
        bytes = count > 0 ? symbols[count].at : 0;
    }
    *ret_bytes = bytes;
    return put_symbols(symbols, count, ids);
}

static enum bpe_outcome merge_piece(const struct bpe *bpe, struct bpe_scratch *scratch,
                                    const char *piece, size_t length, struct bpe_ids *ids)
{
    const size_t least = scratch->window ? scratch->window : BPE_WINDOW;
    size_t window = least, bytes = 0;
    for (size_t done = 0; done < length; done += bytes) {
        enum bpe_outcome outcome =
            merge_window(bpe, scratch, piece + done, length - done, window, ids, &bytes);
        if (outcome != BPE_DONE)
            return outcome;
        if (bytes == 0 && window == BPE_WINDOW_MAX)
            return BPE_ENDLESS;
        window = bytes > 0 ? least : window < BPE_WINDOW_MAX / 2 ? 2 * window : BPE_WINDOW_MAX;
    }
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
 * symbol that is none there is a seam only where its bytes stand for it and merge with nothing, for
 * else what stands for it depends on its neighbours. */
static bool code_at(const struct bpe *bpe, const char *piece, size_t *at, uint32_t *ret_code)
{
    if (bpe->flags.byte_level) {
        *ret_code = (unsigned char)piece[(*at)++];
        return bpe->byte_ids[*ret_code] != IDMAP_NONE;
    }
    *ret_code = codepoint_next(piece, at);
    return bpe->known[*ret_code / 64] >> *ret_code % 64 & 1;
}

/* The end of the part that begins at `start`; any place once the halt is set. */
static size_t part_end(const struct bpe *bpe, const struct halt *halt, const char *piece,
                       size_t length, size_t start)
{
    uint32_t left, right;
    size_t at = start;
    bool left_known = code_at(bpe, piece, &at, &left);
    while (at < length) {
        size_t seam = at;
        if (halt_between(halt, at, at + 1))
            return seam;
        bool right_known = code_at(bpe, piece, &at, &right);
        if (left_known && right_known ? !bpe_joinable(bpe, left, right) : bpe->bytes_alone)
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
        end = part_end(bpe, scratch->halt, piece, length, start);
        if (halt_code(scratch->halt))
            return BPE_HALTED;
        enum bpe_outcome outcome = bpe->flags.ignore_merges
                                       ? merge_piece(bpe, scratch, piece + start, end - start, ids)
                                       : encode_word(bpe, scratch, piece + start, end - start, ids);
        if (outcome != BPE_DONE)
            return outcome;
    }
    return BPE_DONE;
}
