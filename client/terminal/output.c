#include "client/terminal/output.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/terminal/interrupt.h"
#include "client/terminal/status.h"

#define HELD_MAX (64u << 10) /* more than this goes out at once */
#define KEEP_MAX (256u << 10)

void output_put(struct output *output, const void *bytes, size_t length)
{
    if (output->broken || length == 0)
        return;
    if (buffer_reserve(&output->buffer, length)) {
        say("out of memory");
        exit(STATUS_SERVER);
    }
    memcpy(output->buffer.bytes + output->buffer.end, bytes, length);
    output->buffer.end += length;
    if (buffer_used(&output->buffer) > HELD_MAX)
        output_flush(output);
}

void output_print(struct output *output, const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    output_put(output, text, (size_t)length < sizeof(text) ? (size_t)length : sizeof(text) - 1);
}

void output_flush(struct output *output)
{
    while (!output->broken && buffer_used(&output->buffer) > 0) {
        ssize_t count = write(STDOUT_FILENO, output->buffer.bytes + output->buffer.start,
                              buffer_used(&output->buffer));
        if (count < 0 && errno == EINTR && !interrupt_came())
            continue;
        if (count < 0) {
            if (errno != EINTR)
                say("standard output: %s", strerrordesc_np(errno));
            output->broken = true;
            return;
        }
        buffer_consume(&output->buffer, (size_t)count, KEEP_MAX);
    }
}
