#include "daemon/sched/lookup.h"

#include <string.h>

static const uint32_t runs[2] = {LOOKUP_LONG, LOOKUP_SHORT};

static int32_t token_at(const struct lookup_text *text, uint32_t position)
{
    return position < text->prompt_len ? text->prompt[position]
                                       : text->out[position - text->prompt_len];
}

/* Of the `count` tokens that end before `end`. */
static uint32_t place_of(const struct lookup_text *text, uint32_t end, uint32_t count)
{
    uint64_t hash = count;
    for (uint32_t i = end - count; i < end; i++)
        hash = (hash ^ (uint32_t)token_at(text, i)) * 0x9e3779b97f4a7c15u;
    return (uint32_t)(hash >> 40) % LOOKUP_PLACES;
}

static bool are_same(const struct lookup_text *text, uint32_t a, uint32_t b, uint32_t count)
{
    for (uint32_t i = 1; i <= count; i++)
        if (token_at(text, a - i) != token_at(text, b - i))
            return false;
    return true;
}

void lookup_clear(struct lookup *lookup)
{
    memset(lookup, 0, sizeof(*lookup));
}

/* A run that ends with the text has nothing behind it yet. */
bool lookup_read(struct lookup *lookup, const struct lookup_text *text, uint32_t *left)
{
    for (; lookup->read + 1 < text->len && *left > 0; --*left) {
        uint32_t end = ++lookup->read;
        for (int i = 0; i < 2; i++)
            if (end >= runs[i])
                lookup->ends[i][place_of(text, end, runs[i])] = end;
    }
    return lookup->read + 1 >= text->len;
}

uint32_t lookup_find(const struct lookup *lookup, const struct lookup_text *text, int32_t *guesses,
                     uint32_t most)
{
    for (int i = 0; i < 2; i++) {
        uint32_t count = runs[i];
        uint32_t from = text->len < count ? 0 : lookup->ends[i][place_of(text, text->len, count)];
        if (from == 0 || from >= text->len || !are_same(text, from, text->len, count))
            continue;
        /* Behind the text's end it goes on as it did. */
        uint32_t there = text->len - from;
        for (uint32_t k = 0; k < most; k++)
            guesses[k] = k < there ? token_at(text, from + k) : guesses[k - there];
        return most;
    }
    return 0;
}
