#include "daemon/text/template/chat_text.h"

#include <ctype.h>
#include <string.h>

#include "daemon/text/codepoint.h"

bool chat_is_space(uint32_t code)
{
    return codepoint_is_space(code) || (code >= 0x1c && code <= 0x1f);
}

size_t chat_space_before(const char *text, size_t length)
{
    size_t at = 0;
    for (size_t next = 0; next < length; at = next)
        if (!chat_is_space(codepoint_next(text, &next)))
            break;
    return at;
}

size_t chat_space_behind(const char *text, size_t length)
{
    size_t at = length, start;
    while (at > 0 && chat_is_space(codepoint_before(text, at, &start)))
        at = start;
    return length - at;
}

static int hex(const char *text, size_t left, size_t digits, uint32_t *ret_code)
{
    uint32_t code = 0;
    if (left < digits)
        return -1;
    for (size_t i = 0; i < digits; i++) {
        unsigned char c = (unsigned char)text[i];
        if (!isxdigit(c))
            return -1;
        code = code * 16 + (uint32_t)(isdigit(c) ? c - '0' : (c | 0x20) - 'a' + 10);
    }
    *ret_code = code;
    return (int)digits;
}

/* Behind the backslash: bytes read, 0 when it is no escape, -1 when it is one that is not known. */
static int escape(const char *text, size_t left, uint32_t *ret_code)
{
    static const char names[] = "\\'\"abfnrtv", codes[] = "\\'\"\a\b\f\n\r\t\v";
    const char *known = memchr(names, text[0], sizeof(names) - 1);
    int digits = -1;
    if (known) {
        *ret_code = (unsigned char)codes[known - names];
        return 1;
    }
    if (text[0] == 'N')
        return -1;
    if (text[0] >= '0' && text[0] <= '7') {
        uint32_t code = 0;
        int count = 0;
        for (; count < 3 && (size_t)count < left && text[count] >= '0' && text[count] <= '7';
             count++)
            code = code * 8 + (uint32_t)(text[count] - '0');
        *ret_code = code;
        return code > 0 ? count : -1;
    }
    if (text[0] == 'x')
        digits = hex(text + 1, left - 1, 2, ret_code);
    else if (text[0] == 'u')
        digits = hex(text + 1, left - 1, 4, ret_code);
    else if (text[0] == 'U')
        digits = hex(text + 1, left - 1, 8, ret_code);
    else
        return 0;
    bool valid = digits > 0 && *ret_code > 0 && *ret_code <= 0x10ffff &&
                 (*ret_code < 0xd800 || *ret_code > 0xdfff);
    return valid ? digits + 1 : -1;
}

bool chat_unescape(const char *text, size_t length, char *out, size_t *ret_length)
{
    size_t used = 0;
    for (size_t i = 0; i < length; i++) {
        uint32_t code = 0;
        if (text[i] != '\\' || i + 1 == length) {
            out[used++] = text[i];
            continue;
        }
        if (text[i + 1] == '\n') {
            i++;
            continue;
        }
        int read = escape(text + i + 1, length - i - 1, &code);
        if (read < 0)
            return false;
        if (read == 0)
            out[used++] = '\\';
        else
            used += codepoint_put(code, out + used);
        i += (size_t)read;
    }
    *ret_length = used;
    return true;
}

size_t chat_count(const char *text, size_t length)
{
    size_t count = 0;
    for (size_t i = 0; i < length; i++)
        count += ((unsigned char)text[i] & 0xc0) != 0x80;
    return count;
}

size_t chat_offset(const char *text, size_t length, size_t codes)
{
    size_t at = 0;
    while (codes > 0 && at < length) {
        at += codepoint_bytes((unsigned char)text[at]);
        codes--;
    }
    return at;
}
