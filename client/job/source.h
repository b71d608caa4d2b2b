/* Where prompts come from: the command line, or the lines of a file, which may be endless. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/option/settings.h"
#include "client/terminal/input.h"

struct source {
    const struct option_group *groups;
    const struct settings *settings;
    struct input input; /* its name is NULL for the command line's one prompt */
    bool regular;
    uint64_t line; /* the last one that was taken */
    uint64_t size; /* bytes; 0 = not known */
};

enum source_state { SOURCE_WORK, SOURCE_WAIT, SOURCE_END, SOURCE_BAD };

int source_open(struct source *source, const struct option_group *groups,
                const struct settings *settings, struct error *error);
void source_close(struct source *source);
/* The next prompt. WAIT: nothing can be read without waiting; wait for its fd. BAD: *error names
 * file and line. *ret_bytes: how large it was. */
enum source_state source_next(struct source *source, struct work *ret_work, size_t *ret_bytes,
                              struct error *error);
