/* The command `sluice bench`. */
#pragma once

#include "client/command/command.h"

extern const struct option bench_load_options[];   /* what is sent */
extern const struct option bench_output_options[]; /* what is told of it */

enum status bench_command(const struct command *command, const struct settings *settings, int argc,
                          char **argv);
