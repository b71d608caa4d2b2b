#include "daemon/constrain/grammar/json_rules.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/constrain/grammar/character.h"

static uint32_t gap(struct grammar *grammar, uint32_t from)
{
    uint32_t to = grammar_bytes(grammar, from, GRAMMAR_NONE, ' ', ' ');
    return grammar_nothing(grammar, from, to);
}

uint32_t json_comma(struct grammar *grammar, uint32_t from)
{
    return gap(grammar, grammar_word(grammar, from, ","));
}

uint32_t json_colon(struct grammar *grammar, uint32_t from)
{
    return gap(grammar, grammar_word(grammar, from, ":"));
}

uint32_t json_canonical_rule(struct grammar *grammar)
{
    if (grammar->canonical != GRAMMAR_NONE)
        return grammar->canonical;
    struct character_set all = {.ranges = {{0, CHARACTER_MAX}}, .count = 1};
    uint32_t rule = grammar->canonical = grammar_node(grammar);
    grammar_final(grammar, character_bytes(grammar, rule, GRAMMAR_NONE, &all, CHARACTER_IN_JSON));
    if (!grammar->code)
        grammar->nodes[rule].plain = true;
    return rule;
}

static void hex_digits(struct grammar *grammar, uint32_t from, uint32_t to, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        uint32_t next = i + 1 == count ? to : grammar_node(grammar);
        grammar_bytes(grammar, from, next, '0', '9');
        grammar_bytes(grammar, from, next, 'a', 'f');
        grammar_bytes(grammar, from, next, 'A', 'F');
        from = next;
    }
}

static void two_cases(struct grammar *grammar, uint32_t from, uint32_t to, char low, char high)
{
    grammar_bytes(grammar, from, to, (uint8_t)low, (uint8_t)high);
    grammar_bytes(grammar, from, to, (uint8_t)(low & ~0x20), (uint8_t)(high & ~0x20));
}

/* Behind \u: four digits, or a pair of surrogates; never half of one. */
static void unicode_escape(struct grammar *grammar, uint32_t from, uint32_t to)
{
    uint32_t second = grammar_node(grammar), pair = grammar_node(grammar);
    uint32_t after_d = grammar_node(grammar), three = grammar_node(grammar);
    grammar_bytes(grammar, from, three, '0', '9');
    two_cases(grammar, from, three, 'a', 'c');
    two_cases(grammar, from, three, 'e', 'f');
    hex_digits(grammar, three, to, 3);
    two_cases(grammar, from, after_d, 'd', 'd');
    grammar_bytes(grammar, after_d, second, '0', '7');
    hex_digits(grammar, second, to, 2);
    grammar_bytes(grammar, after_d, pair, '8', '9');
    two_cases(grammar, after_d, pair, 'a', 'b');
    uint32_t high = grammar_node(grammar), low = grammar_node(grammar);
    hex_digits(grammar, pair, high, 2);
    uint32_t digit = grammar_word(grammar, high, "\\u"), after = grammar_node(grammar);
    two_cases(grammar, digit, after, 'd', 'd');
    two_cases(grammar, after, low, 'c', 'f');
    hex_digits(grammar, low, to, 2);
}

uint32_t json_text_rule(struct grammar *grammar)
{
    if (grammar->text != GRAMMAR_NONE)
        return grammar->text;
    struct character_set raw = {.ranges = {{' ', '!'}, {'#', '['}, {']', CHARACTER_MAX}},
                                .count = 3};
    uint32_t rule = grammar->text = grammar_node(grammar);
    uint32_t end = character_bytes(grammar, rule, GRAMMAR_NONE, &raw, CHARACTER_BARE);
    uint32_t escape = grammar_word(grammar, rule, "\\");
    for (const char *name = "\"\\/bfnrt"; *name; name++)
        grammar_bytes(grammar, escape, end, (uint8_t)*name, (uint8_t)*name);
    unicode_escape(grammar, grammar_word(grammar, escape, "u"), end);
    grammar_final(grammar, end);
    if (!grammar->code)
        grammar->nodes[rule].plain = true;
    return rule;
}

uint32_t json_text(struct grammar *grammar, uint32_t from, uint32_t min, uint32_t max)
{
    uint32_t rule = json_text_rule(grammar);
    from = grammar_word(grammar, from, "\"");
    return grammar_word(grammar, grammar_call(grammar, from, GRAMMAR_NONE, rule, min, max), "\"");
}

