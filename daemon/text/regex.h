/* The regular expressions of pre-tokenizers: the reference's dialect (Oniguruma, Ruby syntax), run
 * by PCRE2 with its compiler, and interpreted where that one is missing or runs out of stack.
 *
 * A pattern is translated construct by construct; what the two dialects read differently is written
 * out (\s is White_Space), what has not been compared is refused by name. A compiled pattern is
 * read by any thread; scratch belongs to one caller.
 */
#pragma once

#include <stddef.h>

#include "daemon/base/buffer.h"
#include "protocol/base/error.h"

#define REGEX_PATTERN_MAX 4096 /* bytes */

struct regex;
struct regex_scratch;

/* `path` names the field in errors. */
int regex_compile(const char *pattern, size_t length, const char *path, struct regex **ret_regex,
                  struct error *error);
void regex_free(struct regex *regex);

struct regex_scratch *regex_scratch_new(void); /* NULL: out of memory */
void regex_scratch_free(struct regex_scratch *scratch);

/* The first match at or after `from`, in valid UTF-8: 1 with its range, 0 when there is none, or an
 * error when the pattern takes more steps on this text than REGEX_STEPS_MAX. */
int regex_find(const struct regex *regex, struct regex_scratch *scratch, const char *text,
               size_t length, size_t from, size_t *ret_start, size_t *ret_end, struct error *error);

/* The pattern in PCRE2's words; private to regex.c and its tests. */
int regex_translate(const char *pattern, size_t length, const char *path, struct buffer *out,
                    struct error *error);
