#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/constrain/grammar/json_rules.h"

#define BOUND_MAX 1e17
#define PLACES_MAX 20u

/* The size of a number, written out. */
struct decimal {
    char whole[24], part[PLACES_MAX + 2];
    uint32_t wholes, parts;
};

struct range {
    struct grammar *grammar;
    uint32_t to;
    bool whole, has_high, open_low, open_high;
    struct decimal low, high;
};

/* What is known of the digits so far: equal to the bound's, or already inside it. */
struct front {
    uint32_t node[2][2]; /* [equal to the low bound's][to the high bound's]; or GRAMMAR_NONE */
};

static bool write_out(double value, struct decimal *ret)
{
    char text[64];
    value = fabs(value); /* of -0 as well */
    for (unsigned places = 0; places <= PLACES_MAX; places++) {
        snprintf(text, sizeof(text), "%.*f", (int)places, value);
        if (strtod(text, NULL) != value)
            continue;
        char *point = strchr(text, '.');
        size_t wholes = point ? (size_t)(point - text) : strlen(text);
        if (wholes >= sizeof(ret->whole))
            return false;
        *ret = (struct decimal){.wholes = (uint32_t)wholes, .parts = places};
        memcpy(ret->whole, text, wholes);
        if (point)
            memcpy(ret->part, point + 1, places);
        return true;
    }
    return false;
}

static uint32_t *reach(struct grammar *grammar, struct front *front, bool low, bool high)
{
    uint32_t *node = &front->node[low][high];
    if (*node == GRAMMAR_NONE)
        *node = grammar_node(grammar);
    return node;
}

/* One digit more, at which the bounds have these digits. */
static struct front digit(struct grammar *grammar, const struct front *front, int low_digit,
                          int high_digit, int least)
{
    struct front next = {{{GRAMMAR_NONE, GRAMMAR_NONE}, {GRAMMAR_NONE, GRAMMAR_NONE}}};
    for (int low = 0; low < 2; low++)
        for (int high = 0; high < 2; high++) {
            uint32_t from = front->node[low][high];
            int first = low && low_digit > least ? low_digit : least;
            int last = high ? high_digit : '9';
            for (int at = first; from != GRAMMAR_NONE && at <= last; at++) {
                bool low_next = low && at == low_digit, high_next = high && at == high_digit;
                grammar_bytes(grammar, from, *reach(grammar, &next, low_next, high_next),
                              (uint8_t)at, (uint8_t)at);
            }
        }
    return next;
}

/* It may end behind `place` digits of the fraction where it is inside of both bounds by then. */
static void ends(const struct range *range, const struct front *front, uint32_t place)
{
    for (int low = 0; low < 2; low++)
        for (int high = 0; high < 2; high++) {
            uint32_t node = front->node[low][high];
            bool above = !low || (place >= range->low.parts && !range->open_low);
            bool below = !high || place < range->high.parts || !range->open_high;
            if (node != GRAMMAR_NONE && above && below)
                grammar_nothing(range->grammar, node, range->to);
        }
}

static int digit_of(const struct decimal *decimal, uint32_t place)
{
    return place < decimal->parts ? decimal->part[place] : '0';
}

static void fraction(const struct range *range, struct front front)
{
    struct grammar *grammar = range->grammar;
    uint32_t parts = range->low.parts > range->high.parts ? range->low.parts : range->high.parts;
    for (int i = 0; i < 4; i++) {
        uint32_t *node = &front.node[i / 2][i % 2];
        if (*node != GRAMMAR_NONE)
            *node = grammar_word(grammar, *node, ".");
    }
    for (uint32_t place = 0; place < parts + 4; place++) {
        front = digit(grammar, &front, digit_of(&range->low, place), digit_of(&range->high, place),
                      '0');
        ends(range, &front, place + 1);
        if (front.node[0][0] != GRAMMAR_NONE)
            grammar_nothing(grammar, json_digits(grammar, front.node[0][0], 0, JSON_DIGITS_MAX / 2),
                            range->to);
        front.node[0][0] = GRAMMAR_NONE;
    }
}

