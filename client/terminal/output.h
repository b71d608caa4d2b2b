/* Standard output: what is written goes out with output_flush(), by write(2), so that a reader that
 * takes nothing can be interrupted. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "client/net/buffer.h"

struct output {
    struct buffer buffer;
    bool broken; /* an error, or the user interrupted a write: nothing more is written */
};

void output_put(struct output *output, const void *bytes, size_t length);
void output_print(struct output *output, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void output_flush(struct output *output);
