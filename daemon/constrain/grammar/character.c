#include "daemon/constrain/grammar/character.h"

#include <stdlib.h>
#include <string.h>

#include "protocol/base/utf8.h"

void character_add(struct character_set *set, uint32_t low, uint32_t high)
{
    if (set->count == CHARACTER_RANGES_MAX) {
        character_sort(set);
        set->full |=
            set->count > CHARACTER_RANGES_MAX / 8 * 7; /* or it would be sorted all the time */
    }
    if (set->full)
        return;
    set->ranges[set->count++] = (struct character_range){low, high};
}

void character_merge(struct character_set *set, const struct character_set *other)
{
    for (uint32_t i = 0; i < other->count; i++)
        character_add(set, other->ranges[i].low, other->ranges[i].high);
    set->full |= other->full;
}

static int by_low(const void *left, const void *right)
{
    uint32_t a = ((const struct character_range *)left)->low;
    uint32_t b = ((const struct character_range *)right)->low;
    return a < b ? -1 : a > b;
}

void character_sort(struct character_set *set)
{
    uint32_t used = 0, sorted = 1;
    while (sorted < set->count && set->ranges[sorted - 1].low <= set->ranges[sorted].low)
        sorted++;
    if (sorted < set->count)
        qsort(set->ranges, set->count, sizeof(set->ranges[0]), by_low);
    for (uint32_t i = 0; i < set->count; i++) {
        struct character_range range = set->ranges[i];
        if (used > 0 && range.low <= set->ranges[used - 1].high + 1) {
            if (range.high > set->ranges[used - 1].high)
                set->ranges[used - 1].high = range.high;
        } else {
            set->ranges[used++] = range;
        }
    }
    set->count = used;
}

void character_invert(struct character_set *set)
{
    struct character_set other;
    uint32_t low = 0;
    character_none(&other);
    other.full = set->full;
    character_sort(set);
    for (uint32_t i = 0; i < set->count; i++) {
        if (set->ranges[i].low > low)
            character_add(&other, low, set->ranges[i].low - 1);
        low = set->ranges[i].high + 1;
    }
    if (low <= CHARACTER_MAX)
        character_add(&other, low, CHARACTER_MAX);
    memcpy(set->ranges, other.ranges, other.count * sizeof(other.ranges[0]));
    set->count = other.count;
    set->full = other.full;
}

static size_t encode(uint32_t character, uint8_t *bytes)
{
    if (character < 0x80) {
        bytes[0] = (uint8_t)character;
        return 1;
    }
    size_t length = character < 0x800 ? 2 : character < 0x10000 ? 3 : 4;
    for (size_t i = length - 1; i > 0; i--, character >>= 6)
        bytes[i] = (uint8_t)(0x80 | (character & 0x3f));
    bytes[0] = (uint8_t)((0xf00u >> length) | character);
    return length;
}

/* A range whose ends have equally many bytes, of which all but the last differing one run through
 * all continuations: one edge for each byte. */
static void sequence(struct grammar *grammar, uint32_t from, uint32_t to, const uint8_t *low,
                     const uint8_t *high, size_t length)
{
    for (size_t i = 0; i < length; i++)
        from = grammar_bytes(grammar, from, i + 1 == length ? to : GRAMMAR_NONE, low[i], high[i]);
}

/* Cut where a byte before the last would not run through all of its continuations. */
static void utf8_range(struct grammar *grammar, uint32_t from, uint32_t to, uint32_t low,
                       uint32_t high)
{
    static const uint32_t last_of[] = {0x7f, 0x7ff, 0xffff, CHARACTER_MAX};
    while (low <= high && !grammar->code) {
        uint32_t end = high;
        for (unsigned i = 0; i < 4; i++)
            if (low <= last_of[i] && end > last_of[i])
                end = last_of[i];
        for (unsigned bits = 6; bits <= 18 && low >= 0x80; bits += 6) {
            uint32_t mask = (1u << bits) - 1;
            if ((low & ~mask) == (end & ~mask))
                break;
            if (low & mask) {
                end = low | mask;
                break;
            }
            if ((end & mask) != mask)
                end = (end & ~mask) - 1;
        }
        uint8_t first[4], last[4];
        size_t length = encode(low, first);
        encode(end, last);
        sequence(grammar, from, to, first, last, length);
        low = end + 1;
    }
}

static void bare(struct grammar *grammar, uint32_t from, uint32_t to, uint32_t low, uint32_t high)
{
    if (low < 0xd800)
        utf8_range(grammar, from, to, low, high < 0xd800 ? high : 0xd7ff);
    if (high > 0xdfff)
        utf8_range(grammar, from, to, low > 0xdfff ? low : 0xe000, high);
}

static void escaped(struct grammar *grammar, uint32_t from, uint32_t to, uint32_t character)
{
    static const char *const names = "\"\\bfnrt", *const meant = "\"\\\b\f\n\r\t";
    const char *found = character ? strchr(meant, (int)character) : NULL;
    from = grammar_word(grammar, from, "\\");
    if (found) {
        uint8_t name = (uint8_t)names[found - meant];
        grammar_bytes(grammar, from, to, name, name);
        return;
    }
    uint8_t digit = "0123456789abcdef"[character & 15];
    from = grammar_word(grammar, from, character < 16 ? "u000" : "u001");
    grammar_bytes(grammar, from, to, digit, digit);
}

