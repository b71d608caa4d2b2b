/* Code points of text that is known to be valid UTF-8, and the few properties of them that the
 * tokenizer formats speak of. Any thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CODEPOINT_BYTES_MAX 4

/* Reads one code point and moves *at past it. The text must be valid UTF-8 and *at inside it. */
static inline uint32_t codepoint_next(const char *text, size_t *at)
{
    const unsigned char *c = (const unsigned char *)text + *at;
    if (c[0] < 0x80) {
        *at += 1;
        return c[0];
    }
    if (c[0] < 0xe0) {
        *at += 2;
        return (uint32_t)(c[0] & 0x1f) << 6 | (c[1] & 0x3f);
    }
    if (c[0] < 0xf0) {
        *at += 3;
        return (uint32_t)(c[0] & 0x0f) << 12 | (uint32_t)(c[1] & 0x3f) << 6 | (c[2] & 0x3f);
    }
    *at += 4;
    return (uint32_t)(c[0] & 0x07) << 18 | (uint32_t)(c[1] & 0x3f) << 12 |
           (uint32_t)(c[2] & 0x3f) << 6 | (c[3] & 0x3f);
}

/* The code point that ends right before `at`, which must be greater than 0. */
static inline uint32_t codepoint_before(const char *text, size_t at, size_t *ret_start)
{
    do
        at--;
    while (at > 0 && ((unsigned char)text[at] & 0xc0) == 0x80);
    *ret_start = at;
    return codepoint_next(text, &at);
}

/* Bytes of the character that a lead byte of valid UTF-8 begins. */
static inline size_t codepoint_bytes(unsigned char lead)
{
    return lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
}

static inline size_t codepoint_put(uint32_t code, char *text)
{
    unsigned char *c = (unsigned char *)text;
    if (code < 0x80) {
        c[0] = (unsigned char)code;
        return 1;
    }
    if (code < 0x800) {
        c[0] = (unsigned char)(0xc0 | code >> 6);
        c[1] = (unsigned char)(0x80 | (code & 0x3f));
        return 2;
    }
    if (code < 0x10000) {
        c[0] = (unsigned char)(0xe0 | code >> 12);
        c[1] = (unsigned char)(0x80 | (code >> 6 & 0x3f));
        c[2] = (unsigned char)(0x80 | (code & 0x3f));
        return 3;
    }
    c[0] = (unsigned char)(0xf0 | code >> 18);
    c[1] = (unsigned char)(0x80 | (code >> 12 & 0x3f));
    c[2] = (unsigned char)(0x80 | (code >> 6 & 0x3f));
    c[3] = (unsigned char)(0x80 | (code & 0x3f));
    return 4;
}

/* White_Space of Unicode, which is what \s means to the reference (PCRE2's \s has U+180E besides).
 */
static inline bool codepoint_is_space(uint32_t code)
{
    if (code < 0x80)
        return code == ' ' || (code >= 0x09 && code <= 0x0d);
    return code == 0x85 || code == 0xa0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200a) ||
           code == 0x2028 || code == 0x2029 || code == 0x202f || code == 0x205f || code == 0x3000;
}
