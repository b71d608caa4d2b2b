/* A descriptor from which lines are read, or all there is. Memory is bounded by `max`. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "client/net/buffer.h"
#include "protocol/base/error.h"

#define INPUT_MAX (16u << 20)

struct input {
    const char *name; /* for messages */
    int fd;
    bool ended;
    struct buffer buffer;
    size_t max;      /* bytes that are kept at once: INPUT_MAX, unless its owner says otherwise */
    size_t searched; /* bytes that hold no end of line */
    size_t taken;    /* bytes of the line that was given last */
};

/* path NULL or "-": standard input. */
int input_open(struct input *input, const char *path, struct error *error);
void input_close(struct input *input);
/* One read. May wait; see input->fd. */
int input_more(struct input *input, struct error *error);
/* The next line that is there as a whole, without its end; NULL when none is. Valid until the next
 * call. */
const char *input_line(struct input *input, size_t *ret_length);
/* What is there of a line goes. */
void input_forget(struct input *input);
/* Everything up to the end, in input->buffer. */
int input_all(struct input *input, struct error *error);
