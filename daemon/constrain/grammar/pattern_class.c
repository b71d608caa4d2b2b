#include "daemon/constrain/grammar/pattern_class.h"

#include <string.h>

bool pattern_sees(const struct pattern_text *in, const char *word)
{
    size_t length = strlen(word);
    return in->length - in->at >= length && !memcmp(in->text + in->at, word, length);
}

bool pattern_take(struct pattern_text *in, const char *word)
{
    if (!pattern_sees(in, word))
        return false;
    in->at += strlen(word);
    return true;
}

bool pattern_refuse(struct pattern_text *in, const char *what)
{
    grammar_fail(in->grammar, ERR_UNSUPPORTED, "%s: at byte %zu: %s", in->path, in->at, what);
    return false;
}

static void add_named(struct character_set *set, char name)
{
    static const struct character_range spaces[] = {
        {'\t', '\r'},     {' ', ' '},       {0xa0, 0xa0},     {0x1680, 0x1680}, {0x2000, 0x200a},
        {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f}, {0x3000, 0x3000}, {0xfeff, 0xfeff}};
    struct character_set named = {0};
    switch (name | 0x20) {
    case 'w':
        character_add(&named, 'A', 'Z');
        character_add(&named, 'a', 'z');
        character_add(&named, '_', '_');
        /* fall through */
    case 'd':
        character_add(&named, '0', '9');
        break;
    default:
        for (unsigned i = 0; i < sizeof(spaces) / sizeof(spaces[0]); i++)
            character_add(&named, spaces[i].low, spaces[i].high);
    }
    if (!(name & 0x20))
        character_invert(&named);
    character_merge(set, &named);
}

static const struct {
    char category[3];
    uint32_t low, high;
} unicode[] = {
#define RANGE(category, low, high) {#category, low, high},
#include "daemon/constrain/grammar/unicode.def"
#undef RANGE
};

/* Behind \\p: {Lu} or {L}, or General_Category= before it. A category of Unicode's. */
static bool add_category(struct pattern_text *in, struct character_set *set, bool inverted)
{
    struct character_set found = {0};
    if (!pattern_take(in, "{"))
        return pattern_refuse(in, "\\p without its braces");
    if (!pattern_take(in, "General_Category="))
        pattern_take(in, "gc=");
    size_t begin = in->at, length = 0;
    while (begin + length < in->length && in->text[begin + length] != '}')
        length++;
    bool known =
        length == 2 || (length == 1 && in->text[begin] != 'C'); /* of C some are not here */
    for (size_t i = 0; i < sizeof(unicode) / sizeof(unicode[0]) && known; i++)
        if (!memcmp(unicode[i].category, in->text + begin, length))
            character_add(&found, unicode[i].low, unicode[i].high);
    if (found.count == 0)
        return pattern_refuse(in, "a property of characters that is not known: categories are, "
                                  "such as L, Lu or Nd");
    in->at = begin + length;
    grammar_work(in->grammar, sizeof(unicode) / sizeof(unicode[0]) + found.count * 8);
    if (inverted)
        character_invert(&found);
    character_merge(set, &found);
    return pattern_take(in, "}") || pattern_refuse(in, "\\p without its braces");
}

static bool add_class(struct pattern_text *in, struct character_set *set, char name)
{
    if ((name | 0x20) == 'p')
        return add_category(in, set, name == 'P');
    add_named(set, name);
    return true;
}

static bool hex(struct pattern_text *in, unsigned digits, uint32_t *ret_value)
{
    uint32_t value = 0;
    for (unsigned i = 0; i < digits; i++, in->at++) {
        const char *found = in->at < in->length && in->text[in->at]
                                ? strchr("0123456789abcdef", in->text[in->at] | 0x20)
                                : NULL;
        if (!found || (in->text[in->at] < 'A' && in->text[in->at] > '9') || in->text[in->at] < '0')
            return pattern_refuse(in, "an escape without its digits");
        value = value << 4 | (uint32_t)(found - "0123456789abcdef");
    }
    *ret_value = value;
    return true;
}

static bool braced(struct pattern_text *in, uint32_t *ret_value)
{
    uint32_t value = 0, digit = 0;
    do {
        if (!hex(in, 1, &digit))
            return false;
        if ((value = value << 4 | digit) > CHARACTER_MAX)
            return pattern_refuse(in, "a character beyond Unicode");
    } while (!pattern_take(in, "}"));
    *ret_value = value;
    return true;
}