static void in_json(struct grammar *grammar, uint32_t from, uint32_t to, uint32_t low,
                    uint32_t high)
{
    static const struct character_range raw[] = {{' ', '!'}, {'#', '['}, {']', CHARACTER_MAX}};
    for (uint32_t character = low; character < ' ' && character <= high; character++)
        escaped(grammar, from, to, character);
    if (low <= '"' && high >= '"')
        escaped(grammar, from, to, '"');
    if (low <= '\\' && high >= '\\')
        escaped(grammar, from, to, '\\');
    for (unsigned i = 0; i < 3; i++)
        if (low <= raw[i].high && high >= raw[i].low)
            bare(grammar, from, to, low > raw[i].low ? low : raw[i].low,
                 high < raw[i].high ? high : raw[i].high);
}

/* The part of a sorted set between two characters. A set is too large to be returned. */
static void within(const struct character_set *set, uint32_t low, uint32_t high,
                   struct character_set *part)
{
    character_none(part);
    for (uint32_t i = 0; i < set->count; i++)
        if (set->ranges[i].low <= high && set->ranges[i].high >= low)
            part->ranges[part->count++] =
                (struct character_range){set->ranges[i].low > low ? set->ranges[i].low : low,
                                         set->ranges[i].high < high ? set->ranges[i].high : high};
}

static uint32_t set_rule(struct grammar *grammar, struct character_set *set,
                         enum character_form form)
{
    size_t bytes = set->count * sizeof(set->ranges[0]);
    uint32_t passed = 0;
    for (struct grammar_set *known = grammar->sets; known; known = known->next, passed++)
        if (known->form == (uint32_t)form && known->count == set->count &&
            !memcmp(known->ranges, set->ranges, bytes))
            return known->rule;
    grammar_work(grammar, passed / 4);
    struct grammar_set *made = malloc(sizeof(*made) + bytes);
    if (!made) {
        grammar_fail(grammar, ERR_NO_MEMORY, "no memory for a constraint");
        return 0;
    }
    *made = (struct grammar_set){.next = grammar->sets,
                                 .rule = grammar_node(grammar),
                                 .form = (uint32_t)form,
                                 .count = set->count};
    memcpy(made->ranges, set->ranges, bytes);
    grammar->sets = made;
    grammar_final(grammar, character_bytes(grammar, made->rule, GRAMMAR_NONE, set, form));
    return made->rule;
}

/* The node that edges lead to, once the set is sorted and found to be whole. */
static uint32_t begin(struct grammar *grammar, uint32_t to, struct character_set *set)
{
    character_sort(set);
    if (set->full)
        grammar_fail(grammar, ERR_TOO_LARGE, "a class of more than %u ranges of characters",
                     CHARACTER_RANGES_MAX);
    return to == GRAMMAR_NONE ? grammar_node(grammar) : to;
}

uint32_t character_edges(struct grammar *grammar, uint32_t from, uint32_t to,
                         struct character_set *set, enum character_form form)
{
    static const struct character_range cuts[] = {{0, 0x1f}, {' ', 0x7f}, {0x80, CHARACTER_MAX}};
    to = begin(grammar, to, set);
    grammar_work(grammar, set->count * 8);
    for (unsigned i = 0; i < 3 && !grammar->code; i++) {
        struct character_set part;
        within(set, cuts[i].low, cuts[i].high, &part);
        bool few = part.count == 0 || i == 1 || (i == 0 && form == CHARACTER_BARE) ||
                   (part.count == 1 && part.ranges[0].low == part.ranges[0].high);
        if (few)
            character_bytes(grammar, from, to, &part, form);
        else
            grammar_call(grammar, from, to, set_rule(grammar, &part, form), 1, 1);
    }
    return to;
}

uint32_t character_bytes(struct grammar *grammar, uint32_t from, uint32_t to,
                         struct character_set *set, enum character_form form)
{
    to = begin(grammar, to, set);
    for (uint32_t i = 0; i < set->count && !grammar->code; i++) {
        if (form == CHARACTER_BARE)
            bare(grammar, from, to, set->ranges[i].low, set->ranges[i].high);
        else
            in_json(grammar, from, to, set->ranges[i].low, set->ranges[i].high);
    }
    return to;
}

bool character_next(const char *text, size_t length, size_t *at, uint32_t *ret_character)
{
    const unsigned char *bytes = (const unsigned char *)text + *at;
    size_t count = utf8_length(bytes, length - *at);
    if (count == 0)
        return false;
    uint32_t character = count == 1 ? bytes[0] : bytes[0] & (0x7fu >> count);
    for (size_t i = 1; i < count; i++)
        character = character << 6 | (bytes[i] & 0x3f);
    *at += count;
    *ret_character = character;
    return true;
}
