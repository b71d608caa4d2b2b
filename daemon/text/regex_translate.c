/* Oniguruma's Ruby syntax, as far as pre-tokenizers use it, in PCRE2's words. Each construct that
 * is let through was compared over all code points; case-insensitive groups hold plain ASCII only,
 * since the two differ on letters that fold to several. */
#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "daemon/text/codepoint.h"
#include "daemon/text/regex.h"

#define OUTPUT_MAX ((size_t)64 << 10)
#define DEPTH_MAX 16
#define REPEAT_MAX 1000

#define SPACE                                                                                      \
    "\\x09-\\x0d\\x20\\x85\\xa0\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}"            \
    "\\x{205f}\\x{3000}"
#define NOT_SPACE                                                                                  \
    "\\x00-\\x08\\x0e-\\x1f\\x21-\\x84\\x86-\\x9f\\xa1-\\x{167f}\\x{1681}-\\x{1fff}"               \
    "\\x{200b}-\\x{2027}\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}"                 \
    "\\x{3001}-\\x{10ffff}"
#define WORD "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"

struct translation {
    const char *pattern, *path;
    size_t length, at;
    struct buffer *out;
    struct error *error;
    int code; /* sticky */
    int depth;
    bool caseless[DEPTH_MAX + 1];
    bool lookaround[DEPTH_MAX + 1];
    size_t group_start[DEPTH_MAX + 1];
    char last_letter; /* before `at`, in a case-insensitive group, in lower case */
};

static void refuse(struct translation *t, const char *what)
{
    if (t->code)
        return;
    char shown[12];
    size_t at = t->at < t->length ? t->at : t->length;
    size_t length = t->length - at < 8 ? t->length - at : 8;
    for (size_t i = 0; i < length; i++)
        shown[i] = isprint((unsigned char)t->pattern[at + i]) ? t->pattern[at + i] : '?';
    shown[length] = 0;
    t->code = error_set(t->error, ERR_UNSUPPORTED,
                        "tokenizer.json: %s: %s is not supported (byte %zu, \"%s\")", t->path, what,
                        at, shown);
}

static void put(struct translation *t, const char *text)
{
    if (!t->code && !buffer_append(t->out, text, strlen(text), OUTPUT_MAX))
        t->code = error_set(t->error, ERR_TOO_LARGE, "tokenizer.json: %s: too long", t->path);
}

static int peek(const struct translation *t, size_t ahead)
{
    return t->at + ahead < t->length ? (unsigned char)t->pattern[t->at + ahead] : -1;
}

static bool starts(const struct translation *t, const char *text)
{
    size_t length = strlen(text);
    return t->length - t->at >= length && memcmp(t->pattern + t->at, text, length) == 0;
}

static void put_code(struct translation *t, uint32_t code)
{
    char text[16];
    if (code < 0x80 && isalnum((int)code))
        snprintf(text, sizeof(text), "%c", (int)code);
    else
        snprintf(text, sizeof(text), "\\x{%x}", code);
    put(t, text);
}

/* The properties that were compared: general categories, but C and its parts, which depend on what
 * is assigned; and some scripts. */
