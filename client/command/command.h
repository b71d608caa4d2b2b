/* The program's commands: each with its options, from one table. */
#pragma once

#include "client/option/option.h"
#include "client/option/settings.h"
#include "client/terminal/status.h"

struct command {
    const char *name;
    const char *usage;   /* what follows the name */
    const char *summary; /* one line */
    const char *text;    /* paragraphs of --help */
    const struct option_group *groups;
    enum status (*run)(const struct command *command, const struct settings *settings, int argc,
                       char **argv); /* arguments that are no options */
};

extern const struct command commands[]; /* ends with a null name */

int command_main(int argc, char **argv);
