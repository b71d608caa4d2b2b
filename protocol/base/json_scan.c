#include "protocol/base/json_scan.h"

#include <limits.h>
#include <stdbool.h>
#include <string.h>

#include "protocol/base/utf8.h"

#define NUMBER_MAX 63    /* cJSON reads no more characters of a number */
#define EXPONENT_MAX 307 /* so that every number is finite as a double */

struct level {
    uint64_t object, members; /* which object this is, and how many keys it has had so far */
    unsigned char close;
};

struct scan {
    const unsigned char *text;
    size_t length, at;
    const char *wrong; /* set once, by the first rule that does not hold at `at` */
    uint32_t depth, depth_max;
    uint64_t values, values_max;
    bool too_deep;
    uint64_t objects, find_object, find_member;
    size_t found;
    struct level level[JSON_DEPTH_MAX];
};

static bool fail(struct scan *scan, const char *wrong)
{
    scan->wrong = wrong;
    return false;
}

/* The byte at hand; 0 at the end, which no rule takes for a byte of its own. */
static unsigned char peek(const struct scan *scan)
{
    return scan->at < scan->length ? scan->text[scan->at] : 0;
}

/* For what is only known to be wrong at its end. */
static bool fail_at(struct scan *scan, size_t at, const char *wrong)
{
    scan->at = at;
    return fail(scan, wrong);
}

static bool is_digit(unsigned char c)
{
    return c >= '0' && c <= '9';
}

static void skip_space(struct scan *scan)
{
    for (;; scan->at++) {
        unsigned char c = peek(scan);
        if (c != ' ' && c != '\n' && c != '\t' && c != '\r')
            return;
    }
}

/* Four hexadecimal digits at `at`, or -1. */
static int hex4(const struct scan *scan, size_t at)
{
    int value = 0;
    if (scan->length < 4 || at > scan->length - 4)
        return -1;
    for (size_t i = at; i < at + 4; i++) {
        unsigned char c = scan->text[i], lower = c | 0x20;
        if (is_digit(c))
            value = value * 16 + (c - '0');
        else if (lower >= 'a' && lower <= 'f')
            value = value * 16 + (lower - 'a' + 10);
        else
            return -1;
    }
    return value;
}

/* At the `u` of an escape; leaves `at` on its last byte. */
static bool scan_unicode_escape(struct scan *scan)
{
    size_t first = scan->at;
    int code = hex4(scan, first + 1);
    if (code < 0)
        return fail(scan, "\\u needs four hexadecimal digits");
    if (code == 0)
        return fail(scan, "\\u0000 is not accepted");
    scan->at += 4;
    if (code < 0xd800 || code > 0xdfff)
        return true;
    bool pair = code < 0xdc00 && scan->length - scan->at > 6 && scan->text[scan->at + 1] == '\\' &&
                scan->text[scan->at + 2] == 'u';
    int low = pair ? hex4(scan, scan->at + 3) : -1;
    if (low < 0xdc00 || low > 0xdfff)
        return fail_at(scan, first, "half of a surrogate pair");
    scan->at += 6;
    return true;
}

static bool scan_escape(struct scan *scan)
{
    scan->at++;
    switch (peek(scan)) {
    case 'u':
        if (!scan_unicode_escape(scan))
            return false;
        break;
    case '"':
    case '\\':
    case '/':
    case 'b':
    case 'f':
    case 'n':
    case 'r':
    case 't':
        break;
    default:
        return fail(scan, "unknown escape");
    }
    scan->at++;
    return true;
}

static bool scan_string(struct scan *scan)
{
    scan->at++;
    while (scan->at < scan->length) {
        unsigned char c = scan->text[scan->at];
        if (c == '"') {
            scan->at++;
            return true;
        }
        if (c == '\\') {
            if (!scan_escape(scan))
                return false;
        } else if (c < 0x20) {
            return fail(scan, "control character in a string");
        } else if (c < 0x80) {
            scan->at++;
        } else {
            size_t step = utf8_length(scan->text + scan->at, scan->length - scan->at);
            if (step == 0)
                return fail(scan, "invalid UTF-8");
            scan->at += step;
        }
    }
    return fail(scan, "string without an end");
}

static size_t scan_digits(struct scan *scan)
{
    size_t first = scan->at;
    while (is_digit(peek(scan)))
        scan->at++;
    return scan->at - first;
}

static bool integer_fits(const unsigned char *digits, size_t count)
{
    uint64_t value = 0;
    if (count > 16)
        return false;
    for (size_t i = 0; i < count; i++)
        value = value * 10 + (uint64_t)(digits[i] - '0');
    return value <= JSON_INTEGER_MAX;
}

/* The power of ten of the first digit that is not 0, with the exponent left aside. Not called but
 * where an exponent follows, which is what ends the digits. */
static int magnitude(const unsigned char *digits, size_t whole)
{
    if (digits[0] != '0')
        return (int)whole - 1;
    const unsigned char *c = digits + 1;
    int power = 0;
    if (*c == '.')
        for (power = -1, c++; *c == '0'; c++)
            power--;
    return is_digit(*c) ? power : INT_MIN / 2; /* zero, with any exponent */
}

/* At `e` or `E`; an absurd exponent is cut to an absurd value. */
static bool scan_exponent(struct scan *scan, int *ret_exponent)
{
    int value = 0;
    scan->at++;
    bool negative = peek(scan) == '-';
    if (negative || peek(scan) == '+')
        scan->at++;
    size_t first = scan->at, count = scan_digits(scan);
    if (count == 0)
        return fail(scan, "digit expected");
    for (size_t i = 0; i < count && value < 10000; i++)
        value = value * 10 + (scan->text[first + i] - '0');
    *ret_exponent = negative ? -value : value;
    return true;
}

