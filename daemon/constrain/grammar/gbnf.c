#include "daemon/constrain/grammar/gbnf.h"

#include <stdlib.h>
#include <string.h>

#define SLOTS (GBNF_RULES_MAX * 2)

struct rule {
    size_t name, length; /* where it stands in the text */
    uint32_t node;
    bool defined;
};

struct reader {
    struct grammar *grammar;
    const char *text;
    size_t length, at;
    struct rule *rules;
    uint32_t *slots; /* by name's hash: a rule, or GRAMMAR_NONE */
    uint32_t used;
    unsigned depth;
};

static uint32_t alternatives(struct reader *in, uint32_t from);

static bool refuse(struct reader *in, const char *what)
{
    size_t line = 1, begin = 0;
    for (size_t i = 0; i < in->at && i < in->length; i++)
        if (in->text[i] == '\n') {
            line++;
            begin = i + 1;
        }
    grammar_fail(in->grammar, ERR_UNSUPPORTED, "grammar: line %zu, column %zu: %s", line,
                 in->at - begin + 1, what);
    return false;
}

static char next(const struct reader *in)
{
    return in->at < in->length ? in->text[in->at] : 0;
}

static bool take(struct reader *in, const char *word)
{
    size_t length = strlen(word);
    if (in->length - in->at < length || memcmp(in->text + in->at, word, length))
        return false;
    in->at += length;
    return true;
}

/* Blanks and comments; line ends only where a rule goes on behind them. */
static void space(struct reader *in, bool lines)
{
    for (; in->at < in->length; in->at++) {
        char byte = next(in);
        if (byte == '#')
            while (in->at + 1 < in->length && in->text[in->at + 1] != '\n' &&
                   in->text[in->at + 1] != '\r')
                in->at++;
        else if (byte != ' ' && byte != '\t' && !(lines && (byte == '\n' || byte == '\r')))
            return;
    }
}

static bool is_word(char byte)
{
    return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || byte == '-' ||
           byte == '_' || (byte >= '0' && byte <= '9');
}

/* Of the name that stands here, made where it is new; NULL: none, or too many. */
static struct rule *named(struct reader *in)
{
    size_t begin = in->at;
    uint32_t hash = 2166136261u;
    for (; is_word(next(in)); in->at++)
        hash = (hash ^ (uint8_t)next(in)) * 16777619u;
    size_t length = in->at - begin;
    if (length == 0) {
        refuse(in, "a rule's name is missing");
        return NULL;
    }
    for (uint32_t slot = hash % SLOTS;; slot = (slot + 1) % SLOTS) {
        if (in->slots[slot] != GRAMMAR_NONE) {
            struct rule *known = &in->rules[in->slots[slot]];
            if (known->length == length &&
                !memcmp(in->text + known->name, in->text + begin, length))
                return known;
            continue;
        }
        if (in->used == GBNF_RULES_MAX) {
            grammar_fail(in->grammar, ERR_TOO_LARGE, "grammar: more than %u rules", GBNF_RULES_MAX);
            return NULL;
        }
        in->slots[slot] = in->used;
        in->rules[in->used] = (struct rule){begin, length, grammar_node(in->grammar), false};
        return &in->rules[in->used++];
    }
}

static bool hex(struct reader *in, unsigned digits, uint32_t *ret_value)
{
    uint32_t value = 0;
    for (unsigned i = 0; i < digits; i++, in->at++) {
        char byte = next(in);
        uint32_t digit = byte >= '0' && byte <= '9' ? (uint32_t)(byte - '0')
                         : (byte | 0x20) >= 'a' && (byte | 0x20) <= 'f'
                             ? (uint32_t)(byte | 0x20) - 'a' + 10
                             : 16;
        if (digit == 16)
            return refuse(in, "an escape without its digits");
        value = value << 4 | digit;
    }
    *ret_value = value;
    return (value <= CHARACTER_MAX && (value < 0xd800 || value > 0xdfff)) ||
           refuse(in, "an escape of no character");
}

