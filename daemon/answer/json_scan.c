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