static bool scan_number(struct scan *scan)
{
    size_t first = scan->at;
    bool fraction = false, has_exponent = false;
    int exponent = 0;
    if (peek(scan) == '-')
        scan->at++;
    const unsigned char *digits = scan->text + scan->at;
    size_t whole = scan_digits(scan);
    if (whole == 0)
        return fail(scan, "digit expected");
    if (digits[0] == '0' && whole > 1)
        return fail_at(scan, first, "number with a leading zero");
    if (peek(scan) == '.') {
        fraction = true;
        scan->at++;
        if (scan_digits(scan) == 0)
            return fail(scan, "digit expected");
    }
    if (peek(scan) == 'e' || peek(scan) == 'E') {
        has_exponent = true;
        if (!scan_exponent(scan, &exponent))
            return false;
    }
    if (!fraction && !has_exponent && !integer_fits(digits, whole))
        return fail_at(scan, first, "integer beyond 2^53");
    if (scan->at - first > NUMBER_MAX)
        return fail_at(scan, first, "number of more than 63 characters");
    if (has_exponent && magnitude(digits, whole) + exponent > EXPONENT_MAX)
        return fail_at(scan, first, "number out of range");
    return true;
}

static bool scan_word(struct scan *scan, const char *word)
{
    size_t length = strlen(word);
    if (scan->length - scan->at < length || memcmp(scan->text + scan->at, word, length) != 0)
        return fail(scan, "value expected");
    scan->at += length;
    return true;
}

static bool scan_scalar(struct scan *scan)
{
    unsigned char c = peek(scan);
    if (c == '"')
        return scan_string(scan);
    if (c == '-' || is_digit(c))
        return scan_number(scan);
    return scan_word(scan, c == 't' ? "true" : c == 'f' ? "false" : "null");
}

/* A key and its colon, up to where the value begins. */
static bool scan_key(struct scan *scan)
{
    struct level *level = &scan->level[scan->depth - 1];
    skip_space(scan);
    if (peek(scan) != '"')
        return fail(scan, "key expected");
    if (level->object == scan->find_object && level->members == scan->find_member) {
        scan->found = scan->at;
        return fail(scan, "found");
    }
    level->members++;
    if (!scan_string(scan))
        return false;
    skip_space(scan);
    if (peek(scan) != ':')
        return fail(scan, "':' expected");
    scan->at++;
    return true;
}

/* At an opening bracket. *ret_closed tells that the container is empty and already behind us. */
static bool scan_open(struct scan *scan, bool *ret_closed)
{
    bool object = peek(scan) == '{';
    if (scan->depth == scan->depth_max) {
        scan->too_deep = true;
        return fail(scan, "nested too deeply");
    }
    scan->level[scan->depth++] = (struct level){
        .object = object ? scan->objects++ : UINT64_MAX,
        .close = object ? '}' : ']',
    };
    scan->at++;
    skip_space(scan);
    *ret_closed = peek(scan) == scan->level[scan->depth - 1].close;
    if (*ret_closed) {
        scan->at++;
        scan->depth--;
        return true;
    }
    return object ? scan_key(scan) : true;
}

/* After a value: closes what ends here, up to the next value or, with depth 0, the end. */
static bool scan_continue(struct scan *scan)
{
    while (scan->depth > 0) {
        unsigned char close = scan->level[scan->depth - 1].close;
        skip_space(scan);
        unsigned char c = peek(scan);
        if (c == ',') {
            scan->at++;
            return close == '}' ? scan_key(scan) : true;
        }
        if (c != close)
            return fail(scan, close == '}' ? "',' or '}' expected" : "',' or ']' expected");
        scan->at++;
        scan->depth--;
    }
    return true;
}

static bool scan_document(struct scan *scan)
{
    do {
        bool value_done = true;
        skip_space(scan);
        if (++scan->values > scan->values_max)
            return fail(scan, "too many values");
        if (peek(scan) == '{' || peek(scan) == '[') {
            if (!scan_open(scan, &value_done))
                return false;
        } else if (!scan_scalar(scan)) {
            return false;
        }
        if (value_done && !scan_continue(scan))
            return false;
    } while (scan->depth > 0);
    skip_space(scan);
    return scan->at == scan->length ? true : fail(scan, "more text after the value");
}

int json_scan(const char *text, size_t length, uint32_t depth_max, uint32_t values_max,
              struct error *error)
{
    struct scan scan = {.text = (const unsigned char *)text,
                        .length = length,
                        .depth_max = depth_max,
                        .values_max = values_max ? values_max : UINT64_MAX,
                        .find_object = UINT64_MAX,
                        .find_member = UINT64_MAX};
    if (scan_document(&scan))
        return 0;
    if (scan.too_deep)
        return error_limit(error, ERR_TOO_LARGE, depth_max, depth_max + 1,
                           "JSON at byte %zu: nested deeper than %u", scan.at, depth_max);
    if (scan.values > scan.values_max)
        return error_limit(error, ERR_TOO_LARGE, values_max, scan.values,
                           "JSON at byte %zu: more than %u values", scan.at, values_max);
    return error_set(error, ERR_BAD_HEAD, "JSON at byte %zu: %s", scan.at,
                     scan.at < length || length == 0 ? scan.wrong : "the text ends too early");
}

size_t json_scan_key(const char *text, size_t length, uint64_t object, uint64_t member)
{
    struct scan scan = {.text = (const unsigned char *)text,
                        .length = length,
                        .depth_max = JSON_DEPTH_MAX,
                        .values_max = UINT64_MAX,
                        .find_object = object,
                        .find_member = member};
    scan_document(&scan);
    return scan.found;
}
