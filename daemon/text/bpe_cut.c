#include "daemon/text/bpe_cut.h"

#include <string.h>

#include "daemon/text/codepoint.h"

#define AHEAD 3         /* tokens, behind one that would merge, that must have nowhere to go */
#define SYMBOLS_MAX 320 /* of two tokens */

static bool spend(struct bpe_cut *cut, size_t work)
{
    bool enough = work < cut->budget;
    cut->budget = enough ? cut->budget - work : 0;
    return enough;
}

/* The symbol at `at`, which is moved past it; IDMAP_NONE: no token is that symbol. */
static uint32_t known(const struct bpe_cut *cut, size_t *at)
{
    return bpe_symbol_at(cut->bpe, cut->piece, at);
}

/* What the text from `from` to `end` becomes alone; false: it is longer than what is looked at, or
 * not all of it is known. */
static bool alone(struct bpe_cut *cut, size_t from, size_t end, struct bpe_symbol *symbols,
                  size_t *ret_count)
{
    size_t count = 0;
    for (size_t at = from; at < end;) {
        uint32_t id = known(cut, &at);
        if (id == IDMAP_NONE || count == SYMBOLS_MAX)
            return false;
        symbols[count++].id = id;
    }
    if (halt_code(cut->halt))
        cut->budget = 0;
    if (!spend(cut, count * count))
        return false;
    *ret_count = bpe_merge_short(cut->bpe, symbols, count);
    return true;
}

/* The text from `from` to `end` is one token of its own, *ret_id. */
static bool is_token(struct bpe_cut *cut, size_t from, size_t end, uint32_t *ret_id)
{
    struct bpe_symbol symbols[SYMBOLS_MAX];
    size_t count = 0;
    uint32_t id = vocab_find(&cut->bpe->words, cut->piece + from, end - from);
    if (id == IDMAP_NONE || !alone(cut, from, end, symbols, &count))
        return false;
    *ret_id = symbols[0].id;
    return count == 1;
}

/* Two tokens, whose text is from `from` to `end`, stay two; `otherwise`: where it is not known. */
static bool apart(struct bpe_cut *cut, size_t from, size_t end, uint32_t left, uint32_t right,
                  bool otherwise)
{
    struct bpe_symbol symbols[SYMBOLS_MAX];
    size_t count = 0;
    if (!alone(cut, from, end, symbols, &count))
        return otherwise;
    return count == 2 && symbols[0].id == left && symbols[1].id == right;
}

/* Whether the text could go on behind the token from `from` to `at`: it ends there, or there is a
 * token that stays apart from it, behind which it could go on. Where that is not known it could. */
static bool goes_on(struct bpe_cut *cut, size_t from, size_t at, uint32_t id, int depth)
{
    if (depth == 0 || at == cut->length)
        return true;
    for (size_t end = at; end < cut->length && end - at < cut->bpe->longest;) {
        uint32_t next;
        if (known(cut, &end) == IDMAP_NONE || !spend(cut, end - at))
            return true;
        if (is_token(cut, at, end, &next) && apart(cut, from, end, id, next, true) &&
            goes_on(cut, at, end, next, depth - 1))
            return true;
    }
    return cut->budget == 0;
}

/* No token that the text behind could begin with merges with the one before. */
bool bpe_cut_certain(struct bpe_cut *cut, uint32_t left, size_t left_at, size_t at)
{
    size_t longest = cut->bpe->longest, length = 0;
    const char *text = vocab_text(&cut->bpe->words, left, &length);
    if (longest > BPE_LOOK_MAX || length != at - left_at ||
        memcmp(text, cut->piece + left_at, length) != 0)
        return false; /* stands for something else: a byte, or what is unknown */
    for (size_t end = at; end < cut->length && end - at < longest;) {
        uint32_t right;
        if (known(cut, &end) == IDMAP_NONE || !spend(cut, end - at))
            return false;
        if (is_token(cut, at, end, &right) && !apart(cut, left_at, end, left, right, false) &&
            goes_on(cut, at, end, right, AHEAD))
            return false;
    }
    return cut->budget > 0;
}
