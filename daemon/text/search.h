/* Looking for a short text in a long one, again and again: bytes behind the find are not touched,
 * which memmem leaves open (and thread checkers take it at its word). Any thread.
 */
#pragma once

#include <stddef.h>
#include <string.h>

#include "daemon/base/halt.h"

#define SEARCH_BYTES (16u << 10) /* between two looks at a halt */

/* `needle` has at least one byte. NULL: not there. */
static inline const char *search_text(const char *text, size_t length, const char *needle,
                                      size_t needle_length)
{
    const char *end = text + length, *found = text;
    while ((size_t)(end - found) >= needle_length &&
           (found = memchr(found, needle[0], (size_t)(end - found) - needle_length + 1))) {
        if (memcmp(found, needle, needle_length) == 0)
            return found;
        found++;
    }
    return NULL;
}

/* The same; NULL, too, once the halt is set. */
static inline const char *search_until(const struct halt *halt, const char *text, size_t length,
                                       const char *needle, size_t needle_length)
{
    const char *found = NULL;
    while (!found && length >= needle_length && !halt_code(halt)) {
        size_t most = SEARCH_BYTES + needle_length - 1, part = length < most ? length : most;
        found = search_text(text, part, needle, needle_length);
        if (part == length)
            break;
        text += SEARCH_BYTES;
        length -= SEARCH_BYTES;
    }
    return found;
}
