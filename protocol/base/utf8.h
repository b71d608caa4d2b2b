/* UTF-8 as RFC 3629 has it: no overlong forms, no surrogates, nothing above U+10FFFF. Any thread.
 */
#pragma once

#include <stddef.h>

#define UTF8_REPLACEMENT "\xef\xbf\xbd" /* U+FFFD, what stands for bytes that are no UTF-8 */

/* Bytes of the character that starts at `text`, 1 to 4; 0 when it is invalid or cut by `left`. */
static inline size_t utf8_length(const unsigned char *text, size_t left)
{
    if (left == 0)
        return 0;
    unsigned char lead = text[0], low = 0x80, high = 0xbf;
    if (lead < 0x80)
        return 1;
    if (lead < 0xc2 || lead > 0xf4)
        return 0;
    size_t length = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    if (left < length)
        return 0;
    /* The second byte alone tells overlong forms, surrogates and what is above the last plane. */
    if (lead == 0xe0)
        low = 0xa0;
    else if (lead == 0xed)
        high = 0x9f;
    else if (lead == 0xf0)
        low = 0x90;
    else if (lead == 0xf4)
        high = 0x8f;
    if (text[1] < low || text[1] > high)
        return 0;
    for (size_t i = 2; i < length; i++)
        if ((text[i] & 0xc0) != 0x80)
            return 0;
    return length;
}

/* Bytes before the first that is no UTF-8, or a NUL; all `length` where there is none. */
static inline size_t utf8_valid(const char *text, size_t length)
{
    size_t at = 0, step;
    while (at < length && text[at] &&
           (step = utf8_length((const unsigned char *)text + at, length - at)) > 0)
        at += step;
    return at;
}