static bool character(struct reader *in, uint32_t *ret_value)
{
    static const char *const names = "nrt\\\"[]-^", *const meant = "\n\r\t\\\"[]-^";
    if (!take(in, "\\"))
        return character_next(in->text, in->length, &in->at, ret_value) ||
               refuse(in,
                      in->at == in->length ? "a text or class without its end" : "no valid UTF-8");
    if (take(in, "x"))
        return hex(in, 2, ret_value);
    if (take(in, "u"))
        return hex(in, 4, ret_value);
    if (take(in, "U"))
        return hex(in, 8, ret_value);
    const char *found = next(in) ? strchr(names, next(in)) : NULL;
    if (!found)
        return refuse(in, "an escape that is not known here");
    in->at++;
    *ret_value = (uint32_t)meant[found - names];
    return true;
}

static bool quoted(struct reader *in, uint32_t *at)
{
    while (!take(in, "\"")) {
        struct character_set one;
        uint32_t value;
        if (!character(in, &value))
            return false;
        character_none(&one);
        character_add(&one, value, value);
        *at = character_bytes(in->grammar, *at, GRAMMAR_NONE, &one, CHARACTER_BARE);
    }
    return true;
}

static bool class(struct reader *in, uint32_t *at)
{
    struct character_set set;
    bool inverted = take(in, "^");
    character_none(&set);
    while (!take(in, "]")) {
        uint32_t low, high;
        if (!character(in, &low))
            return false;
        high = low;
        if (next(in) == '-' && in->at + 1 < in->length && in->text[in->at + 1] != ']') {
            in->at++;
            if (!character(in, &high))
                return false;
        }
        if (high < low)
            return refuse(in, "a range without an order");
        character_add(&set, low, high);
    }
    if (inverted)
        character_invert(&set);
    *at = character_edges(in->grammar, *at, GRAMMAR_NONE, &set, CHARACTER_BARE);
    return true;
}

static bool number(struct reader *in, uint32_t *ret_number)
{
    size_t begin = in->at;
    uint32_t value = 0;
    for (; next(in) >= '0' && next(in) <= '9'; in->at++)
        if ((value = value * 10 + (uint32_t)(next(in) - '0')) > GRAMMAR_COUNT_MAX)
            return refuse(in, "a repetition that is too large");
    *ret_number = value;
    return in->at > begin;
}

static bool braces(struct reader *in, uint32_t *min, uint32_t *max)
{
    space(in, true);
    if (!number(in, min))
        return refuse(in, "braces without a number");
    space(in, true);
    *max = *min;
    if (take(in, ",")) {
        *max = GRAMMAR_UNBOUNDED;
        space(in, true);
        if (next(in) != '}' && !number(in, max))
            return refuse(in, "braces without their end");
        space(in, true);
    }
    if (!take(in, "}"))
        return refuse(in, "braces without their end");
    return *max >= *min || refuse(in, "braces whose numbers are in the wrong order");
}

/* What repeats the symbol between two nodes, several times over where several stand there. */
static bool repeated(struct reader *in, uint32_t *from, uint32_t start, uint32_t end)
{
    for (bool first = true;; first = false) {
        uint32_t min = 0, max = GRAMMAR_UNBOUNDED;
        space(in, in->depth > 0);
        if (take(in, "+"))
            min = 1;
        else if (take(in, "?"))
            max = 1;
        else if (take(in, "{")) {
            if (!braces(in, &min, &max))
                return false;
        } else if (!take(in, "*")) {
            if (first)
                grammar_nothing(in->grammar, *from, start);
            *from = end;
            return true;
        }
        if (!first)
            return refuse(in, "a repetition of a repetition: put it into brackets");
        end = grammar_repeat(in->grammar, *from, start, end, min, max);
    }
}

static bool group(struct reader *in, uint32_t *at)
{
    if (++in->depth > GBNF_DEPTH_MAX)
        return refuse(in, "groups nested too deep");
    space(in, true);
    *at = alternatives(in, *at);
    in->depth--;
    return in->grammar->code == 0 && (take(in, ")") || refuse(in, "a group without its end"));
}

