#include "daemon/answer/json_scan.h"

#include <ctype.h>
#include <string.h>

enum state {
    VALUE, /* one is to begin */
    FIRST_ELEMENT,
    FIRST_KEY,
    KEY,
    COLON,
    BEHIND, /* a value, in a container */
    STRING,
    STRING_ESCAPE,
    KEY_STRING,
    KEY_ESCAPE,
    BARE
};

static bool is_bare(char byte)
{
    return isalnum((unsigned char)byte) || (byte && strchr("+-.", byte));
}

static bool in_object(const struct json_scan *scan)
{
    return scan->objects >> (scan->depth - 1) & 1;
}

static enum json_scan_result value_over(struct json_scan *scan)
{
    scan->state = BEHIND;
    return scan->depth == 0 ? JSON_SCAN_END : JSON_SCAN_MORE;
}

static enum json_scan_result open(struct json_scan *scan, bool object)
{
    if (scan->depth == JSON_SCAN_DEPTH_MAX)
        return JSON_SCAN_BAD;
    uint64_t bit = UINT64_C(1) << scan->depth++;
    scan->objects = object ? scan->objects | bit : scan->objects & ~bit;
    scan->state = object ? FIRST_KEY : FIRST_ELEMENT;
    return JSON_SCAN_MORE;
}

static enum json_scan_result close(struct json_scan *scan, char byte)
{
    if (scan->depth == 0 || byte != (in_object(scan) ? '}' : ']'))
        return JSON_SCAN_BAD;
    scan->depth--;
    return value_over(scan);
}

static enum json_scan_result begin(struct json_scan *scan, char byte)
{
    if (byte == '{' || byte == '[')
        return open(scan, byte == '{');
    if (byte != '"' && !is_bare(byte))
        return JSON_SCAN_BAD;
    scan->state = byte == '"' ? STRING : BARE;
    return JSON_SCAN_MORE;
}

static enum json_scan_result behind(struct json_scan *scan, char byte)
{
    if (byte != ',')
        return close(scan, byte);
    if (scan->depth == 0)
        return JSON_SCAN_BAD;
    scan->state = in_object(scan) ? KEY : VALUE;
    return JSON_SCAN_MORE;
}

static enum json_scan_result bare(struct json_scan *scan, char byte)
{
    if (is_bare(byte))
        return JSON_SCAN_MORE;
    if (scan->depth == 0)
        return JSON_SCAN_BEFORE;
    scan->state = BEHIND;
    return json_scan_space(byte) ? JSON_SCAN_MORE : behind(scan, byte);
}

/* Inside a string: `over` is what follows it. */
static enum json_scan_result string(struct json_scan *scan, char byte, bool key)
{
    if (byte == '\\')
        scan->state = key ? KEY_ESCAPE : STRING_ESCAPE;
    else if (byte == '"' && key)
        scan->state = COLON;
    else if (byte == '"')
        return value_over(scan);
    return JSON_SCAN_MORE;
}

static enum json_scan_result key(struct json_scan *scan, char byte)
{
    if (byte == '}' && scan->state == FIRST_KEY)
        return close(scan, byte);
    scan->state = KEY_STRING;
    return byte == '"' ? JSON_SCAN_MORE : JSON_SCAN_BAD;
}

bool json_scan_quoted(const struct json_scan *scan)
{
    return scan->state >= STRING && scan->state <= KEY_ESCAPE;
}

enum json_scan_result json_scan_byte(struct json_scan *scan, char byte)
{
    bool inside = scan->state >= STRING;
    if (!inside && json_scan_space(byte))
        return JSON_SCAN_MORE;
    switch ((enum state)scan->state) {
    case FIRST_ELEMENT:
        return byte == ']' ? close(scan, byte) : begin(scan, byte);
    case VALUE:
        return begin(scan, byte);
    case FIRST_KEY:
    case KEY:
        return key(scan, byte);
    case COLON:
        scan->state = VALUE;
        return byte == ':' ? JSON_SCAN_MORE : JSON_SCAN_BAD;
    case BEHIND:
        return behind(scan, byte);
    case STRING:
    case KEY_STRING:
        return string(scan, byte, scan->state == KEY_STRING);
    case STRING_ESCAPE:
        scan->state = STRING;
        return JSON_SCAN_MORE;
    case KEY_ESCAPE:
        scan->state = KEY_STRING;
        return JSON_SCAN_MORE;
    case BARE:
        return bare(scan, byte);
    }
    return JSON_SCAN_BAD;
}

/* ---- to the letter -----------------------------------------------------------------------------
 */

static size_t digits(const char *text, size_t length)
{
    size_t count = 0;
    while (count < length && isdigit((unsigned char)text[count]))
        count++;
    return count;
}

static bool is_number(const char *text, size_t length)
{
    size_t at = length > 0 && text[0] == '-', whole = digits(text + at, length - at), more;
    if (whole == 0 || (whole > 1 && text[at] == '0'))
        return false;
    at += whole;
    if (at < length && text[at] == '.') {
        more = digits(text + at + 1, length - at - 1);
        if (more == 0)
            return false;
        at += 1 + more;
    }
    if (at < length && (text[at] == 'e' || text[at] == 'E')) {
        at += 1 + (at + 1 < length && (text[at + 1] == '+' || text[at + 1] == '-'));
        more = digits(text + at, length - at);
        at += more;
        return more > 0 && at == length;
    }
    return at == length;
}

static bool is_word(const char *text, size_t length)
{
    static const char *const words[] = {"null", "true", "false"};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (length == strlen(words[i]) && memcmp(text, words[i], length) == 0)
            return true;
    return is_number(text, length);
}

/* What is left of an escape, in bytes. False: the byte may not stand in a string. */
static bool string_byte(char byte, unsigned *escape)
{
    static const unsigned any = 5; /* behind a backslash; up to four are digits */
    if (*escape == any) {
        *escape = byte == 'u' ? 4 : 0;
        return byte && strchr("\"\\/bfnrtu", byte);
    }
    if (*escape > 0) {
        --*escape;
        return isxdigit((unsigned char)byte);
    }
    if (byte == '\\')
        *escape = any;
    return (unsigned char)byte >= ' ';
}

bool json_scan_text(const char *text, size_t length)
{
    struct json_scan scan = {0};
    size_t word = 0; /* how much of one has come */
    unsigned escape = 0;
    enum json_scan_result result = JSON_SCAN_MORE;
    for (size_t i = 0; i < length; i++) {
        bool quoted = json_scan_quoted(&scan);
        if (result != JSON_SCAN_MORE || (quoted && !string_byte(text[i], &escape)))
            return false;
        result = json_scan_byte(&scan, text[i]);
        if (!quoted && is_bare(text[i])) {
            word++;
        } else if (word > 0) {
            if (!is_word(text + i - word, word))
                return false;
            word = 0;
        }
    }
    return word > 0
               ? result == JSON_SCAN_MORE && scan.depth == 0 && is_word(text + length - word, word)
               : result == JSON_SCAN_END;
}
