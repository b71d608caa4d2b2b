/* The command `sluice bench`. */
#pragma once

#include "client/command/command.h"

enum status bench_command(const struct command *command, const struct settings *settings, int argc,
                          char **argv);