static bool unicode_escape(struct pattern_text *in, uint32_t *ret_value)
{
    uint32_t high, low;
    if (pattern_take(in, "{"))
        return braced(in, ret_value);
    if (!hex(in, 4, &high))
        return false;
    if (high >= 0xd800 && high < 0xdc00 && pattern_take(in, "\\u")) {
        if (!hex(in, 4, &low))
            return false;
        if (low < 0xdc00 || low > 0xdfff)
            return pattern_refuse(in, "half a surrogate pair");
        high = 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
    }
    if (high >= 0xd800 && high <= 0xdfff)
        return pattern_refuse(in, "half a surrogate pair");
    *ret_value = high;
    return true;
}

/* Behind a backslash: a class (*ret_class) or a character. */
static bool escape(struct pattern_text *in, bool in_class, uint32_t *ret_value, char *ret_class)
{
    static const char *const names = "tnvfr", *const meant = "\t\n\v\f\r";
    if (in->at == in->length)
        return pattern_refuse(in, "a backslash at the end");
    char name = in->text[in->at++];
    const char *found = name ? strchr(names, name) : NULL;
    *ret_class = 0;
    if (found)
        *ret_value = (uint32_t)meant[found - names];
    else if (name && strchr("dDwWsSpP", name))
        *ret_class = name;
    else if (name == 'x')
        return hex(in, 2, ret_value);
    else if (name == 'u')
        return unicode_escape(in, ret_value);
    else if (name == 'b' && in_class)
        *ret_value = '\b';
    else if (name == '0' &&
             (in->at == in->length || in->text[in->at] < '0' || in->text[in->at] > '9'))
        *ret_value = 0;
    else if (name == 'c' && in->at < in->length && (in->text[in->at] | 0x20) >= 'a' &&
             (in->text[in->at] | 0x20) <= 'z')
        *ret_value = (uint32_t)in->text[in->at++] & 31;
    else if (name == 'b' || name == 'B')
        return in->at--, pattern_refuse(in, "\\b, a word's boundary, is not supported");
    else if ((name >= '0' && name <= '9') || ((name | 0x20) >= 'a' && (name | 0x20) <= 'z'))
        return in->at--, pattern_refuse(in, "an escape that is not known here");
    else
        return in->at--, character_next(in->text, in->length, &in->at, ret_value) ||
                             pattern_refuse(in, "no valid UTF-8");
    return true;
}

/* An end of a range in brackets, or a class there. */
static bool member(struct pattern_text *in, uint32_t *ret_value, char *ret_class)
{
    *ret_class = 0;
    if (pattern_take(in, "\\"))
        return escape(in, true, ret_value, ret_class);
    return character_next(in->text, in->length, &in->at, ret_value) ||
           pattern_refuse(in, "a class without its end");
}

static bool brackets(struct pattern_text *in, struct character_set *set)
{
    bool inverted = pattern_take(in, "^");
    while (!pattern_take(in, "]")) {
        uint32_t low, high;
        char named, other = 0;
        if (!member(in, &low, &named))
            return false;
        if (named) {
            if (!add_class(in, set, named))
                return false;
            continue;
        }
        high = low;
        if (pattern_sees(in, "-") && !pattern_sees(in, "-]") && pattern_take(in, "-") &&
            !member(in, &high, &other))
            return false;
        if (other || high < low)
            return pattern_refuse(in, "a range without an order");
        character_add(set, low, high);
    }
    if (inverted)
        character_invert(set);
    return true;
}

bool pattern_character_set(struct pattern_text *in, struct character_set *set)
{
    uint32_t value = 0;
    char named = 0;
    if (pattern_take(in, "["))
        return brackets(in, set);
    if (pattern_take(in, ".")) {
        character_add(set, '\n', '\n');
        character_add(set, '\r', '\r');
        character_add(set, 0x2028, 0x2029);
        character_invert(set);
        return true;
    }
    if (pattern_take(in, "\\")) {
        if (!escape(in, false, &value, &named))
            return false;
    } else if (strchr("*+?{}^$]", in->text[in->at]) && in->text[in->at] != ']' &&
               in->text[in->at] != '}') {
        return pattern_refuse(in, in->text[in->at] == '^' || in->text[in->at] == '$'
                                      ? "an anchor inside the pattern"
                                      : "a quantifier of nothing");
    } else if (!character_next(in->text, in->length, &in->at, &value)) {
        return pattern_refuse(in, "no valid UTF-8");
    }
    if (named)
        return add_class(in, set, named);
    character_add(set, value, value);
    return true;
}
