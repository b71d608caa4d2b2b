#include "gpu/models/quantization/name_pattern.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define ATOMS_MAX 64

/* What one character may be, and how often. */
struct atom {
    uint32_t set[8];
    bool skipped, again; /* none will do; any number will */
};

struct pattern {
    struct atom atoms[ATOMS_MAX];
    uint32_t count;
    bool ends; /* the name's end as well */
};

static void set_add(struct atom *atom, unsigned char c)
{
    atom->set[c / 32] |= 1u << c % 32;
}

static bool set_has(const struct atom *atom, unsigned char c)
{
    return atom->set[c / 32] >> c % 32 & 1;
}

static bool class_add(struct atom *atom, char class)
{
    for (unsigned c = 1; c < 128; c++)
        if (class == 'd' ? isdigit((int)c) : isalnum((int)c) || c == '_')
            set_add(atom, (unsigned char)c);
    return class == 'd' || class == 'w';
}

/* What stands behind a backslash. */
static bool escape_add(struct atom *atom, char c)
{
    if (isalnum((unsigned char)c))
        return class_add(atom, c);
    set_add(atom, (unsigned char)c);
    return c != '\0';
}

/* "[...]"; *at is behind the bracket that opens, and then behind the one that closes. */
static bool set_read(const char **at, struct atom *atom)
{
    const char *p = *at;
    bool not = *p == '^';
    p += not ;
    do {
        unsigned char from = (unsigned char)*p, to = from;
        if (!from || from == '[')
            return false;
        if (from == '\\') {
            if (!escape_add(atom, p[1]))
                return false;
            p += 2;
            continue;
        }
        if (p[1] == '-' && p[2] && p[2] != ']') {
            to = (unsigned char)p[2];
            p += 2;
        }
        for (unsigned c = from; c <= to; c++)
            set_add(atom, (unsigned char)c);
        p++;
    } while (*p != ']');
    for (int i = 0; not &&i < 8; i++)
        atom->set[i] = ~atom->set[i];
    *at = p + 1;
    return true;
}

static bool atom_read(const char **at, struct atom *atom)
{
    char c = *(*at)++;
    if (c == '.') {
        memset(atom->set, 0xff, sizeof atom->set);
        return true;
    }
    if (c == '\\')
        return escape_add(atom, *(*at)++);
    if (c == '[')
        return set_read(at, atom);
    if (strchr("*+?(){}|^$]", c))
        return false;
    set_add(atom, (unsigned char)c);
    return true;
}

/* Of a pattern without cases. */
static bool pattern_read(const char *text, struct pattern *ret)
{
    *ret = (struct pattern){.count = 0};
    text += *text == '^';
    while (*text) {
        struct atom *atom = &ret->atoms[ret->count];
        if (!strcmp(text, "$")) {
            ret->ends = true;
            return true;
        }
        if (ret->count == ATOMS_MAX - 1 || !atom_read(&text, atom))
            return false;
        atom->skipped = *text == '*' || *text == '?';
        atom->again = *text == '*' || *text == '+';
        text += atom->skipped || atom->again;
        if (*text && strchr("*+?{", *text))
            return false;
        ret->count++;
    }
    return true;
}

/* Bit i: atoms before i have been met. */
static uint64_t skipped_add(const struct pattern *pattern, uint64_t states)
{
    for (uint32_t i = 0; i < pattern->count; i++)
        if ((states >> i & 1) && pattern->atoms[i].skipped)
            states |= 2ull << i;
    return states;
}

static bool pattern_matches(const struct pattern *pattern, const char *name)
{
    uint64_t states = skipped_add(pattern, 1);
    for (; *name; name++) {
        if (!pattern->ends && (states >> pattern->count & 1))
            return true;
        uint64_t next = 0;
        for (uint32_t i = 0; i < pattern->count; i++) {
            if (!(states >> i & 1) || !set_has(&pattern->atoms[i], (unsigned char)*name))
                continue;
            next |= 2ull << i;
            if (pattern->atoms[i].again)
                next |= 1ull << i;
        }
        states = skipped_add(pattern, next);
    }
    return states >> pattern->count & 1;
}

/* From what was met once more an atom that may come again is left as well. */
static const char *skip_one(const char *p)
{
    if (*p == '\\')
        return p[1] ? p + 2 : p + 1;
    if (*p != '[')
        return p + 1;
    const char *end = strchr(p[1] ? p + 2 : p + 1, ']');
    return end ? end + 1 : p + strlen(p);
}

/* The next `(`, `)` or `|` outside of sets, or the end. */
static const char *mark_next(const char *p)
{
    while (*p && !strchr("()|", *p))
        p = skip_one(p);
    return p;
}

struct cases {
    const char *name;
    int left;
};

static int cases_match(struct cases *cases, const char *pattern);

/* One of the cases between `from` and `end`, with what stands before and behind. */
static int case_match(struct cases *cases, const char *pattern, size_t before, const char *from,
                      const char *end, const char *behind)
{
    char text[NAME_PATTERN_MAX + 1];
    int length = snprintf(text, sizeof text, "%.*s%.*s%s", (int)before, pattern, (int)(end - from),
                          from, behind);
    return length > NAME_PATTERN_MAX ? -1 : cases_match(cases, text);
}

/* The group that opens at `from`, or the whole pattern where there is none but "|". */
static int group_match(struct cases *cases, const char *pattern, const char *from)
{
    bool group = *from == '(';
    const char *first = group ? from + 1 : pattern, *close = first, *at = first;
    bool found = false;
    if (group && !strncmp(first, "?:", 2))
        at = first = first + 2;
    while (*(close = mark_next(close)) == '|')
        close++;
    if (*close != (group ? ')' : '\0') || (group && close[1] && strchr("*+?{", close[1])))
        return -1;
    const char *behind = group ? close + 1 : close;
    while (at <= close) {
        const char *end = mark_next(at);
        int matched =
            case_match(cases, pattern, group ? (size_t)(from - pattern) : 0, at, end, behind);
        if (matched < 0)
            return -1;
        found = found || matched;
        at = end + 1;
    }
    return found;
}

static int cases_match(struct cases *cases, const char *pattern)
{
    struct pattern read;
    const char *mark = mark_next(pattern);
    if (cases->left-- <= 0)
        return -1;
    if (*mark == ')')
        return -1;
    if (*mark == '|')
        return group_match(cases, pattern, pattern);
    if (*mark == '(')
        return group_match(cases, pattern, mark);
    return pattern_read(pattern, &read) ? pattern_matches(&read, cases->name) : -1;
}

int name_pattern_cases(const char *pattern)
{
    struct cases cases = {.name = "", .left = NAME_PATTERN_CASES};
    bool read = strlen(pattern) <= NAME_PATTERN_MAX && cases_match(&cases, pattern) >= 0;
    return read ? NAME_PATTERN_CASES - cases.left : -1;
}

int name_pattern_match(const char *pattern, const char *name)
{
    struct cases cases = {.name = name, .left = NAME_PATTERN_CASES};
    return strlen(pattern) > NAME_PATTERN_MAX ? -1 : cases_match(&cases, pattern);
}
