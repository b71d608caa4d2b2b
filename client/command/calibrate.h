/* sluice calibrate: the chunks and lanes of a program on this machine, by the daemon's own program. */
#pragma once

#include "client/command/command.h"

enum status calibrate_command(const struct command *command, const struct settings *settings,
                              int argc, char **argv);
