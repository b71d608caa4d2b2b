#include "daemon/text/stop.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/base/utf8.h"

/* Knuth, Morris, Pratt: border[n] is how much of the string its first n bytes also end with. */
struct pattern {
    size_t length;
    char text[STOP_BYTES_MAX];
    uint16_t border[STOP_BYTES_MAX + 1];
};

struct stop_set {
    size_t count;
    struct pattern patterns[];
};

static_assert(STOP_BYTES_MAX <= UINT16_MAX, "lengths of matches are 16 bits wide");

static uint16_t advance(const struct pattern *pattern, uint16_t matched, char c)
{
    while (matched > 0 && (matched == pattern->length || pattern->text[matched] != c))
        matched = pattern->border[matched];
    return pattern->text[matched] == c ? matched + 1 : 0;
}

static void make_borders(struct pattern *pattern)
{
    uint16_t matched = 0;
    pattern->border[0] = pattern->border[1] = 0;
    for (size_t i = 1; i < pattern->length; i++) {
        matched = advance(pattern, matched, pattern->text[i]);
        pattern->border[i + 1] = matched;
    }
}

static int check(const struct stop_string *string, size_t index, struct error *error)
{
    if (string->length == 0)
        return error_set(error, ERR_BAD_VALUE, "stop[%zu] is empty", index);
    if (string->length > STOP_BYTES_MAX)
        return error_limit(error, ERR_BAD_VALUE, STOP_BYTES_MAX, string->length,
                           "stop[%zu] has %zu bytes, %d is the limit", index, string->length,
                           STOP_BYTES_MAX);
    for (size_t at = 0, step; at < string->length; at += step) {
        step = utf8_length((const unsigned char *)string->text + at, string->length - at);
        if (step == 0)
            return error_set(error, ERR_BAD_VALUE, "stop[%zu] is no UTF-8 at byte %zu", index, at);
    }
    return 0;
}

int stop_set_new(const struct stop_string *strings, size_t count, struct stop_set **ret_set,
                 struct error *error)
{
    int code = 0;
    if (count > STOP_STRINGS_MAX)
        return error_limit(error, ERR_BAD_VALUE, STOP_STRINGS_MAX, count,
                           "%zu stop strings, %d is the limit", count, STOP_STRINGS_MAX);
    for (size_t i = 0; i < count && !code; i++)
        code = check(&strings[i], i, error);
    if (code)
        return code;
    /* One pattern at least: a matcher of none points at it and holds nothing. */
    size_t room = count > 0 ? count : 1;
    struct stop_set *set = calloc(1, sizeof(*set) + room * sizeof(set->patterns[0]));
    if (!set)
        return error_set(error, ERR_NO_MEMORY, "no memory for stop strings");
    set->count = count;
    for (size_t i = 0; i < count; i++) {
        set->patterns[i].length = strings[i].length;
        memcpy(set->patterns[i].text, strings[i].text, strings[i].length);
        make_borders(&set->patterns[i]);
    }
    *ret_set = set;
    return 0;
}

void stop_set_free(struct stop_set *set)
{
    free(set);
}

void stop_init(struct stop *stop, const struct stop_set *set)
{
    *stop = (struct stop){.set = set};
}

/* Moves all strings on by one byte; the index of the longest that is complete, or -1. */
static int step(struct stop *stop, char c)
{
    int found = -1;
    stop->held = 0;
    for (size_t i = 0; i < stop->set->count; i++) {
        const struct pattern *pattern = &stop->set->patterns[i];
        stop->matched[i] = advance(pattern, stop->matched[i], c);
        if (stop->matched[i] == pattern->length &&
            (found < 0 || pattern->length > stop->set->patterns[found].length))
            found = (int)i;
        if (stop->matched[i] > stop->held) {
            stop->held = stop->matched[i];
            stop->holder = (uint16_t)i;
        }
    }
    return found;
}

/* The first `count` bytes of the held text and the piece put together. */
static size_t put(const char *held, size_t held_length, const char *text, size_t count, char *out)
{
    size_t from_held = count < held_length ? count : held_length;
    memcpy(out, held, from_held);
    memcpy(out + from_held, text, count - from_held);
    return count;
}

int stop_push(struct stop *stop, const char *text, size_t length, char *out, size_t *ret_length)
{
    size_t held = stop->held;
    const char *held_text = stop->set->patterns[stop->holder].text;
    for (size_t i = 0; i < length; i++) {
        int found = step(stop, text[i]);
        if (found >= 0) {
            size_t before = held + i + 1 - stop->set->patterns[found].length;
            *ret_length = put(held_text, held, text, before, out);
            stop->held = 0;
            return found;
        }
    }
    *ret_length = put(held_text, held, text, held + length - stop->held, out);
    return -1;
}

size_t stop_finish(struct stop *stop, char *out)
{
    size_t held = stop->held;
    memcpy(out, stop->set->patterns[stop->holder].text, held);
    stop_init(stop, stop->set);
    return held;
}
