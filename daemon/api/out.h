/* Out: the bytes of an answer, as they are made and as they are taken. loop thread
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "daemon/base/buffer.h"
#include "protocol/base/json.h"

struct out {
    struct buffer buffer;
    size_t taken; /* bytes at the front that are gone */
    bool failed;  /* out of memory: what was made is not whole */
};

typedef json_write out_writer;

void out_bytes(struct out *out, const char *bytes, size_t length);
void out_text(struct out *out, const char *text);
/* Some after each other, NULL behind the last. */
void out_words(struct out *out, const char *const *words);
__attribute__((format(printf, 2, 3))) void out_format(struct out *out, const char *format, ...);
void out_json(struct out *out, out_writer write, const void *context);
/* The same as one server-sent event. */
void out_event(struct out *out, out_writer write, const void *context);

static inline size_t out_left(const struct out *out)
{
    return out->buffer.length - out->taken;
}
/* Moves at most `max` bytes out. */
size_t out_take(struct out *out, char *bytes, size_t max);
void out_clear(struct out *out);
