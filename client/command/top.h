/* The commands `sluice top` and `sluice stats --watch`. */
#pragma once

#include "client/command/command.h"

/* Full screen on a terminal; otherwise a line per second, until it is interrupted. */
enum status top_command(const struct command *command, const struct settings *settings, int argc,
                        char **argv);
/* A line per second on standard output. */
enum status top_watch(const struct settings *settings);
