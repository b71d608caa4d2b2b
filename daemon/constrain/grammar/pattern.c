#include "daemon/constrain/grammar/pattern.h"

#include <string.h>

#include "daemon/constrain/grammar/pattern_class.h"

struct parser {
    struct pattern_text in;
    enum character_form form;
    unsigned depth;
};

static uint32_t alternatives(struct parser *parser, uint32_t from);

static struct grammar *grammar_of(struct parser *parser)
{
    return parser->in.grammar;
}

static bool group(struct parser *parser, uint32_t from, uint32_t *ret_to)
{
    struct pattern_text *in = &parser->in;
    if (pattern_take(in, "?:") || !pattern_sees(in, "?")) {
        /* nothing stands between */
    } else if (pattern_sees(in, "?<") && !pattern_sees(in, "?<=") && !pattern_sees(in, "?<!")) {
        while (in->at < in->length && in->text[in->at] != '>')
            in->at++;
        if (!pattern_take(in, ">"))
            return pattern_refuse(in, "a name without its end");
    } else {
        return pattern_refuse(in, "a group that looks around or sets flags");
    }
    if (++parser->depth > PATTERN_DEPTH_MAX)
        return pattern_refuse(in, "groups nested too deep");
    *ret_to = alternatives(parser, from);
    parser->depth--;
    return pattern_take(in, ")") || pattern_refuse(in, "a group without its end");
}

static bool atom(struct parser *parser, uint32_t from, uint32_t *ret_to)
{
    struct pattern_text *in = &parser->in;
    struct character_set set = {0};
    if (pattern_take(in, "("))
        return group(parser, from, ret_to);
    if (!pattern_character_set(in, &set))
        return false;
    *ret_to = character_edges(grammar_of(parser), from, GRAMMAR_NONE, &set, parser->form);
    return !grammar_of(parser)->code;
}

static bool number(struct pattern_text *in, uint32_t *ret_number)
{
    uint32_t value = 0;
    size_t begin = in->at;
    for (; in->at < in->length && in->text[in->at] >= '0' && in->text[in->at] <= '9'; in->at++)
        if ((value = value * 10 + (uint32_t)(in->text[in->at] - '0')) > GRAMMAR_COUNT_MAX)
            return pattern_refuse(in, "a quantifier that is too large");
    *ret_number = value;
    return in->at > begin;
}

/* 1: one was read; 0: none stands here; -1: refused. */
static int quantifier(struct pattern_text *in, uint32_t *min, uint32_t *max)
{
    *min = 0;
    *max = GRAMMAR_UNBOUNDED;
    if (pattern_take(in, "+")) {
        *min = 1;
    } else if (pattern_take(in, "?")) {
        *max = 1;
    } else if (pattern_take(in, "{")) {
        if (!number(in, min))
            return pattern_refuse(in, "a brace that is no quantifier") - 1;
        *max = *min;
        if (pattern_take(in, ",")) {
            *max = GRAMMAR_UNBOUNDED;
            if (!pattern_sees(in, "}") && !number(in, max))
                return pattern_refuse(in, "a quantifier without its end") - 1;
        }
        if (!pattern_take(in, "}"))
            return pattern_refuse(in, "a quantifier without its end") - 1;
        if (*max < *min)
            return pattern_refuse(in, "a quantifier whose numbers are in the wrong order") - 1;
    } else if (!pattern_take(in, "*")) {
        return 0;
    }
    pattern_take(in, "?"); /* lazy: the same language */
    return 1;
}

static uint32_t repeat(struct grammar *grammar, uint32_t from, uint32_t start, uint32_t end,
                       uint32_t min, uint32_t max)
{
    if (max == GRAMMAR_UNBOUNDED && min <= 1) { /* a circle needs no counting */
        uint32_t hub = grammar_node(grammar);
        grammar_nothing(grammar, from, min ? start : hub);
        grammar_nothing(grammar, hub, start);
        grammar_nothing(grammar, end, hub);
        return hub;
    }
    grammar_final(grammar, end);
    return grammar_call(grammar, from, GRAMMAR_NONE, start, min, max);
}

static bool term(struct parser *parser, uint32_t *from)
{
    struct grammar *grammar = grammar_of(parser);
    uint32_t start = grammar_node(grammar), end = start, min, max;
    if (!atom(parser, start, &end))
        return false;
    int found = quantifier(&parser->in, &min, &max);
    if (found < 0)
        return false;
    if (found) {
        *from = repeat(grammar, *from, start, end, min, max);
    } else {
        grammar_nothing(grammar, *from, start);
        *from = end;
    }
    return !grammar->code;
}

static bool at_end(const struct pattern_text *in)
{
    return in->at == in->length || pattern_sees(in, "|") || pattern_sees(in, ")");
}

static uint32_t alternatives(struct parser *parser, uint32_t from)
{
    struct pattern_text *in = &parser->in;
    uint32_t join = grammar_node(in->grammar);
    do {
        uint32_t at = grammar_node(in->grammar);
        grammar_nothing(in->grammar, from, at);
        while (!at_end(in))
            if (!term(parser, &at))
                return join;
        grammar_nothing(in->grammar, at, join);
    } while (pattern_take(in, "|"));
    return join;
}

static uint32_t anything(struct parser *parser, uint32_t from)
{
    struct grammar *grammar = grammar_of(parser);
    struct character_set all = {.ranges = {{0, CHARACTER_MAX}}, .count = 1};
    uint32_t hub = grammar_node(grammar);
    grammar_nothing(grammar, from, hub);
    character_edges(grammar, hub, hub, &all, parser->form);
    return hub;
}

uint32_t pattern_build(struct grammar *grammar, uint32_t from, const char *pattern, size_t length,
                       enum pattern_place place, enum character_form form, const char *path)
{
    struct parser parser = {
        .in = {.text = pattern, .length = length, .path = path, .grammar = grammar}, .form = form};
    struct pattern_text *in = &parser.in;
    uint32_t join = grammar_node(grammar);
    if (length > PATTERN_MAX)
        grammar_fail(grammar, ERR_TOO_LARGE, "%s: a pattern of more than %u bytes", path,
                     PATTERN_MAX);
    if (grammar->code)
        return join;
    do {
        uint32_t at = grammar_node(grammar);
        bool held = pattern_take(in, "^") || place == PATTERN_WHOLE;
        grammar_nothing(grammar, from, at);
        if (!held)
            at = anything(&parser, at);
        while (!at_end(in) && !pattern_sees(in, "$"))
            if (!term(&parser, &at))
                return join;
        held = pattern_take(in, "$") || place == PATTERN_WHOLE;
        grammar_nothing(grammar, held ? at : anything(&parser, at), join);
    } while (pattern_take(in, "|"));
    if (in->at < length)
        pattern_refuse(in, pattern_sees(in, ")") ? "a bracket without its beginning"
                                                 : "an anchor inside the pattern");
    return join;
}