static void put_property(struct translation *t)
{
    static const char categories[] = " L Lu Ll Lt Lm Lo M Mn Mc Me N Nd Nl No P Pc Pd Ps Pe Pi Pf "
                                     "Po S Sm Sc Sk So Z Zs Zl Zp ";
    static const char scripts[] =
        " Han Hiragana Katakana Hangul Latin Greek Cyrillic Arabic Hebrew "
        "Thai Devanagari ";
    char name[24], padded[28], text[40];
    size_t start = t->at;
    bool negative = peek(t, 1) == 'P', script;
    const char *end = memchr(t->pattern + t->at, '}', t->length - t->at);
    t->at += 3;
    if (peek(t, 0) == '^') {
        negative = !negative;
        t->at++;
    }
    size_t length = end ? (size_t)(end - t->pattern) - t->at : sizeof(name);
    if (start + 2 >= t->length || t->pattern[start + 2] != '{' || length == 0 ||
        length >= sizeof(name)) {
        refuse(t, "this property");
        return;
    }
    memcpy(name, t->pattern + t->at, length);
    name[length] = 0;
    snprintf(padded, sizeof(padded), " %s ", name);
    script = strstr(scripts, padded) != NULL;
    if (strchr(name, ' ') || (!script && !strstr(categories, padded))) {
        refuse(t, "this property");
        return;
    }
    if (t->caseless[t->depth] && strstr(" Lu Ll Lt ", padded)) {
        refuse(t, "a property of case in a case-insensitive group");
        return;
    }
    snprintf(text, sizeof(text), "\\%c{%s%s}", negative ? 'P' : 'p', script ? "sc:" : "", name);
    put(t, text);
    t->at += length + 1;
}

static uint32_t hex_code(struct translation *t)
{
    size_t digits = 0, digits_max = peek(t, 1) == 'u' ? 4 : 2;
    bool braces = peek(t, 1) == 'x' && peek(t, 2) == '{';
    uint32_t code = 0;
    size_t at = t->at + 2 + braces;
    for (; at < t->length && digits < (braces ? 6 : digits_max); at++, digits++) {
        int c = (unsigned char)t->pattern[at];
        if (!isxdigit(c))
            break;
        code = code * 16 + (uint32_t)(isdigit(c) ? c - '0' : (c | 0x20) - 'a' + 10);
    }
    bool closed = !braces || (at < t->length && t->pattern[at] == '}');
    bool complete = braces ? digits > 0 : digits == digits_max;
    /* \x80 and up are bytes to Oniguruma, not code points. */
    bool byte = !braces && digits_max == 2 && code >= 0x80;
    if (!closed || !complete || byte || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) {
        refuse(t, "this escape");
        return 0;
    }
    t->at = at + braces;
    return code;
}

/* An escape that stands for one code point, or refused. */
static uint32_t escaped_code(struct translation *t)
{
    int c = peek(t, 1);
    static const char names[] = "tnrf", codes[] = "\t\n\r\f";
    const char *known = c > 0 ? strchr(names, c) : NULL;
    if (c == 'x' || c == 'u')
        return hex_code(t);
    if (known) {
        t->at += 2;
        return (unsigned char)codes[known - names];
    }
    if (c == 'v') {
        t->at += 2;
        return 0x0b;
    }
    if (c < 0 || c >= 0x80 || isalnum(c)) {
        refuse(t, "this escape");
        return 0;
    }
    t->at += 2;
    return (uint32_t)c;
}

/* An escape that stands for a set; false when it stands for one code point. */
static bool set_escape(struct translation *t, bool inside)
{
    const char *text = NULL;
    switch (peek(t, 1)) {
    case 'p':
    case 'P':
        put_property(t);
        return true;
    case 's':
        text = inside ? SPACE : "[" SPACE "]";
        break;
    case 'S':
        text = inside ? NOT_SPACE : "[^" SPACE "]";
        break;
    case 'd':
        text = "\\p{Nd}";
        break;
    case 'D':
        text = "\\P{Nd}";
        break;
    case 'w':
        text = inside ? WORD : "[" WORD "]";
        break;
    case 'W':
        if (inside)
            return false;
        text = "[^" WORD "]";
        break;
    default:
        return false;
    }
    t->at += 2;
    put(t, text);
    return true;
}

static uint32_t class_code(struct translation *t)
{
    if (peek(t, 0) == '\\')
        return escaped_code(t);
    uint32_t code = codepoint_next(t->pattern, &t->at);
    if (code >= 0x80 && t->caseless[t->depth])
        refuse(t, "a character beyond ASCII in a case-insensitive group");
    return code;
}

