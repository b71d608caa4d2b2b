/* Options: one table (option.def) for flags, file, environment, --help and --print-config.
 *
 * Default < file < environment < flag. A file has lines "key = value" and "# comment"; a key that
 * is unknown, repeated or out of range is an error with file and line, and likewise in flags. What
 * holds several things (LIST) may repeat within one of these sources, and adds up; the next source
 * stands instead of the one before it. Any thread; a struct options is not changed once it is made.
 * It owns its texts.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "protocol/base/clock.h"
#include "protocol/base/error.h"

enum { SPECULATE_NO, SPECULATE_LOOKUP, SPECULATE_DRAFT }; /* options.speculate */
#define OPTION_AUTO UINT64_MAX /* of a number whose default is "auto" */

enum { DEVICE_AUTO, DEVICE_CUDA, DEVICE_CPU }; /* options.device */

struct options {
#define OPTION_FIELD_TEXT char *
#define OPTION_FIELD_LIST char *
#define OPTION_FIELD_SWITCH bool
#define OPTION_FIELD_COUNT uint64_t
#define OPTION_FIELD_BYTES uint64_t
#define OPTION_FIELD_TIME time_us
#define OPTION_FIELD_CHOICE uint32_t
#define OPTION(field, name, kind, value, min, max, reload, secret, help) OPTION_FIELD_##kind field;
#include "daemon/base/option.def"
#undef OPTION
};

/* What stands on the command line beside options. */
struct option_command {
    const char *config; /* borrowed from argv or the environment; NULL = no file */
    const char *calibrate_page, *calibrate_store; /* borrowed from argv; NULL = none */
    bool calibrate, check, print_config, help, version;
};

/* All together: ERR_USAGE for the command line, ERR_BAD_CONFIG for the rest, ERR_NO_MEMORY. With
 * `help` or `version` nothing after them is read. `environment` is as environ(7); names that start
 * with SLUICE_ and are no option are written into unknown (first one only, "" for none). */
int options_load(int argc, char *const *argv, char *const *environment,
                 struct options **ret_options, struct option_command *ret_command, char unknown[64],
                 struct error *error);
void options_free(struct options *options);

/* The parts of it, in the order of use. options_defaults() cannot fail but for memory. */
int options_defaults(struct options **ret_options, struct error *error);
int options_read_command(int argc, char *const *argv, char *const *environment,
                         struct option_command *ret_command, struct error *error);
int options_read_file(struct options *options, const char *path, struct error *error);
/* The text of a file; `name` stands in errors. For tests and fuzzing, too. */
int options_read_text(struct options *options, const char *name, const char *text, size_t length,
                      struct error *error);
int options_read_environment(struct options *options, char *const *environment, char unknown[64],
                             struct error *error);
int options_read_flags(struct options *options, int argc, char *const *argv, struct error *error);
/* Relations between options that no range can say. */
int options_check(const struct options *options, struct error *error);
/* Those of one model's own (model_list.h). */
int options_check_model(const struct options *options, struct error *error);

/* Whether `next` may take the place of `now` while the daemon runs: only reloadable ones differ.
 * The error names the first other one. */
int options_reloadable(const struct options *now, const struct options *next, struct error *error);

void options_print_help(FILE *file);
/* A file that options_read_file() reads back to the same options; secrets are left out. */
void options_print_config(const struct options *options, FILE *file);

/* The next of a LIST, without the blanks around it; false at the end. It may be empty, but for the
 * one behind a last comma, which is none. */
struct option_word {
    const char *text; /* borrowed from the list */
    size_t length;
};
bool option_next(const char **list, struct option_word *ret_word);

/* log.h's levels and formats. */
int options_log_level(const struct options *options);