static bool symbol(struct reader *in, uint32_t *from)
{
    uint32_t start = grammar_node(in->grammar), end = start;
    bool right = true;
    if (take(in, "\"")) {
        right = quoted(in, &end);
    } else if (take(in, "[")) {
        right = class(in, &end);
    } else if (take(in, "(")) {
        right = group(in, &end);
    } else if (take(in, ".")) {
        struct character_set all = {.ranges = {{0, CHARACTER_MAX}}, .count = 1};
        end = character_edges(in->grammar, end, GRAMMAR_NONE, &all, CHARACTER_BARE);
    } else if (next(in) == '<' || next(in) == '!') {
        right = refuse(in, "tokens (<...>) are not supported: a grammar speaks of characters");
    } else {
        const struct rule *rule = named(in);
        right = rule != NULL;
        if (rule)
            end = grammar_call(in->grammar, end, GRAMMAR_NONE, rule->node, 1, 1);
    }
    return right && repeated(in, from, start, end) && in->grammar->code == 0;
}

static bool at_end(const struct reader *in)
{
    char byte = next(in);
    return in->at == in->length || byte == '|' || byte == ')' || byte == '\n' || byte == '\r';
}

static uint32_t alternatives(struct reader *in, uint32_t from)
{
    uint32_t join = grammar_node(in->grammar);
    do {
        uint32_t at = grammar_node(in->grammar);
        grammar_nothing(in->grammar, from, at);
        space(in, true);
        while (!at_end(in))
            if (!symbol(in, &at))
                return join;
        grammar_nothing(in->grammar, at, join);
    } while (take(in, "|"));
    return join;
}

static bool one_rule(struct reader *in)
{
    struct rule *rule = named(in);
    if (!rule)
        return false;
    if (rule->defined)
        return refuse(in, "a rule that is there twice");
    rule->defined = true;
    uint32_t node = rule->node;
    space(in, false);
    if (!take(in, "::="))
        return refuse(in, next(in) == ':' ? "::= is missing: grammars are GBNF, not Lark's form"
                                          : "::= is missing");
    grammar_final(in->grammar, alternatives(in, node));
    if (in->grammar->code)
        return false;
    if (in->at < in->length && next(in) != '\n' && next(in) != '\r')
        return refuse(in, "a bracket without its beginning");
    space(in, true);
    return true;
}

static void check_rules(struct reader *in)
{
    for (uint32_t i = 0; i < in->used; i++)
        if (!in->rules[i].defined) {
            int shown = in->rules[i].length > 60 ? 60 : (int)in->rules[i].length;
            grammar_fail(in->grammar, ERR_UNSUPPORTED, "grammar: there is no rule \"%.*s\"", shown,
                         in->text + in->rules[i].name);
        }
}

uint32_t gbnf_build(struct grammar *grammar, uint32_t from, const char *text, size_t length)
{
    static const char root_name[] = "root";
    struct reader in = {.grammar = grammar,
                        .text = text,
                        .length = length,
                        .rules = malloc(GBNF_RULES_MAX * sizeof(struct rule)),
                        .slots = malloc(SLOTS * sizeof(uint32_t))};
    uint32_t root = GRAMMAR_NONE;
    if (!in.rules || !in.slots) {
        grammar_fail(grammar, ERR_NO_MEMORY, "no memory for a constraint");
    } else {
        memset(in.slots, 0xff, SLOTS * sizeof(uint32_t));
        space(&in, true);
        while (in.at < length && one_rule(&in))
            ;
        if (!grammar->code)
            check_rules(&in);
        for (uint32_t i = 0; i < in.used; i++)
            if (in.rules[i].length == 4 && !memcmp(text + in.rules[i].name, root_name, 4))
                root = in.rules[i].node;
        if (root == GRAMMAR_NONE)
            grammar_fail(grammar, ERR_UNSUPPORTED, "grammar: there is no rule \"root\"");
    }
    free(in.rules);
    free(in.slots);
    return grammar->code ? from : grammar_call(grammar, from, GRAMMAR_NONE, root, 1, 1);
}