static void translate_class(struct translation *t)
{
    put(t, "[");
    t->at++;
    if (peek(t, 0) == '^') {
        put(t, "^");
        t->at++;
    }
    size_t first = t->at;
    while (!t->code && peek(t, 0) != ']') {
        if (peek(t, 0) < 0 || peek(t, 0) == '[' || starts(t, "&&")) {
            refuse(t, "a class within a class, or one that does not end,");
            return;
        }
        if (peek(t, 0) == '\\' && set_escape(t, true))
            continue;
        uint32_t code = class_code(t);
        put_code(t, code);
        if (peek(t, 0) != '-' || peek(t, 1) == ']' || peek(t, 1) < 0)
            continue;
        t->at++;
        if (peek(t, 0) == '[' || (peek(t, 0) == '\\' && strchr("pPsSdDwW", peek(t, 1)))) {
            refuse(t, "a range that ends with a set");
            return;
        }
        put(t, "-");
        uint32_t last = class_code(t);
        put_code(t, last);
        if (last < code)
            refuse(t, "a range that goes backwards");
    }
    if (t->at == first)
        refuse(t, "an empty class");
    t->at++;
    put(t, "]");
}

static void open_group(struct translation *t)
{
    static const struct {
        const char *text, *put;
        bool caseless, lookaround;
    } kinds[] = {
        {"(?:", "(?:", false, false},  {"(?i:", "(?i:", true, false}, {"(?>", "(?>", false, false},
        {"(?=", "(?=", false, true},   {"(?!", "(?!", false, true},   {"(?<=", "(?<=", false, true},
        {"(?<!", "(?<!", false, true},
    };
    if (t->depth == DEPTH_MAX) {
        refuse(t, "nesting this deep");
        return;
    }
    size_t kind = 0, count = sizeof(kinds) / sizeof(kinds[0]);
    while (kind < count && !starts(t, kinds[kind].text))
        kind++;
    if (kind == count && peek(t, 1) == '?') {
        refuse(t, "this group");
        return;
    }
    t->depth++;
    t->group_start[t->depth] = t->out->length;
    t->caseless[t->depth] = t->caseless[t->depth - 1] || (kind < count && kinds[kind].caseless);
    t->lookaround[t->depth] = kind < count && kinds[kind].lookaround;
    /* Nothing refers back to a group, so a plain one need not be kept. */
    put(t, kind < count ? kinds[kind].put : "(?:");
    t->at += kind < count ? strlen(kinds[kind].text) : 1;
}

/* Letters that some single letter folds to, such as the sharp s: only Oniguruma matches that one.
 */
static void check_folding(struct translation *t, uint32_t code)
{
    static const char pairs[] = " ss st ff fi fl ";
    if (!t->caseless[t->depth])
        return;
    if (code >= 0x80) {
        refuse(t, "a character beyond ASCII in a case-insensitive group");
        return;
    }
    char letter = (char)tolower((int)code), text[5] = {' ', t->last_letter, letter, ' ', 0};
    if (t->last_letter && strstr(pairs, text))
        refuse(t, "this pair of letters in a case-insensitive group");
    t->last_letter = letter;
}

/* {m}, {m,}, {m,n} or {,n}, rewritten with both or one bound; false when it is none. */
static bool interval(struct translation *t, char *text, size_t size, bool *ret_fixed)
{
    unsigned low = 0, high = 0;
    size_t at = t->at + 1, digits = 0;
    for (; at < t->length && isdigit((unsigned char)t->pattern[at]) && digits < 4; at++, digits++)
        low = low * 10 + (unsigned)(t->pattern[at] - '0');
    bool has_low = digits > 0, comma = at < t->length && t->pattern[at] == ',';
    digits = 0;
    for (at += comma; at < t->length && isdigit((unsigned char)t->pattern[at]) && digits < 4;
         at++, digits++)
        high = high * 10 + (unsigned)(t->pattern[at] - '0');
    bool has_high = comma && digits > 0;
    if (at >= t->length || t->pattern[at] != '}' || (!has_low && !has_high) || low > REPEAT_MAX ||
        high > REPEAT_MAX || (has_high && low > high))
        return false;
    if (has_high)
        snprintf(text, size, "{%u,%u}", low, high);
    else
        snprintf(text, size, comma ? "{%u,}" : "{%u}", low);
    *ret_fixed = !comma;
    t->at = at + 1;
    return true;
}