/* Numbers of `length` whole digits. */
static void of_length(const struct range *range, uint32_t from, uint32_t length)
{
    struct front front = {{{GRAMMAR_NONE, GRAMMAR_NONE}, {GRAMMAR_NONE, GRAMMAR_NONE}}};
    bool low = length == range->low.wholes, high = range->has_high && length == range->high.wholes;
    front.node[low][high] = from;
    for (uint32_t place = 0; place < length; place++)
        front = digit(range->grammar, &front, low ? range->low.whole[place] : '0',
                      high ? range->high.whole[place] : '9', place == 0 && length > 1 ? '1' : '0');
    ends(range, &front, 0);
    if (!range->whole)
        fraction(range, front);
}

static void sizes(struct range *range, uint32_t from)
{
    uint32_t last = range->has_high ? range->high.wholes : range->low.wholes;
    for (uint32_t length = range->low.wholes; length <= last; length++)
        of_length(range, from, length);
    if (range->has_high)
        return;
    uint32_t first = grammar_bytes(range->grammar, from, GRAMMAR_NONE, '1', '9');
    uint32_t end = json_digits(range->grammar, first, range->low.wholes, JSON_DIGITS_MAX);
    grammar_nothing(range->grammar, end, range->to);
    if (!range->whole)
        grammar_nothing(
            range->grammar,
            json_digits(range->grammar, grammar_word(range->grammar, end, "."), 1, JSON_DIGITS_MAX),
            range->to);
}

/* Sizes from low to high, either of which may be open or, the high one, none. */
static bool add_sizes(struct range *range, uint32_t from, double low, bool open_low, double high,
                      bool open_high)
{
    if (range->has_high && (high < low || (high == low && (open_low || open_high))))
        return true;
    range->open_low = open_low;
    range->open_high = open_high;
    if (low > BOUND_MAX || !write_out(low, &range->low))
        return false;
    if (range->has_high && (high > BOUND_MAX || !write_out(high, &range->high)))
        return false;
    sizes(range, from);
    return true;
}

static void round_inward(struct number_bounds *bounds)
{
    double low = ceil(bounds->low), high = floor(bounds->high);
    bounds->low = bounds->open_low && low == bounds->low ? low + 1 : low;
    bounds->high = bounds->open_high && high == bounds->high ? high - 1 : high;
    bounds->open_low = bounds->open_high = false;
}

uint32_t json_number_between(struct grammar *grammar, uint32_t from, bool whole,
                             struct number_bounds bounds, const char *path)
{
    struct range range = {.grammar = grammar, .to = grammar_node(grammar), .whole = whole};
    bool known = true;
    if (whole)
        round_inward(&bounds);
    range.has_high = bounds.has_high;
    if (!bounds.has_high || bounds.high >= 0) {
        bool from_zero = !bounds.has_low || bounds.low < 0;
        known = add_sizes(&range, from, from_zero ? 0 : bounds.low, !from_zero && bounds.open_low,
                          bounds.high, bounds.open_high);
    }
    range = (struct range){
        .grammar = grammar, .to = range.to, .whole = whole, .has_high = bounds.has_low};
    if (!bounds.has_low || bounds.low < 0) {
        bool from_zero = !bounds.has_high || bounds.high > 0;
        double least = from_zero ? 0 : -bounds.high;
        if (whole && least < 1) /* no -0 */
            least = 1;
        known &= add_sizes(&range, grammar_word(grammar, from, "-"), least,
                           !from_zero && bounds.open_high, -bounds.low, bounds.open_low);
    }
    if (!known)
        grammar_fail(grammar, ERR_UNSUPPORTED,
                     "%s: bounds beyond 10^17, or of more than %u places, are not supported", path,
                     PLACES_MAX);
    return range.to;
}
