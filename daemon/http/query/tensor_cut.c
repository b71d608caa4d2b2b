#include "daemon/http/query/tensor_cut.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct scan {
    const char *at, *end;
    struct tensor_cut *cuts;
    uint32_t count, max;
    bool over;
};

static void skip_space(struct scan *scan)
{
    while (scan->at < scan->end && strchr(" \t\r\n", *scan->at) && *scan->at)
        scan->at++;
}

static bool take(struct scan *scan, char c)
{
    skip_space(scan);
    if (scan->at == scan->end || *scan->at != c)
        return false;
    scan->at++;
    return true;
}

/* Behind the string that begins here. */
static bool skip_string(struct scan *scan)
{
    if (!take(scan, '"'))
        return false;
    for (; scan->at < scan->end; scan->at++) {
        if (*scan->at == '"') {
            scan->at++;
            return true;
        }
        if (*scan->at == '\\' && ++scan->at == scan->end)
            return false;
    }
    return false;
}

/* Behind the value that begins here, whatever it is. */
static bool skip_value(struct scan *scan)
{
    size_t depth = 0;
    do {
        skip_space(scan);
        if (scan->at == scan->end)
            return false;
        char c = *scan->at;
        if (c == '"') {
            if (!skip_string(scan))
                return false;
            continue;
        }
        if (depth == 0 && (c == ',' || c == '}' || c == ']'))
            return false; /* there is no value */
        if (c == '[' || c == '{')
            depth++;
        else if (c == ']' || c == '}')
            depth--;
        scan->at++;
        /* A word or a number, to its end. */
        while (depth == 0 && !strchr("[]{}", c) && scan->at < scan->end &&
               !strchr(",]} \t\r\n", *scan->at))
            scan->at++;
    } while (depth > 0);
    return true;
}

/* The next member's key, written plainly; NULL at the object's end, or where it is none. */
static const char *next_key(struct scan *scan, bool first, size_t *ret_length)
{
    if (!first && !take(scan, ','))
        return NULL;
    skip_space(scan);
    const char *key = scan->at + 1;
    if (!skip_string(scan))
        return NULL;
    *ret_length = (size_t)(scan->at - 1 - key);
    return take(scan, ':') ? key : NULL;
}

static bool is(const char *key, size_t length, const char *name)
{
    return length == strlen(name) && memcmp(key, name, length) == 0;
}

static bool scan_data(struct scan *scan)
{
    skip_space(scan);
    const char *start = scan->at;
    bool array = start < scan->end && *start == '[';
    if (!skip_value(scan))
        return false;
    if (!array)
        return true;
    scan->over = scan->count == scan->max;
    if (scan->over)
        return false;
    scan->cuts[scan->count++] = (struct tensor_cut){start, (size_t)(scan->at - start)};
    return true;
}

/* An object of inputs. */
static bool scan_input(struct scan *scan)
{
    const char *key;
    size_t length;
    if (!take(scan, '{'))
        return false;
    for (bool first = true; (key = next_key(scan, first, &length)); first = false)
        if (!(is(key, length, "data") ? scan_data(scan) : skip_value(scan)))
            return false;
    return take(scan, '}');
}

static bool scan_inputs(struct scan *scan)
{
    if (!take(scan, '['))
        return skip_value(scan);
    for (bool first = true; first || take(scan, ','); first = false)
        if (!scan_input(scan))
            return false;
    return take(scan, ']');
}

static void scan_body(struct scan *scan)
{
    const char *key;
    size_t length;
    if (!take(scan, '{'))
        return;
    for (bool first = true; (key = next_key(scan, first, &length)); first = false)
        if (!(is(key, length, "inputs") ? scan_inputs(scan) : skip_value(scan)))
            return;
}

int tensor_cut(const char *body, size_t length, struct tensor_cut *cuts, uint32_t max,
               uint32_t *ret_count, char **ret_text, size_t *ret_length, struct error *error)
{
    struct scan scan = {.at = body, .end = body + length, .cuts = cuts, .max = max};
    scan_body(&scan);
    if (scan.over)
        return error_limit(error, ERR_TOO_LARGE, max, max + 1,
                           "inputs has more than %" PRIu32 " arrays of data", max);
    char *text = malloc(length + 4 * (size_t)max + 1), *to = text;
    if (!text)
        return error_set(error, ERR_NO_MEMORY, "no memory for a body of %zu bytes", length);
    const char *from = body;
    for (uint32_t i = 0; i < scan.count; i++) {
        size_t between = (size_t)(cuts[i].text - from);
        memcpy(to, from, between);
        memcpy(to + between, "null", 4);
        to += between + 4;
        from = cuts[i].text + cuts[i].length;
    }
    memcpy(to, from, (size_t)(body + length - from));
    *ret_length = (size_t)(to - text) + (size_t)(body + length - from);
    *ret_text = text;
    *ret_count = scan.count;
    return 0;
}