/* What follows an atom that begins at `atom` in the output. */
static void quantify(struct translation *t, size_t atom, bool lookaround)
{
    int c = peek(t, 0);
    bool fixed = false, braces = c == '{';
    char text[24] = {(char)c, 0};
    if (c != '*' && c != '+' && c != '?' && c != '{')
        return;
    t->last_letter = 0;
    if (lookaround) {
        refuse(t, "a repeated lookaround");
        return;
    }
    if (!braces)
        t->at++;
    else if (!interval(t, text, sizeof(text), &fixed)) {
        refuse(t, "this repetition");
        return;
    }
    put(t, text);
    c = peek(t, 0);
    if (c == '?' && fixed) {
        refuse(t, "this repetition");
    } else if (c == '+' && braces) {
        /* To Ruby this is a repetition of the repetition, to PCRE2 a possessive one. */
        if (!buffer_reserve(t->out, 3, OUTPUT_MAX)) {
            refuse(t, "a pattern this long");
            return;
        }
        memmove(t->out->data + atom + 3, t->out->data + atom, t->out->length - atom);
        memcpy(t->out->data + atom, "(?:", 3);
        t->out->length += 3;
        put(t, ")+");
        t->at++;
    } else if (c == '?' || c == '+') {
        put(t, c == '?' ? "?" : "+");
        t->at++;
    }
    c = peek(t, 0);
    if (c == '*' || c == '+' || c == '?' || c == '{')
        refuse(t, "a repeated repetition");
}

static void translate_atom(struct translation *t)
{
    size_t atom = t->out->length;
    int c = peek(t, 0);
    bool lookaround = false;
    if (c == ')') {
        if (t->depth == 0) {
            refuse(t, "a closing parenthesis alone");
            return;
        }
        atom = t->group_start[t->depth];
        lookaround = t->lookaround[t->depth--];
        t->at++;
        put(t, ")");
    } else if (c == '[') {
        translate_class(t);
    } else if (c == '.') {
        t->at++;
        put(t, ".");
    } else if (c == '\\' && set_escape(t, false)) {
        t->last_letter = 0;
    } else if (strchr("*+?{}]", c) && c > 0) {
        refuse(t, "this character here");
    } else {
        uint32_t code = c == '\\' ? escaped_code(t) : codepoint_next(t->pattern, &t->at);
        check_folding(t, code);
        put_code(t, code);
        if (!t->code)
            quantify(t, atom, false);
        return;
    }
    t->last_letter = 0;
    if (!t->code)
        quantify(t, atom, lookaround);
}

int regex_translate(const char *pattern, size_t length, const char *path, struct buffer *out,
                    struct error *error)
{
    struct translation t = {
        .pattern = pattern, .path = path, .length = length, .out = out, .error = error};
    if (length == 0 || length > REGEX_PATTERN_MAX || memchr(pattern, 0, length))
        return error_limit(error, ERR_BAD_MODEL, REGEX_PATTERN_MAX, length,
                           "tokenizer.json: %s: a pattern of 1 to 4096 bytes expected", path);
    while (!t.code && t.at < length) {
        int c = peek(&t, 0);
        if (c == '(') {
            t.last_letter = 0;
            open_group(&t);
        } else if (c == '|' || c == '^' || c == '$') {
            char text[2] = {(char)c, 0};
            t.last_letter = 0;
            t.at++;
            put(&t, text);
            if (peek(&t, 0) >= 0 && strchr("*+?{", peek(&t, 0)))
                refuse(&t, "this repetition");
        } else {
            translate_atom(&t);
        }
    }
    if (!t.code && t.depth > 0)
        refuse(&t, "a group that does not end");
    return t.code;
}
