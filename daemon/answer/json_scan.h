/* A scan of one JSON value, byte by byte: where it ends. It looks at structure alone (brackets,
 * strings, commas and colons); what stands bare (numbers, true) is not judged, nor are raw control
 * characters in strings, which models write.
 *
 * Zeroed memory is a scan before its value. Pure; may be copied.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define JSON_SCAN_DEPTH_MAX 64u

enum json_scan_result {
    JSON_SCAN_MORE,
    JSON_SCAN_END,    /* the value ends with this byte */
    JSON_SCAN_BEFORE, /* it has ended before this byte, which is not its own */
    JSON_SCAN_BAD     /* no JSON, or too deep: no more calls follow */
};

struct json_scan {
    uint8_t state;
    uint8_t depth;
    uint64_t objects; /* a bit for each level that is open */
};

/* White space of JSON's; what models put around calls is no other. */
static inline bool json_scan_space(char byte)
{
    return byte == ' ' || byte == '\n' || byte == '\t' || byte == '\r';
}

/* Whether the scan is amid a string, or a key. */
bool json_scan_quoted(const struct json_scan *scan);
enum json_scan_result json_scan_byte(struct json_scan *scan, char byte);
/* Whether a text without white space around it is one JSON value, to the letter: names may come
 * twice, and numbers have any length. */
bool json_scan_text(const char *text, size_t length);