uint32_t json_digits(struct grammar *grammar, uint32_t from, uint32_t min, uint32_t max)
{
    uint32_t rule = grammar_node(grammar);
    grammar_final(grammar, grammar_bytes(grammar, rule, GRAMMAR_NONE, '0', '9'));
    return grammar_call(grammar, from, GRAMMAR_NONE, rule, min, max);
}

uint32_t json_number_any(struct grammar *grammar, uint32_t from, bool whole)
{
    uint32_t sign = grammar_bytes(grammar, from, GRAMMAR_NONE, '-', '-');
    grammar_nothing(grammar, from, sign);
    uint32_t first = grammar_bytes(grammar, sign, GRAMMAR_NONE, '1', '9');
    uint32_t end = json_digits(grammar, first, 0, JSON_DIGITS_MAX - 1);
    grammar_bytes(grammar, sign, end, '0', '0');
    if (whole)
        return end;
    uint32_t point = grammar_bytes(grammar, end, GRAMMAR_NONE, '.', '.');
    uint32_t fraction = json_digits(grammar, point, 1, JSON_DIGITS_MAX);
    grammar_nothing(grammar, end, fraction);
    uint32_t exponent = grammar_bytes(grammar, fraction, GRAMMAR_NONE, 'e', 'e');
    grammar_bytes(grammar, fraction, exponent, 'E', 'E');
    uint32_t power = grammar_bytes(grammar, exponent, GRAMMAR_NONE, '-', '-');
    grammar_bytes(grammar, exponent, power, '+', '+');
    grammar_nothing(grammar, exponent, power);
    uint32_t last = json_digits(grammar, power, 1, 2);
    return grammar_nothing(grammar, fraction, last);
}

uint32_t json_number_of_digits(struct grammar *grammar, uint32_t from, uint32_t whole_max)
{
    uint32_t sign = grammar_bytes(grammar, from, GRAMMAR_NONE, '-', '-');
    grammar_nothing(grammar, from, sign);
    uint32_t whole = json_digits(grammar, sign, 1, whole_max);
    uint32_t point = grammar_bytes(grammar, whole, GRAMMAR_NONE, '.', '.');
    return grammar_nothing(grammar, whole, json_digits(grammar, point, 1, JSON_DIGITS_MAX));
}

/* One level: what it holds is `inner`, or where there is none, nothing. */
static uint32_t container(struct grammar *grammar, uint32_t from, bool object, uint32_t inner)
{
    uint32_t open = grammar_word(grammar, from, object ? "{" : "[");
    uint32_t end = grammar_word(grammar, open, object ? "}" : "]");
    if (inner == GRAMMAR_NONE)
        return end;
    uint32_t member = grammar_node(grammar), at = member;
    grammar_nothing(grammar, open, member);
    if (object)
        at = json_colon(grammar, json_text(grammar, at, 0, GRAMMAR_UNBOUNDED));
    at = grammar_call(grammar, at, GRAMMAR_NONE, inner, 1, 1);
    grammar_nothing(grammar, json_comma(grammar, at), member);
    grammar_bytes(grammar, at, end, object ? '}' : ']', object ? '}' : ']');
    return end;
}

/* Rules level by level from the inmost: so nesting ends. */
static uint32_t any_rule(struct grammar *grammar)
{
    if (grammar->any != GRAMMAR_NONE)
        return grammar->any;
    uint32_t inner = GRAMMAR_NONE;
    for (unsigned level = 0; level < JSON_ANY_DEPTH && !grammar->code; level++) {
        uint32_t rule = grammar_node(grammar), end = grammar_node(grammar);
        grammar_nothing(grammar, json_text(grammar, rule, 0, GRAMMAR_UNBOUNDED), end);
        grammar_nothing(grammar, json_number_any(grammar, rule, false), end);
        grammar_nothing(grammar, grammar_word(grammar, rule, "true"), end);
        grammar_nothing(grammar, grammar_word(grammar, rule, "false"), end);
        grammar_nothing(grammar, grammar_word(grammar, rule, "null"), end);
        grammar_nothing(grammar, container(grammar, rule, false, inner), end);
        grammar_nothing(grammar, container(grammar, rule, true, inner), end);
        grammar_final(grammar, end);
        inner = rule;
    }
    return grammar->any = inner;
}

uint32_t json_any(struct grammar *grammar, uint32_t from)
{
    return grammar_call(grammar, from, GRAMMAR_NONE, any_rule(grammar), 1, 1);
}

uint32_t json_any_object(struct grammar *grammar, uint32_t from)
{
    return container(grammar, from, true, any_rule(grammar));
}
