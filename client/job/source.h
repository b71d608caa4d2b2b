/* Where prompts come from: the command line, or the lines of a file, which may be endless. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/option/settings.h"
#include "client/terminal/input.h"

struct source {
    int job; /* SLUICE_GENERATE ... */
    const struct option_group *groups;
    const struct settings *settings;
    struct input input; /* its name is NULL for the command line's one prompt */
    bool regular;
    bool too_long; /* what is read belongs to a line that was given up */
    uint64_t line; /* the last one that was taken */
    uint64_t size; /* bytes; 0 = not known */
};

enum source_state { SOURCE_WORK, SOURCE_BAD, SOURCE_WAIT, SOURCE_END, SOURCE_FAILED };

int source_open(struct source *source, int job, const struct option_group *groups,
                const struct settings *settings, struct error *error);
void source_close(struct source *source);
/* The next prompt. BAD: a line that is none, with what could be read of it; the next may be. WAIT:
 * nothing can be read without waiting; wait for its fd. FAILED: no more can be read. With both
 * failures *error names the file, and the line. *ret_bytes: how large it was. */
enum source_state source_next(struct source *source, struct work *ret_work, size_t *ret_bytes,
                              struct error *error);
