/* The table of options as data, and the setting and showing of one. Private to option*.c,
 * model_list.c and tests.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/base/option.h"
#include "protocol/base/error.h"

enum option_kind {
    OPTION_TEXT,
    OPTION_LIST,
    OPTION_SWITCH,
    OPTION_COUNT,
    OPTION_BYTES,
    OPTION_TIME,
    OPTION_CHOICE
};

struct option {
    const char *name; /* as in a file: "queue-tokens" */
    enum option_kind kind;
    const char *default_text, *help;
    const char *words; /* CHOICE: separated by | */
    uint64_t min, max;
    bool reload, secret;
    size_t offset; /* in struct options */
};

#define OPTIONS_MAX 128

extern const struct option option_table[];
extern const uint32_t option_count;

const struct option *option_find(const char *name, size_t length);
void *option_field(struct options *options, const struct option *option);
/* Errors start with the option's name. */
int option_set(struct options *options, const struct option *option, const char *text,
               size_t length, struct error *error);
/* A further value of the same source: a LIST takes it behind what it has. */
int option_add(struct options *options, const struct option *option, const char *text,
               size_t length, struct error *error);
/* The value as a file would say it; cut at `size`. */
void option_show(const struct options *options, const struct option *option, char *text,
                 size_t size);
bool option_equal(const struct options *a, const struct options *b, const struct option *option);
