/* Bodies that came with Content-Encoding gzip or deflate, by zlib: what they hold, within a bound.
 * Any thread.
 */
#pragma once

#include <stddef.h>

#include "daemon/base/buffer.h"
#include "protocol/base/error.h"

enum coding { CODING_NONE, CODING_GZIP, CODING_DEFLATE, CODING_UNKNOWN };

/* Of the header's value; NULL is none. */
enum coding coding_find(const char *name);

/* `body` becomes what it holds: at most `max` bytes, and nothing is behind its end. Also on failure
 * it is a buffer that may be freed. */
int inflate_body(struct buffer *body, enum coding coding, size_t max, struct error *error);
