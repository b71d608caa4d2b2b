/* Options: one table per group, from which command lines are parsed, lines of a batch file read,
 * and help is printed.
 *
 * A value goes to `offset` bytes into the struct that a caller names: SWITCH and INT to an int,
 * WHOLE to an int64_t, REAL to a double, TEXT to a const char *, LIST to a struct option_list,
 * TOKENS to a struct option_tokens. Texts are borrowed from the command line or the JSON document.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "protocol/base/error.h"
#include "protocol/base/json.h"

#define OPTION_LIST_MAX 16

enum option_kind {
    OPTION_SWITCH,
    OPTION_OFF,
    OPTION_WHOLE,
    OPTION_INT,
    OPTION_REAL,
    OPTION_TEXT,
    OPTION_LIST,
    OPTION_TOKENS
};

struct option_list {
    size_t count;
    const char *texts[OPTION_LIST_MAX];
};

struct option_tokens {
    int32_t *tokens; /* owned by the struct it stands in */
    size_t count;
};

struct option {
    const char *name;  /* "max-tokens"; in a file "max_tokens" */
    const char *value; /* how --help calls it: "N"; NULL for switches */
    enum option_kind kind;
    size_t offset;
    double min, max; /* of WHOLE, INT and REAL, both included */
    bool in_file;    /* a line of --file may have it */
    const char *help;
};

struct option_group {
    const struct option *options; /* ends with a null name */
};

/* Reads argv from *index on, up to the first argument that is no option (or after "--"). Given twice
 * is refused; a LIST adds up. */
int option_parse(const struct option_group *groups, void *into, int argc, char **argv, int *index,
                 struct error *error);
/* Moves arguments that are no options behind those that are, so that both may be mixed. */
void option_permute(const struct option_group *groups, int argc, char **argv);
/* Takes a value from a file, by the option's name with "_" for "-". */
int option_read(const struct option_group *groups, void *into, const char *name, const json *value,
                struct error *error);
void option_help(const struct option_group *groups);
