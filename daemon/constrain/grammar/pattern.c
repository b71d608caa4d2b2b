#include "daemon/constrain/grammar/pattern.h"

#include <string.h>

#include "daemon/constrain/grammar/json_rules.h"
#include "daemon/constrain/grammar/pattern_class.h"

struct parser {
    struct pattern_text in;
    enum character_form form;
    unsigned depth;
    /* Where the text begins and ends, and the same with anything before and behind. */
    uint32_t begin, floating, end;
};

/* Where a group stands in the pattern: only at the ends of all it says are ^ and $ the text's. */
struct place {
    uint32_t from; /* GRAMMAR_NONE: nothing was read yet, so that ^ may come */
    bool last;     /* nothing follows, so that $ may come */
};

static uint32_t alternatives(struct parser *parser, struct place place);

static struct grammar *grammar_of(struct parser *parser)
{
    return parser->in.grammar;
}

static bool group(struct parser *parser, struct place place, uint32_t *ret_to)
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
    *ret_to = alternatives(parser, place);
    parser->depth--;
    return pattern_take(in, ")") || pattern_refuse(in, "a group without its end");
}

/* In a function of its own: groups within groups do not each hold a set, which is large. */
__attribute__((noinline)) static bool single(struct parser *parser, uint32_t from, uint32_t *ret_to)
{
    struct pattern_text *in = &parser->in;
    struct character_set set;
    character_none(&set);
    if (!pattern_character_set(in, &set))
        return false;
    *ret_to = character_edges(grammar_of(parser), from, GRAMMAR_NONE, &set, parser->form);
    return !grammar_of(parser)->code;
}

static bool atom(struct parser *parser, uint32_t from, uint32_t *ret_to)
{
    if (pattern_take(&parser->in, "("))
        return group(parser, (struct place){from, false}, ret_to);
    return single(parser, from, ret_to);
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
        *from = grammar_repeat(grammar, *from, start, end, min, max);
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

/* Behind the bracket that closes the group which begins here. */
static size_t behind_group(const struct pattern_text *in)
{
    size_t open = 0;
    bool in_class = false;
    for (size_t at = in->at; at < in->length; at++) {
        char byte = in->text[at];
        if (byte == '\\')
            at++;
        else if (in_class || byte == '[')
            in_class = byte != ']';
        else if (byte == '(')
            open++;
        else if (byte == ')' && --open == 0)
            return at + 1;
    }
    return in->length;
}

/* A group that nothing repeats, at either end of all that its surroundings say, may hold anchors.
 * False: none such stands here. */
static bool end_group(struct parser *parser, struct place *place)
{
    struct pattern_text *in = &parser->in, behind = *in;
    if (!pattern_sees(in, "("))
        return false;
    behind.at = behind_group(in);
    bool last = place->last && at_end(&behind);
    if ((behind.at < in->length && strchr("*+?{", in->text[behind.at])) ||
        (place->from != GRAMMAR_NONE && !last))
        return false;
    in->at++;
    uint32_t to = place->from;
    place->from = group(parser, (struct place){place->from, last}, &to) ? to : parser->end;
    return true;
}

static bool takes_end(struct pattern_text *in)
{
    size_t before = in->at;
    if (pattern_take(in, "$") && at_end(in))
        return true;
    in->at = before;
    return false;
}

/* Up to the end of one alternative; GRAMMAR_NONE: it ended with the text. */
static uint32_t alternative(struct parser *parser, struct place place)
{
    struct pattern_text *in = &parser->in;
    while (!in->grammar->code) {
        if (place.from == GRAMMAR_NONE && pattern_take(in, "^")) {
            place.from = grammar_node(in->grammar);
            grammar_nothing(in->grammar, parser->begin, place.from);
            continue;
        }
        if (place.last && takes_end(in)) {
            grammar_nothing(in->grammar, place.from == GRAMMAR_NONE ? parser->floating : place.from,
                            parser->end);
            return GRAMMAR_NONE;
        }
        if (at_end(in))
            break;
        if (end_group(parser, &place))
            continue;
        if (place.from == GRAMMAR_NONE) {
            place.from = grammar_node(in->grammar);
            grammar_nothing(in->grammar, parser->floating, place.from);
        }
        if (!term(parser, &place.from))
            break;
    }
    return place.from == GRAMMAR_NONE ? parser->floating : place.from;
}

static uint32_t alternatives(struct parser *parser, struct place place)
{
    struct pattern_text *in = &parser->in;
    uint32_t join = grammar_node(in->grammar);
    do {
        struct place own = place;
        if (place.from != GRAMMAR_NONE) {
            own.from = grammar_node(in->grammar);
            grammar_nothing(in->grammar, place.from, own.from);
        }
        uint32_t at = alternative(parser, own);
        if (at != GRAMMAR_NONE)
            grammar_nothing(in->grammar, at, join);
    } while (pattern_take(in, "|"));
    return join;
}

static uint32_t anything(struct parser *parser, uint32_t from)
{
    struct grammar *grammar = grammar_of(parser);
    struct character_set all = {.ranges = {{0, CHARACTER_MAX}}, .count = 1};
    if (parser->form == CHARACTER_IN_JSON)
        return grammar_call(grammar, from, GRAMMAR_NONE, json_canonical_rule(grammar), 0,
                            GRAMMAR_UNBOUNDED);
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
    parser.end = grammar_node(grammar);
    if (length > PATTERN_MAX)
        grammar_fail(grammar, ERR_TOO_LARGE, "%s: a pattern of more than %u bytes", path,
                     PATTERN_MAX);
    if (grammar->code)
        return parser.end;
    bool found = place == PATTERN_FOUND;
    parser.begin = from;
    parser.floating = found ? anything(&parser, from) : from;
    uint32_t to = alternatives(&parser, (struct place){GRAMMAR_NONE, true});
    grammar_nothing(grammar, found ? anything(&parser, to) : to, parser.end);
    if (in->at < length)
        pattern_refuse(in, pattern_sees(in, ")") ? "a bracket without its beginning"
                                                 : "an anchor inside the pattern");
    return parser.end;
}
